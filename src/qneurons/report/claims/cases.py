"""Judges one case (a cell, or a cell and a setting) for or against a claim of the paper."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal

from qneurons.report.claims.evidence import MARGIN, judge_gain, scale
from qneurons.report.comparisons import MIN_PAIRS, Cell, Contrast, is_q
from qneurons.report.results import Results
from qneurons.schedules import Constant, parse_schedule

Answer = Literal["for", "against", "unclear"]


@dataclass(frozen=True)
class Case:
    """The answer of one case, and the contrasts that it follows from, labelled for pooling."""

    cell: Cell
    answer: Answer
    effects: tuple[tuple[str, Contrast], ...]


Judge = Callable[[Results, Cell, tuple[str, ...]], Case]


def _answer(*, yes: bool, no: bool) -> Answer:
    return "for" if yes else "against" if no else "unclear"


def improves(results: Results, cell: Cell, settings: tuple[str, ...]) -> Case:
    """For: a gain in test accuracy and in training loss. Against: no gain in one of them."""
    reference, setting = settings
    rows = [results.contrast(cell, setting, reference, m) for m in ("test_accuracy", "train_loss")]
    gains = [judge_gain(results, row) for row in rows]
    answer = _answer(yes=all(gain == "gain" for gain in gains), no="no gain" in gains)
    return Case(cell, answer, tuple(("q over base", row) for row in rows))


def improves_neither(results: Results, cell: Cell, settings: tuple[str, ...]) -> Case:
    """For: a gain in neither test accuracy nor training loss. Against: a gain in one of them."""
    case = improves(results, cell, settings)
    gains = [judge_gain(results, row) for _, row in case.effects]
    answer = _answer(yes=all(gain == "no gain" for gain in gains), no="gain" in gains)
    return replace(case, answer=answer)


def insensitive(results: Results, cell: Cell, settings: tuple[str, ...]) -> Case:
    """For: both constants gain, and differ by less than the smaller gain. Against: one does not."""
    base, small, large = settings
    rows = [results.contrast(cell, setting, base) for setting in (small, large)]
    gains = [judge_gain(results, row) for row in rows]
    between = results.extra_contrasts(cell, [(large, small)])[large, small]
    smaller = min(row.gain.mean for row in rows)
    inside = -smaller < between.gain.low and between.gain.high < smaller
    outside = between.gain.low > smaller or between.gain.high < -smaller
    both = gains == ["gain", "gain"]
    answer = _answer(yes=both and inside, no="no gain" in gains or (both and outside))
    effects = [(f"{row.setting} over {row.reference}", row) for row in (*rows, between)]
    return Case(cell, answer, tuple(effects))


def annealing_helps(results: Results, cell: Cell, settings: tuple[str, ...]) -> Case:
    """For: an annealed setting gains over every constant. Against: none of them can.

    An annealed setting cannot if it has no gain over some constant.
    """
    constant = [setting for setting in settings if setting.startswith("c")]
    annealed = [setting for setting in settings if setting.startswith("a")]
    rows = results.extra_contrasts(cell, [(a, c) for a in annealed for c in constant])
    gains = {a: [judge_gain(results, rows[a, c]) for c in constant] for a in annealed}
    answer = _answer(
        yes=any(all(gain == "gain" for gain in gains[a]) for a in annealed),
        no=all("no gain" in gains[a] for a in annealed),
    )
    effects = [(f"{a} over the constant settings", rows[a, c]) for a in annealed for c in constant]
    return Case(cell, answer, tuple(effects))


def underfits(results: Results, cell: Cell, settings: tuple[str, ...]) -> Case:
    """For: the largest λ ends with a higher training loss than the smallest. Against: it does not.

    Of the q settings with compared runs, the smallest is the smallest constant λ, and the largest
    is the one with the largest λ on average over the epochs (a9, or a user's c3).
    """
    epochs = range(1, results.final(cell, settings[0]).epoch + 1)
    schedules = {
        setting: parse_schedule(setting)
        for setting in results.settings(cell)
        if is_q(setting) and results.final(cell, setting, "train_loss").values
    }
    order = sorted(schedules, key=lambda setting: sum(map(schedules[setting], epochs)))
    small = next((s for s in order if isinstance(schedules[s], Constant)), None)
    if small is None or small == (large := order[-1]):
        return Case(cell, "unclear", ())
    row = results.extra_contrasts(cell, [(large, small)], "train_loss")[large, small]
    harm = -row.gain
    small_harm = harm.high < MARGIN * scale(results, cell, row.metric) and harm.n >= MIN_PAIRS
    answer = _answer(
        yes=row.outcome == "worse" and not small_harm, no=row.outcome == "better" or small_harm
    )
    return Case(cell, answer, (("largest λ over smallest", row),))


def benefits(results: Results, cell: Cell, settings: tuple[str, ...]) -> Case:
    """For: some q setting gains in test accuracy. Against: none does."""
    reference, *q = settings
    rows = [results.contrast(cell, setting, reference) for setting in q]
    gains = [judge_gain(results, row) for row in rows]
    answer = _answer(yes="gain" in gains, no=all(gain == "no gain" for gain in gains))
    where = "with dropout" if cell.dropout else "without dropout"
    return Case(cell, answer, tuple((f"q over base {where}", row) for row in rows))
