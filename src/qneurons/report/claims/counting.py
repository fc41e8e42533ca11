"""Claims about many cases: counts the cases for and against, and decides."""

import math
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby, product
from typing import get_args

from qneurons.report.claims.cases import Answer, Case, Judge, over_base
from qneurons.report.claims.grading import grade, learns
from qneurons.report.claims.grid import EPOCHS, FLOOR, LEAST_EPOCHS, LINEAR, SEEDS, paper_cells
from qneurons.report.claims.verdicts import (
    CANNOT_FAIL,
    CANNOT_HOLD,
    FAILS,
    HOLDS,
    OPEN,
    Claim,
    Verdict,
)
from qneurons.report.final_values import Cell
from qneurons.report.rendering import Number
from qneurons.report.results import Results


@dataclass(frozen=True)
class CaseClaim(Claim):
    """A claim about many cases: each cell of these activations has one case for each of ``needs``.

    It holds if at least ``share`` of the cases are for it. ``yes`` and ``no`` are the words for
    what cases for it and against it do.
    """

    activations: tuple[str, ...]
    needs: tuple[tuple[str, ...], ...]  # the settings that a case is judged from
    judge: Judge
    yes: str
    no: str
    sign: int = 1  # -1 if it says that there is no gain
    share: float = 0.75
    by_dropout: bool = False  # the claim must hold with and without dropout
    floor: bool = False  # True if the settings that equal base are shown for comparison


Claimed = tuple[Cell, tuple[str, ...]]  # a case: its cell, and the settings that it needs


def decide(yes: int, no: int, claimed: int, share: float) -> str:
    """Whether a claim holds, from the number of its cases, and of those for and against it.

    It holds if at least ``share`` of all claimed cases are for it. It does not hold if so many are
    against it that this share is out of reach. Missing and unclear cases are neither.
    """
    needed = math.ceil(share * claimed)
    if claimed and yes >= needed:
        return HOLDS
    return FAILS if no > claimed - needed else OPEN


def joint(answers: Iterable[str]) -> str:
    """The answer to a claim of several parts: all must hold, and one that fails refutes it."""
    parts = set(answers)
    return FAILS if FAILS in parts else HOLDS if parts == {HOLDS} else OPEN


@dataclass(frozen=True)
class Count:
    """The cases of one part of a claim: how many are there, and how many cannot change."""

    claimed: int
    share: float
    answers: Counter[Answer]  # of the cases that are there
    settled: Counter[Answer]  # of those that lack neither seeds nor epochs

    @property
    def missing(self) -> int:
        return self.claimed - self.answers.total()

    @property
    def cases(self) -> dict[str, int]:
        """How many are for the claim, against it, unclear and missing."""
        return {name: self.answers[name] for name in get_args(Answer)} | {"missing": self.missing}

    def most(self, answer: Answer) -> int:
        """How many cases may have this answer when all are complete."""
        return self.settled[answer] + self.claimed - self.settled.total()


def settle(counts: Collection[Count]) -> str:
    """The answer by the present counts, or which answer the missing cases can no longer bring."""
    now, best, worst = (
        joint(
            decide(yes, no, c.claimed, c.share) for c, (yes, no) in zip(counts, votes, strict=True)
        )
        for votes in (
            [(c.answers["for"], c.answers["against"]) for c in counts],
            [(c.most("for"), c.settled["against"]) for c in counts],
            [(c.settled["for"], c.most("against")) for c in counts],
        )
    )
    if now != OPEN or (best == HOLDS) == (worst == FAILS):
        return now
    return CANNOT_FAIL if best == HOLDS else CANNOT_HOLD


def judge_cases(claim: CaseClaim, results: Results) -> Verdict:
    claimed = list(product(paper_cells(claim.activations), claim.needs))
    found = _judge(claim, results, claimed)
    counts = _count(claim, results, claimed, found)
    last = _count(claim, results, claimed, _judge(claim, results.last_epoch, claimed))
    reason = " ".join(_sentence(claim, name, count) for name, count in counts.items())
    if found:
        reason += f" At the last epoch alone: {_short(last.values())}."
    learning = [case for case in found if all(learns(results, row) for row in case.effects)]
    without = _count(claim, results, claimed, learning)
    if settle(without.values()) != settle(counts.values()):
        reason += f" Without cases in which a setting learns nothing: {_short(without.values())}."
    if (epoch := min((results.epoch(case.cell) for case in found), default=EPOCHS)) < EPOCHS:
        reason += f" Compared at epoch {epoch}; the paper trained for {EPOCHS}."
    parts = _parts(claim, found)
    if claim.floor:
        cells = dict.fromkeys(case.cell for case in found if _has(results, case.cell, FLOOR))
        words = "the noise floor (limit, c0.02 and c0.1, which equal base but for rounding)"
        parts[words] = [over_base(results, cell, FLOOR) for cell in cells]
    graded = [
        f"{name}: {line}" if name else line
        for name, cases in parts.items()
        for line in grade(results, cases, claim.sign)
    ]
    return Verdict(
        claim,
        settle(counts.values()),
        tuple(graded),
        reason + _elsewhere(claim, results),
        tuple(_numbers(counts)),
        _missing(results, claimed),
        {name: count.cases for name, count in counts.items()},
    )


def _judge(claim: CaseClaim, results: Results, claimed: Iterable[Claimed]) -> list[Case]:
    return [claim.judge(results, *case) for case in claimed if _is_judged(results, *case)]


def _parts(claim: CaseClaim, found: Sequence[Case]) -> dict[str, list[Case]]:
    if not claim.by_dropout:
        return {"": list(found)}
    words = {"with dropout": True, "without dropout": False}
    return {
        name: [case for case in found if case.cell.dropout == dropout]
        for name, dropout in words.items()
    }


def _count(
    claim: CaseClaim, results: Results, claimed: Sequence[Claimed], found: Sequence[Case]
) -> dict[str, Count]:
    parts = _parts(claim, found)
    return {
        name: Count(
            len(claimed) // len(parts),
            claim.share,
            Counter(case.answer for case in cases),
            Counter(case.answer for case in cases if _is_complete(results, case)),
        )
        for name, cases in parts.items()
    }


def _is_complete(results: Results, case: Case) -> bool:
    """True if no run of the case can be added: it has the paper's epochs and seeds."""
    seeds = min(row.seeds for row in case.effects)
    return seeds >= SEEDS and results.epoch(case.cell) >= EPOCHS


def _has(results: Results, cell: Cell, needs: Sequence[str]) -> bool:
    return set(needs) <= set(results.settings(cell))


def _is_judged(results: Results, cell: Cell, needs: Sequence[str]) -> bool:
    return _has(results, cell, needs) and results.epoch(cell) >= LEAST_EPOCHS


def _sentence(claim: CaseClaim, part: str, count: Count) -> str:
    where = f"{part.capitalize()}: " if part else ""
    if not count.answers:
        return f"{where}These data have none of the paper's {count.claimed} cases."
    needed, still = math.ceil(count.share * count.claimed), count.claimed - count.settled.total()
    enough = count.claimed - needed + 1  # to refute it

    def most(answer: Answer, wanted: int) -> str:
        is_open = still and count.answers[answer] < wanted
        return f" (at most {count.most(answer)} are possible)" if is_open else ""

    missing = f", {count.missing} are missing" if count.missing else ""
    return (
        f"{where}Of the paper's {count.claimed} cases {count.answers['for']} {claim.yes}, "
        f"{count.answers['against']} {claim.no}, {count.answers['unclear']} are unclear{missing}. "
        f"The claim needs {needed} of the first kind{most('for', needed)}, and {enough} of the "
        f"second refute it{most('against', enough)}."
    )


def _short(counts: Collection[Count]) -> str:
    numbers = (f"{c.answers['for']} for it and {c.answers['against']} against it" for c in counts)
    return f"{settle(counts)}, {'; '.join(numbers)}"


def _elsewhere(claim: CaseClaim, results: Results) -> str:
    """The count over cells that the paper does not have: reported, but never decisive.

    Claims about ReLU also concern the other LINEAR activations, those about ELU the rest.
    """
    others = [
        (cell, needs)
        for cell, needs in product(results.cells, claim.needs)
        if cell not in paper_cells()
        and ("relu" if cell.activation in LINEAR else "elu") in claim.activations
        and _has(results, cell, needs)
    ]
    if not others:
        return ""
    count = Counter(claim.judge(results, *case).answer for case in others)
    return (
        f" Outside the paper's cells, {count['for']} of {len(others)} cases {claim.yes}, "
        f"{count['against']} {claim.no}, {count['unclear']} are unclear."
    )


def _numbers(counts: Mapping[str, Count]) -> list[Number]:
    return [
        Number(f"cases {label} {name}".strip(), value)
        for name, count in counts.items()
        for label, value in (("claimed", count.claimed), *count.cases.items())
    ]


def _missing(results: Results, claimed: Sequence[Claimed]) -> tuple[str, ...]:
    """By network, the number of missing cases; then the settings that the present cells lack."""
    lacking = [(cell, needs) for cell, needs in claimed if not _is_judged(results, cell, needs)]
    total = Counter((cell.network, cell.dataset) for cell, _ in claimed)
    by_network = [
        f"{len(list(group))} of {total[key]} cases of {key[0]} on {key[1]}"
        for key, group in groupby(lacking, key=lambda case: (case[0].network, case[0].dataset))
    ]
    settings = {
        setting: None
        for cell, needs in lacking
        if cell in results.cells
        for setting in needs
        if setting not in results.settings(cell)
    }
    epochs = [results.epoch(cell) for cell, needs in lacking if _has(results, cell, needs)]
    short = [f"{LEAST_EPOCHS} epochs: there are {min(epochs)}"] if epochs else []
    return (*by_network, *short, *([f"settings {', '.join(settings)}"] if settings else []))
