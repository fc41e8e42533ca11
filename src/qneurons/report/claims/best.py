"""Claims about the best accuracy on a dataset: is the printed value reached, and by whom?"""

from collections.abc import Sequence
from dataclasses import dataclass

from scipy import stats  # type: ignore[import-untyped]

from qneurons.report.claims.grid import ACTIVATIONS, EPOCHS, NETWORKS, Q_SETTINGS
from qneurons.report.claims.verdicts import FAILS, HOLDS, OPEN, Claim, Number, Verdict, undecided
from qneurons.report.comparisons import MIN_PAIRS, Final, is_q
from qneurons.report.inference import ALPHA, Estimate
from qneurons.report.results import Results


@dataclass(frozen=True)
class BestClaim(Claim):
    """A claim about the best accuracy on a dataset, and which q-activations reach it."""

    network: str
    activations: tuple[str, ...]
    level: float
    rounding: float  # half a unit of the last printed digit


def judge_best(claim: BestClaim, results: Results) -> Verdict:
    field = [
        final
        for final in results.finals["test_accuracy"]
        if NETWORKS.get(final.cell.network) == final.cell.dataset == NETWORKS[claim.network]
        and not final.cell.protocol
        and (final.setting == "base" or is_q(final.setting))
        and final.best.estimate.n
    ]
    ours = [f for f in field if f.cell.network == claim.network and is_q(f.setting)]
    named = [[f for f in ours if f.cell.activation == name] for name in claim.activations]
    rivals = [final for final in field if not any(final in group for group in named)]
    champions = [max(group, key=_accuracy) for group in named if group]
    shown = [*champions, *([max(rivals, key=_accuracy)] if rivals else [])]
    numbers = (
        Number("value in the paper", 100 * claim.level, unit="%"),
        *(number for final in shown for number in _numbers(final)),
    )
    if missing := _missing(claim, field):
        return undecided(claim, missing, numbers)
    return Verdict(claim, *_compare(claim, champions, rivals), numbers)


def _accuracy(final: Final) -> float:
    return final.best.estimate.mean


def _name(final: Final) -> str:
    cell, q = final.cell, "" if final.setting == "base" else "q-"
    dropout = "with" if cell.dropout else "without"
    return f"{cell.network} {q}{cell.activation} {final.setting} {dropout} dropout"


def _numbers(final: Final) -> tuple[Number, Number]:
    best, name = final.best, _name(final)
    return (
        Number.of(f"{name}, epoch {best.epoch}, {best.estimate.n} seeds", best.estimate, unit="%"),
        Number(f"{name}, best single run", 100 * best.single, unit="%"),
    )


def _missing(claim: BestClaim, field: Sequence[Final]) -> list[str]:
    where = f"{claim.network} on {NETWORKS[claim.network]}"
    here = [
        final
        for final in field
        if final.cell.network == claim.network
        and final.cell.activation in ACTIVATIONS
        and final.setting in ("base", *Q_SETTINGS)
    ]
    wanted = 2 * len(ACTIVATIONS) * len(("base", *Q_SETTINGS))  # with and without dropout
    missing = []
    if len(here) < wanted:
        missing.append(f"{wanted - len(here)} of {wanted} settings of {where}")
    if (epoch := min((final.epoch for final in here), default=EPOCHS)) < EPOCHS:
        missing.append(f"epochs: {epoch} of {EPOCHS} in {where}")
    if (n := min((final.best.estimate.n for final in here), default=MIN_PAIRS)) < MIN_PAIRS:
        missing.append(f"seeds: {n} of {MIN_PAIRS} in {where}")
    return missing


def _compare(claim: BestClaim, champions: list[Final], rivals: list[Final]) -> tuple[str, str]:
    threshold, printed = claim.level - claim.rounding, f"The printed {claim.level:.2%}"
    if below := [final for final in champions if final.best.estimate.high < threshold]:
        return FAILS, f"{printed} is not reached: {_values(below)}."
    first, rival = max(champions, key=_accuracy), max(rivals, key=_accuracy)
    if _beats(rival.best.estimate, first.best.estimate, len(rivals)):
        return FAILS, f"Another is better: {_values([rival, first])}."
    if short := [final for final in champions if _accuracy(final) < threshold]:
        return OPEN, f"{printed} is within the interval but not reached: {_values(short)}."
    unit = 2 * claim.rounding
    if round(_accuracy(rival) / unit) > round(_accuracy(first) / unit):
        return OPEN, (
            f"{printed} is reached, but a rival is better, though not significantly: "
            f"{_values([rival, first])}."
        )
    return HOLDS, f"{_values(champions)}. The best of the others: {_values([rival])}."


def _values(finals: Sequence[Final]) -> str:
    return "; ".join(
        f"{_name(final)} has {best.mean:.2%} ({best.low:.2%} to {best.high:.2%})"
        for final in finals
        for best in [final.best.estimate]
    )


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
