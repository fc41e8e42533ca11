"""Judges one case (a cell, or a cell and a setting) for or against a claim of the paper."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Literal

from qneurons.report.claims.evidence import MARGIN, judge_gain, scale
from qneurons.report.contrasts import MIN_PAIRS, Contrast
from qneurons.report.final_values import PRIMARY, Cell
from qneurons.report.results import Results

Answer = Literal["for", "against", "unclear"]


@dataclass(frozen=True)
class Case:
    """The answer of one case, and the contrasts whose mean is its effect, by metric."""

    cell: Cell
    answer: Answer
    effects: tuple[Contrast, ...]


Judge = Callable[[Results, Cell, tuple[str, ...]], Case]


def over_base(results: Results, cell: Cell, settings: Iterable[str]) -> Case:
    """The effects of settings over base in accuracy and loss; speaks neither for nor against."""
    pairs = [(setting, metric) for metric in PRIMARY for setting in settings]
    rows = (results.contrast(cell, setting, "base", metric) for setting, metric in pairs)
    return Case(cell, "unclear", tuple(rows))


def _answered(case: Case, *, yes: bool, no: bool) -> Case:
    return replace(case, answer="for" if yes else "against" if no else "unclear")


def improves(results: Results, cell: Cell, settings: tuple[str, ...]) -> Case:
    """For: a gain in test accuracy and in training loss. Against: no gain in one of them."""
    case = over_base(results, cell, settings[1:])
    gains = [judge_gain(results, row) for row in case.effects]
    return _answered(case, yes=all(gain == "gain" for gain in gains), no="no gain" in gains)


def improves_neither(results: Results, cell: Cell, settings: tuple[str, ...]) -> Case:
    """For: a gain in neither test accuracy nor training loss. Against: a gain in one of them."""
    case = over_base(results, cell, settings[1:])
    gains = [judge_gain(results, row) for row in case.effects]
    return _answered(case, yes=all(gain == "no gain" for gain in gains), no="gain" in gains)


def insensitive(results: Results, cell: Cell, settings: tuple[str, ...]) -> Case:
    """For: both constants gain, and differ by less than the smaller gain. Against: one does not."""
    _, small, large = settings
    case = over_base(results, cell, (small, large))
    rows = [row for row in case.effects if row.metric.name == "test_accuracy"]
    gains = [judge_gain(results, row) for row in rows]
    between = results.extra_contrasts(cell, [(large, small)])[large, small]
    smaller = min(row.gain.mean for row in rows)
    inside = -smaller < between.gain.low and between.gain.high < smaller
    outside = between.gain.low > smaller or between.gain.high < -smaller
    both = gains == ["gain", "gain"]
    return _answered(case, yes=both and inside, no="no gain" in gains or (both and outside))


def annealing_helps(results: Results, cell: Cell, settings: tuple[str, ...]) -> Case:
    """For: an annealed setting gains over every constant. Against: none of them can.

    An annealed setting cannot if it has no gain over some constant.
    """
    constant = [setting for setting in settings if setting.startswith("c")]
    annealed = [setting for setting in settings if setting.startswith("a")]
    pairs = [(a, c) for a in annealed for c in constant]
    rows, losses = (results.extra_contrasts(cell, pairs, metric) for metric in PRIMARY)
    gains = {a: [judge_gain(results, rows[a, c]) for c in constant] for a in annealed}
    return _answered(
        Case(cell, "unclear", (*rows.values(), *losses.values())),
        yes=any(all(gain == "gain" for gain in gains[a]) for a in annealed),
        no=all("no gain" in gains[a] for a in annealed),
    )


def underfits(results: Results, cell: Cell, settings: tuple[str, ...]) -> Case:
    """For: the training loss without noise is higher than base's. Against: it is not."""
    base, large = settings
    row = results.contrast(cell, large, base, "train_loss_limit")
    harm = -row.gain
    small_harm = harm.high < MARGIN * scale(results, cell, row.metric) and harm.n >= MIN_PAIRS
    return _answered(
        Case(cell, "unclear", (row, results.contrast(cell, large, base))),
        yes=row.outcome == "worse",
        no=row.outcome == "better" or small_harm,
    )


def benefits(results: Results, cell: Cell, settings: tuple[str, ...]) -> Case:
    """For: some q setting gains in test accuracy. Against: none does."""
    case = over_base(results, cell, settings[1:])
    rows = [row for row in case.effects if row.metric.name == "test_accuracy"]
    gains = [judge_gain(results, row) for row in rows]
    return _answered(case, yes="gain" in gains, no=all(gain == "no gain" for gain in gains))
