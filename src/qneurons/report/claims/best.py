"""Claims about the best accuracy on a dataset: is the printed value reached, and by whom?"""

from collections.abc import Sequence
from dataclasses import dataclass

from scipy import stats  # type: ignore[import-untyped]

from qneurons.report.claims.verdicts import (
    ACTIVATIONS,
    EPOCHS,
    FAILS,
    HOLDS,
    NETWORKS,
    OPEN,
    Q_SETTINGS,
    Claim,
    Verdict,
)
from qneurons.report.comparisons import MIN_PAIRS, Best, Final, is_q
from qneurons.report.evidence import Evidence
from qneurons.report.inference import ALPHA, Estimate
from qneurons.report.numbers import Number, number


@dataclass(frozen=True)
class BestClaim(Claim):
    """A claim about the best accuracy on a dataset, and which q-activations reach it."""

    network: str
    activations: tuple[str, ...]
    level: float
    rounding: float  # half a unit of the last printed digit


def judge_best(claim: BestClaim, evidence: Evidence) -> Verdict:
    field = [
        _Entry(final, final.best)
        for (metric, cell, setting), final in evidence.finals.items()
        if metric == "test_accuracy"
        and cell.dataset == NETWORKS[claim.network]
        and not cell.protocol
        and (setting == "base" or is_q(setting))
        and final.best is not None
    ]
    named = {
        activation: [entry for entry in field if _is_named(claim, entry, activation)]
        for activation in claim.activations
    }
    rivals = [e for e in field if not any(e in entries for entries in named.values())]
    champions = [max(entries, key=_accuracy) for entries in named.values() if entries]
    shown = [*champions, *([max(rivals, key=_accuracy)] if rivals else [])]
    numbers = (
        Number("value in the paper", 100 * claim.level, unit="%"),
        *(number for entry in shown for number in _numbers(entry)),
    )
    missing = _missing(claim, field)
    if missing:
        return Verdict(claim, OPEN, f"These data lack {'; '.join(missing)}.", numbers, missing)
    answer, reason = _compare(claim, champions, rivals)
    return Verdict(claim, answer, reason, numbers)


@dataclass(frozen=True)
class _Entry:
    final: Final
    best: Best

    def __str__(self) -> str:
        cell, q = self.final.cell, "" if self.final.setting == "base" else "q-"
        dropout = "with" if cell.dropout else "without"
        return f"{cell.network} {q}{cell.activation} {self.final.setting} {dropout} dropout"


def _accuracy(entry: _Entry) -> float:
    return entry.best.estimate.mean


def _is_named(claim: BestClaim, entry: _Entry, activation: str) -> bool:
    cell = entry.final.cell
    return (cell.network, cell.activation) == (claim.network, activation) and is_q(
        entry.final.setting
    )


def _numbers(entry: _Entry) -> tuple[Number, Number]:
    best = entry.best
    return (
        number(f"{entry}, epoch {best.epoch}, {best.estimate.n} seeds", best.estimate, unit="%"),
        Number(f"{entry}, best single run", 100 * best.single, unit="%"),
    )


def _missing(claim: BestClaim, field: Sequence[_Entry]) -> tuple[str, ...]:
    where = f"{claim.network} on {NETWORKS[claim.network]}"
    wanted = {
        (dropout, activation, setting)
        for dropout in (False, True)
        for activation in ACTIVATIONS
        for setting in ("base", *Q_SETTINGS)
    }
    keys = {
        (e.final.cell.dropout, e.final.cell.activation, e.final.setting): e
        for e in field
        if e.final.cell.network == claim.network
    }
    here = [entry for key, entry in keys.items() if key in wanted]
    missing = []
    if len(here) < len(wanted):
        missing.append(f"{len(wanted) - len(here)} of {len(wanted)} settings of {where}")
    if short := [e for e in here if e.final.epoch < EPOCHS]:
        missing.append(f"epochs: {min(e.final.epoch for e in short)} of {EPOCHS} in {where}")
    if few := [e for e in here if e.best.estimate.n < MIN_PAIRS]:
        missing.append(f"seeds: {min(e.best.estimate.n for e in few)} of {MIN_PAIRS} in {where}")
    return tuple(missing)


def _compare(
    claim: BestClaim, champions: Sequence[_Entry], rivals: Sequence[_Entry]
) -> tuple[str, str]:
    threshold = claim.level - claim.rounding
    below = [entry for entry in champions if entry.best.estimate.high < threshold]
    if below:
        found = "; ".join(f"{entry} has {_percent(entry)}" for entry in below)
        return FAILS, f"The printed {claim.level:.2%} is not reached: {found}."
    first, rival = max(champions, key=_accuracy), max(rivals, key=_accuracy)
    if _beats(rival.best.estimate, first.best.estimate, len(rivals)):
        return (
            FAILS,
            f"Another is better: {rival} has {_percent(rival)}, {first} {_percent(first)}.",
        )
    short = [entry for entry in champions if _accuracy(entry) < threshold]
    if short:
        found = "; ".join(f"{entry} has {_percent(entry)}" for entry in short)
        return (
            OPEN,
            f"The printed {claim.level:.2%} is within the interval but not reached: {found}.",
        )
    unit = 2 * claim.rounding
    if round(_accuracy(rival) / unit) > round(_accuracy(first) / unit):
        return OPEN, (
            f"The printed {claim.level:.2%} is reached, but {rival} with {_percent(rival)} is "
            f"above {first} with {_percent(first)}, though not significantly."
        )
    found = "; ".join(f"{entry} has {_percent(entry)}" for entry in champions)
    return HOLDS, f"{found}; the best of the others, {rival}, has {_percent(rival)}."


def _percent(entry: _Entry) -> str:
    mean = entry.best.estimate
    return f"{mean.mean:.2%} ({mean.low:.2%} to {mean.high:.2%})"


def _beats(rival: Estimate, first: Estimate, rivals: int) -> bool:
    """Welch's t test, corrected because the rival was picked as the best of many."""
    if rival.mean <= first.mean:
        return False
    if rival.sd == first.sd == 0:
        return True
    p = stats.ttest_ind_from_stats(
        rival.mean, rival.sd, rival.n, first.mean, first.sd, first.n, equal_var=False
    ).pvalue
    return bool(p * rivals <= ALPHA)
