"""Claims about many cases: counts the cases for and against, and decides."""

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby, product

from qneurons.report.claims.cases import Case, Judge
from qneurons.report.claims.evidence import pooled_gain
from qneurons.report.claims.grid import EPOCHS, LEAST_EPOCHS, LINEAR, paper_cells
from qneurons.report.claims.verdicts import FAILS, HOLDS, OPEN, Claim, Number, Verdict
from qneurons.report.comparisons import Cell, Contrast
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
    share: float = 0.75
    by_dropout: bool = False  # the claim must hold with and without dropout


@dataclass(frozen=True)
class CaseCount:
    """The number of cases that a claim is about, and how many are for and against it.

    The claim holds if at least ``share`` of all its cases are for it. It does not hold if so many
    are against it that this share is out of reach. A missing case is treated as an unclear one: it
    counts among the claimed cases and is neither for nor against.
    """

    claimed: int
    yes: int
    no: int
    unclear: int
    share: float

    @classmethod
    def count(cls, cases: Iterable[Case], claimed: int, share: float) -> "CaseCount":
        answers = Counter(case.answer for case in cases)
        return cls(claimed, answers["for"], answers["against"], answers["unclear"], share)

    @property
    def needed(self) -> int:
        return math.ceil(self.share * self.claimed)

    @property
    def allowed(self) -> int:
        """The most cases against the claim with which it can still hold."""
        return self.claimed - self.needed

    @property
    def missing(self) -> int:
        return self.claimed - self.yes - self.no - self.unclear

    @property
    def answer(self) -> str:
        if self.claimed and self.yes >= self.needed:
            return HOLDS
        return FAILS if self.no > self.allowed else OPEN


def joint(answers: Iterable[str]) -> str:
    """The answer to a claim of several parts: all must hold, and one that fails refutes it."""
    parts = set(answers)
    return FAILS if FAILS in parts else HOLDS if parts == {HOLDS} else OPEN


def judge_cases(claim: CaseClaim, results: Results) -> Verdict:
    claimed = list(product(paper_cells(claim.activations), claim.needs))
    found = [claim.judge(results, *case) for case in claimed if _is_judged(results, *case)]
    parts = {"": found}
    if claim.by_dropout:
        parts = {
            name: [case for case in found if case.cell.dropout == dropout]
            for name, dropout in (("With dropout", True), ("Without dropout", False))
        }
    counts = {
        name: CaseCount.count(part, len(claimed) // len(parts), claim.share)
        for name, part in parts.items()
    }
    reason = " ".join(_sentence(claim, name, count) for name, count in counts.items())
    if (epoch := min((results.epoch(case.cell) for case in found), default=EPOCHS)) < EPOCHS:
        reason += f" Compared at epoch {epoch}; the paper trained for {EPOCHS}."
    return Verdict(
        claim,
        joint(count.answer for count in counts.values()),
        reason + _elsewhere(claim, results),
        (*_counts(counts), *_pooled(results, found)),
        _missing(results, claimed),
    )


def _has(results: Results, cell: Cell, needs: Sequence[str]) -> bool:
    return set(needs) <= set(results.settings(cell))


def _is_judged(results: Results, cell: Cell, needs: Sequence[str]) -> bool:
    return _has(results, cell, needs) and results.epoch(cell) >= LEAST_EPOCHS


def _sentence(claim: CaseClaim, part: str, count: CaseCount) -> str:
    where = f"{part}: " if part else ""
    if count.missing == count.claimed:
        return f"{where}These data have none of the paper's {count.claimed} cases."
    missing = f", {count.missing} are missing from these data" if count.missing else ""
    return (
        f"{where}{count.yes} of the paper's {count.claimed} cases {claim.yes} (the claim needs "
        f"{count.needed}), {count.no} {claim.no} (more than {count.allowed} refute it), "
        f"{count.unclear} are unclear{missing}."
    )


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
    count = CaseCount.count((claim.judge(results, *c) for c in others), len(others), claim.share)
    return (
        f" Outside the paper's cells, {count.yes} of {count.claimed} cases {claim.yes}, "
        f"{count.no} {claim.no}, {count.unclear} are unclear."
    )


def _counts(counts: dict[str, CaseCount]) -> list[Number]:
    return [
        Number(f"cases {label} {name.lower()}".strip(), value)
        for name, count in counts.items()
        for label, value in (
            ("claimed", count.claimed),
            ("for", count.yes),
            ("against", count.no),
            ("unclear", count.unclear),
            ("missing", count.missing),
        )
    ]


def _pooled(results: Results, found: Iterable[Case]) -> list[Number]:
    effects: dict[tuple[str, str], list[Contrast]] = {}
    for case in found:
        for label, row in case.effects:
            effects.setdefault((label, row.metric.name), []).append(row)
    return [pooled_gain(results, label, rows) for (label, _), rows in effects.items()]


def _missing(results: Results, claimed: Sequence[tuple[Cell, tuple[str, ...]]]) -> tuple[str, ...]:
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
