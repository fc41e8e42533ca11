"""Claims about many cases: counts the cases for and against, and decides."""

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby, product
from typing import get_args

from qneurons.report.claims.cases import Answer, Case, Judge
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


def judge_cases(claim: CaseClaim, results: Results) -> Verdict:
    claimed = list(product(paper_cells(claim.activations), claim.needs))
    found = [claim.judge(results, *case) for case in claimed if _is_judged(results, *case)]
    parts = {"": found}
    if claim.by_dropout:
        parts = {
            name: [case for case in found if case.cell.dropout == dropout]
            for name, dropout in (("With dropout", True), ("Without dropout", False))
        }
    size = len(claimed) // len(parts)
    counts = {name: Counter(case.answer for case in part) for name, part in parts.items()}
    reason = " ".join(_sentence(claim, name, count, size) for name, count in counts.items())
    if (epoch := min((results.epoch(case.cell) for case in found), default=EPOCHS)) < EPOCHS:
        reason += f" Compared at epoch {epoch}; the paper trained for {EPOCHS}."
    return Verdict(
        claim,
        joint(decide(c["for"], c["against"], size, claim.share) for c in counts.values()),
        reason + _elsewhere(claim, results),
        (*_numbers(counts, size), *_pooled(results, found)),
        _missing(results, claimed),
    )


def _has(results: Results, cell: Cell, needs: Sequence[str]) -> bool:
    return set(needs) <= set(results.settings(cell))


def _is_judged(results: Results, cell: Cell, needs: Sequence[str]) -> bool:
    return _has(results, cell, needs) and results.epoch(cell) >= LEAST_EPOCHS


def _sentence(claim: CaseClaim, part: str, count: Counter[Answer], claimed: int) -> str:
    where = f"{part}: " if part else ""
    if not count:
        return f"{where}These data have none of the paper's {claimed} cases."
    needed, missing = math.ceil(claim.share * claimed), claimed - count.total()
    return (
        f"{where}{count['for']} of the paper's {claimed} cases {claim.yes} (the claim needs "
        f"{needed}), {count['against']} {claim.no} (more than {claimed - needed} refute it), "
        f"{count['unclear']} are unclear"
        + (f", {missing} are missing from these data." if missing else ".")
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
    count = Counter(claim.judge(results, *case).answer for case in others)
    return (
        f" Outside the paper's cells, {count['for']} of {len(others)} cases {claim.yes}, "
        f"{count['against']} {claim.no}, {count['unclear']} are unclear."
    )


def _numbers(counts: Mapping[str, Counter[Answer]], claimed: int) -> list[Number]:
    return [
        Number(f"cases {label} {name.lower()}".strip(), value)
        for name, count in counts.items()
        for label, value in (
            ("claimed", claimed),
            *((answer, count[answer]) for answer in get_args(Answer)),
            ("missing", claimed - count.total()),
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
