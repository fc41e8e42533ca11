"""Claims about the best accuracy on a dataset: is the printed value reached, and by whom?"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

from scipy import stats  # type: ignore[import-untyped]

from qneurons.report.claims.grid import EPOCHS, FLOOR, LINEAR, NETWORKS, Q_SETTINGS, paper_cells
from qneurons.report.claims.verdicts import (
    CANNOT_HOLD,
    FAILS,
    HOLDS,
    OPEN,
    Claim,
    Verdict,
    lack,
)
from qneurons.report.contrasts import MIN_PAIRS
from qneurons.report.final_values import Cell, Final, is_q
from qneurons.report.inference import ALPHA, Estimate
from qneurons.report.rendering import Number
from qneurons.report.results import Results
from qneurons.study.runs import counted


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
        and not _is_floor(final.cell, final.setting)
        and final.best.estimate.n
    ]
    ours = [f for f in field if f.cell.network == claim.network and is_q(f.setting)]
    named = {name: [f for f in ours if f.cell.activation == name] for name in claim.activations}
    rivals = [final for final in field if not any(final in group for group in named.values())]
    champions = {name: max(group, key=_accuracy) for name, group in named.items() if group}
    shown = [*champions.values(), *([max(rivals, key=_accuracy)] if rivals else [])]
    numbers = (
        Number("value in the paper", 100 * claim.level, unit="%"),
        *(number for final in shown for number in _numbers(final)),
    )
    paper = [
        (cell, setting)
        for cell, setting in product(paper_cells(), ("base", *Q_SETTINGS))
        if cell.dataset == NETWORKS[claim.network] and not _is_floor(cell, setting)
    ]
    wanted = [(cell, setting) for cell, setting in paper if cell.network == claim.network]
    needs = {
        name: [(c, s) for c, s in wanted if c.activation == name and s != "base"] for name in named
    }
    whole = [final for name, final in champions.items() if not _missing(field, needs[name])]
    num_rivals = max(len(rivals), len(paper) - sum(map(len, needs.values())))
    answer, reason = _compare(claim, whole, rivals, num_rivals)
    if missing := _missing(field, wanted):
        answer = OPEN if answer == HOLDS else answer
        reason = f"{reason} {lack(missing)}".strip()
    elif answer == CANNOT_HOLD:
        answer = OPEN  # it cannot fail either
    graded = _grade(claim, results, list(champions.values()))
    there = {(final.cell, final.setting) for final in field}.intersection(wanted)
    cases = {"unclear": len(there), "missing": len(wanted) - len(there)}
    parts = {} if answer in (HOLDS, FAILS) else {"settings": cases}
    return Verdict(claim, answer, graded, reason, numbers, tuple(missing), parts)


def _is_floor(cell: Cell, setting: str) -> bool:
    return cell.activation in LINEAR and setting in FLOOR


def _accuracy(final: Final) -> float:
    return final.best.estimate.mean


def _name(final: Final) -> str:
    cell, q = final.cell, "" if final.setting == "base" else "q-"
    dropout = "with" if cell.dropout else "without"
    return f"{cell.network} {q}{cell.activation} {final.setting} {dropout} dropout"


def _numbers(final: Final) -> tuple[Number, Number]:
    best, name = final.best, _name(final)
    seeds = counted(best.estimate.n, "seed")
    return (
        Number.of(f"{name}, epoch {best.epoch}, {seeds}", best.estimate, unit="%"),
        Number(f"{name}, best single run", 100 * best.single, unit="%"),
    )


def _grade(claim: BestClaim, results: Results, champions: Sequence[Final]) -> tuple[str, ...]:
    if not champions:
        return ()
    reached = [final for final in champions if _accuracy(final) >= claim.level - claim.rounding]
    gaps = []
    for final in champions:
        best, last = final.best.estimate, results.last_epoch.final(final.cell, final.setting)
        gap, low, high = (100 * (x - claim.level) for x in (best.mean, best.low, best.high))
        gaps.append(
            f"{_name(final)} is {gap:+.2f} points from it ([{low:+.2f}, {high:+.2f}] over seeds) "
            f"in epoch {final.best.epoch}, its best; its mean over {final.epochs} is "
            f"{final.estimate.mean:.2%}, that of the last epoch {last.estimate.mean:.2%}"
        )
    count = f"{len(reached)} of {len(claim.activations)} named q-activations"
    return (f"{count} reach the printed {claim.level:.2%}", *gaps)


def _missing(field: Sequence[Final], wanted: Sequence[tuple[Cell, str]]) -> list[str]:
    where = f"{wanted[0][0].network} on {wanted[0][0].dataset}"
    here = [final for final in field if (final.cell, final.setting) in wanted]
    missing = []
    if len(here) < len(wanted):
        missing.append(f"{len(wanted) - len(here)} of {len(wanted)} settings of {where}")
    if (epoch := min((final.epoch for final in here), default=EPOCHS)) < EPOCHS:
        missing.append(f"epochs: {epoch} of {EPOCHS} in {where}")
    if (n := min((final.best.estimate.n for final in here), default=MIN_PAIRS)) < MIN_PAIRS:
        missing.append(f"seeds: {n} of {MIN_PAIRS} in {where}")
    return missing


def _compare(
    claim: BestClaim, whole: list[Final], rivals: list[Final], num_rivals: int
) -> tuple[str, str]:
    """The answer from the bests of the named q-activations whose settings are all there.

    Missing settings can only bring more rivals, up to ``num_rivals``, and other bests.
    """
    threshold, printed = claim.level - claim.rounding, f"The printed {claim.level:.2%}"
    if below := [final for final in whole if final.best.estimate.high < threshold]:
        return FAILS, f"{printed} is not reached: {_values(below)}."
    short = [final for final in whole if _accuracy(final) < threshold]
    short_words = f"{printed} is within the interval but not reached: {_values(short)}."
    if len(whole) < len(claim.activations) or not rivals:
        return (CANNOT_HOLD, short_words) if short else (OPEN, "")
    first, rival = max(whole, key=_accuracy), max(rivals, key=_accuracy)
    if better := [r for r in rivals if _beats(r.best.estimate, first.best.estimate, num_rivals)]:
        return FAILS, f"Another is better: {_values([max(better, key=_accuracy), first])}."
    if short:
        return CANNOT_HOLD, short_words
    unit = 2 * claim.rounding
    if round(_accuracy(rival) / unit) > round(_accuracy(first) / unit):
        return CANNOT_HOLD, (
            f"{printed} is reached, but a rival is better, though not significantly: "
            f"{_values([rival, first])}."
        )
    return HOLDS, f"{_values(whole)}. The best of the others: {_values([rival])}."


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
