"""Claims about many cases: how many speak for one and against it, and what that decides."""

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby, product

from qneurons.report.claims.cases import Case, Judge
from qneurons.report.claims.verdicts import (
    EPOCHS,
    FAILS,
    HOLDS,
    LEAST_EPOCHS,
    LINEAR,
    OPEN,
    Claim,
    Verdict,
    paper_cells,
)
from qneurons.report.comparisons import Cell
from qneurons.report.evidence import Evidence
from qneurons.report.numbers import Number


@dataclass(frozen=True)
class CaseClaim(Claim):
    """A claim about many cases: in each cell of these activations, one case for each of ``needs``.

    ``share`` of the cases must speak for it; ``yes`` and ``no`` say in words what cases do.
    """

    activations: tuple[str, ...]
    needs: tuple[tuple[str, ...], ...]  # the settings that a case is judged from
    judge: Judge
    yes: str
    no: str
    share: float = 0.75
    by_dropout: bool = False  # the claim must hold with and without dropout


@dataclass(frozen=True)
class Tally:
    """Cases that were claimed, and how many of them speak for and against the claim.

    The claim holds if at least ``share`` of all claimed cases speak for it; it does not hold if so
    many speak against it that this cannot be reached any more. A missing case is like an unclear
    one: it counts among the claimed and speaks for neither.
    """

    claimed: int
    yes: int
    no: int
    unclear: int
    share: float

    @classmethod
    def count(cls, cases: Iterable[Case], claimed: int, share: float) -> "Tally":
        answers = Counter(case.answer for case in cases)
        return cls(claimed, answers["for"], answers["against"], answers["unclear"], share)

    @property
    def needed(self) -> int:
        return math.ceil(self.share * self.claimed)

    @property
    def allowed(self) -> int:
        """Cases against the claim that still let it hold."""
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
    """The answer to a claim of several parts: one that fails fails it, all must hold."""
    parts = set(answers)
    if FAILS in parts:
        return FAILS
    return HOLDS if parts == {HOLDS} else OPEN


def judge_cases(claim: CaseClaim, evidence: Evidence) -> Verdict:
    claimed = list(product(paper_cells(claim.activations), claim.needs))
    present = [case for case in claimed if _is_judged(evidence, *case)]
    found = [claim.judge(evidence, *case) for case in present]
    parts = {"": found}
    if claim.by_dropout:
        parts = {
            name: [case for case in found if case.cell.dropout == dropout]
            for name, dropout in (("With dropout", True), ("Without dropout", False))
        }
    tallies = {
        name: Tally.count(part, len(claimed) // len(parts), claim.share)
        for name, part in parts.items()
    }
    reason = " ".join(_sentence(claim, name, tally) for name, tally in tallies.items())
    return Verdict(
        claim,
        joint(tally.answer for tally in tallies.values()),
        reason + _epochs(evidence, found) + _elsewhere(claim, evidence),
        (*_counts(tallies), *_pooled(evidence, found)),
        _missing(evidence, claimed),
    )


def _has(evidence: Evidence, cell: Cell, needs: Sequence[str]) -> bool:
    return cell in evidence.cells and set(needs) <= set(evidence.settings(cell))


def _epoch(evidence: Evidence, cell: Cell) -> int:
    return evidence.final(cell, evidence.settings(cell)[0]).epoch


def _is_judged(evidence: Evidence, cell: Cell, needs: Sequence[str]) -> bool:
    return _has(evidence, cell, needs) and _epoch(evidence, cell) >= LEAST_EPOCHS


def _sentence(claim: CaseClaim, part: str, tally: Tally) -> str:
    where = f"{part}: " if part else ""
    if tally.missing == tally.claimed:
        return f"{where}These data have none of the {tally.claimed} cases of the paper."
    lacking = f", {tally.missing} are not in these data" if tally.missing else ""
    return (
        f"{where}Of the {tally.claimed} cases of the paper {tally.yes} {claim.yes} "
        f"({tally.needed} are needed), {tally.no} {claim.no} (more than {tally.allowed} decide "
        f"against it), {tally.unclear} are unclear{lacking}."
    )


def _epochs(evidence: Evidence, found: Iterable[Case]) -> str:
    least = min((_epoch(evidence, case.cell) for case in found), default=EPOCHS)
    return f" Compared at epoch {least}; the paper trained for {EPOCHS}." if least < EPOCHS else ""


def _elsewhere(claim: CaseClaim, evidence: Evidence) -> str:
    """What the cells that the paper does not have would say: told, but never counted."""
    known = set(paper_cells())
    others = [
        (cell, needs)
        for cell, needs in product(evidence.cells, claim.needs)
        if cell not in known and _concerns(claim, cell.activation) and _has(evidence, cell, needs)
    ]
    if not others:
        return ""
    tally = Tally.count((claim.judge(evidence, *c) for c in others), len(others), claim.share)
    return (
        f" Outside of the paper's cells: of {tally.claimed} cases {tally.yes} {claim.yes}, "
        f"{tally.no} {claim.no}, {tally.unclear} are unclear."
    )


def _concerns(claim: CaseClaim, activation: str) -> bool:
    """What the paper says of ReLU is held against all of its kind, and of ELU against the rest."""
    return ("relu" if activation in LINEAR else "elu") in claim.activations


def _counts(tallies: dict[str, Tally]) -> list[Number]:
    return [
        Number(f"{label} {name.lower()}".strip(), value)
        for name, tally in tallies.items()
        for label, value in (
            ("cases claimed", tally.claimed),
            ("cases for", tally.yes),
            ("cases against", tally.no),
            ("cases unclear", tally.unclear),
            ("cases missing", tally.missing),
        )
    ]


def _pooled(evidence: Evidence, found: Iterable[Case]) -> list[Number]:
    effects = [effect for case in found for effect in case.effects]
    keys = list(dict.fromkeys((label, row.metric.name) for label, row in effects))
    return [
        evidence.pooled(
            label, [row for other, row in effects if (other, row.metric.name) == (label, name)]
        )
        for label, name in keys
    ]


def _missing(
    evidence: Evidence, claimed: Sequence[tuple[Cell, tuple[str, ...]]]
) -> tuple[str, ...]:
    """By network, how many cases lack, and which settings the cells that are here lack."""
    lacking = [(cell, needs) for cell, needs in claimed if not _is_judged(evidence, cell, needs)]
    total = Counter((cell.network, cell.dataset) for cell, _ in claimed)
    by_network = [
        f"{len(list(group))} of {total[key]} cases of {key[0]} on {key[1]}"
        for key, group in groupby(lacking, key=lambda case: (case[0].network, case[0].dataset))
    ]
    settings = {
        setting: None
        for cell, needs in lacking
        if cell in evidence.cells
        for setting in needs
        if setting not in evidence.settings(cell)
    }
    epochs = [_epoch(evidence, c) for c, needs in lacking if _has(evidence, c, needs)]
    short = [f"{LEAST_EPOCHS} epochs: there are {min(epochs)}"] if epochs else []
    return (*by_network, *short, *([f"settings {', '.join(settings)}"] if settings else []))
