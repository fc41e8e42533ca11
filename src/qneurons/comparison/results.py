"""From finished trials to numbers: gains over base, the best parameters, costs, the answer."""

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial

import numpy as np
from scipy import stats  # type: ignore[import-untyped]

from qneurons.comparison.arms import BASE, Arm, rivals
from qneurons.comparison.metrics import Metrics
from qneurons.comparison.session import Grid
from qneurons.comparison.store import Finished, params_texts
from qneurons.report.contrasts import Contrast, contrasts
from qneurons.report.final_values import Best, Cell, Final, Metric
from qneurons.report.inference import ALPHA, estimate
from qneurons.report.page import HELPS, HURTS
from qneurons.report.rendering import difference_texts, listed, p_text
from qneurons.study.runs import counted

UNSETTLED = "no setting is shown to help"
ONE_TRAINING = "All seeds trained exactly the same, so this is one training and shows nothing."
USE_THE_SEED = (
    "Use trial.seed in the training, and not torch.manual_seed with a number of your own."
)
POWER, MOST_SEEDS = 0.8, 1000  # of a repetition that is to show the gain
_CELL = Cell("", "", False, "")  # all arms of a comparison share it
_NO_BEST = Best(0, estimate(()), math.nan)


@dataclass(frozen=True)
class Row:
    """One arm at one point of the grid, beside base."""

    arm: Arm
    setting: str  # what convert understands
    params: str  # the point of the grid in words
    trials: Sequence[Finished]  # one for each seed
    final: Final
    contrast: Contrast | None  # with base; None for base itself
    seconds: float  # median over epochs
    peak_bytes: int | None


class Results:
    """Every number of a comparison, computed from the finished trials."""

    def __init__(
        self, trials: Sequence[Finished], arms: Sequence[Arm], grid: Grid, metrics: Metrics
    ) -> None:
        self.trials, self.arms, self.grid, self._metrics = trials, arms, grid, metrics
        self.names = next(filter(None, ([*t.measured.metrics] for t in trials)), [])
        metric, chooser = metrics.check(self.names, has_grid=len(grid) > 1)
        self.metric = metrics.describe(metric, trials)
        self.chooser = metrics.describe(chooser, trials) if chooser else None
        self.metrics = [self.metric, *(self._describe(n) for n in self.names if n != metric)]
        self._by_place: dict[tuple[str, object], list[Finished]] = {}
        for trial in trials:
            self._by_place.setdefault((trial.spec.arm, trial.spec.params), []).append(trial)

    def _describe(self, name: str) -> Metric:
        return self._metrics.describe(name, self.trials)

    def trials_of(self, arm: Arm, point: int) -> list[Finished]:
        """The trials of an arm at a point of the grid."""
        return self._by_place.get((arm.name, self.grid[point]), [])

    @property
    def is_one_training(self) -> bool:
        """True if the seeds make no difference: the trials of every arm have the same metrics."""
        metrics = [[t.measured.metrics for t in trials] for trials in self._by_place.values()]
        return all(len(found) > 1 and found.count(found[0]) == len(found) for found in metrics)

    @cached_property
    def best(self) -> dict[Arm, int]:
        """The best point of the grid for every arm, by the mean of the validation metric.

        A point with fewer diverged trials is better, whatever the mean.
        """

        def quality(arm: Arm, point: int) -> tuple[float, float]:
            values = [self._quality(trial) for trial in self.trials_of(arm, point)]
            finite = [value for value in values if math.isfinite(value)]
            return len(finite) - len(values), statistics.fmean(finite) if finite else -math.inf

        points = range(len(self.grid))
        return {arm: max(points, key=partial(quality, arm)) for arm in self.arms}

    def _quality(self, trial: Finished) -> float:
        """The validation metric, with the sign with which larger is better."""
        if self.chooser is None or trial.measured.diverged:
            return -math.inf if trial.measured.diverged else 0.0
        value = final_value(trial, self.chooser)
        return value if self.chooser.higher else -value

    def at_best(self, metric: Metric | None = None) -> list[Row]:
        """Every arm at its own best.

        Every seed takes the point that is best on its own validation metric. One point for all
        seeds would be luck that they share, and the test would take it for an effect.
        """
        chosen = {}
        for arm in self.arms:
            by_seed: dict[int, list[Finished]] = {}
            for point in range(len(self.grid)):
                for trial in self.trials_of(arm, point):
                    by_seed.setdefault(trial.spec.seed, []).append(trial)
            chosen[arm] = [max(trials, key=self._quality) for trials in by_seed.values()]
        return self._rows(metric or self.metric, chosen, self.best)

    def at_common(self, metric: Metric | None = None) -> list[Row]:
        """Every arm at the best point of base."""
        point = self.best[self.arms[0]]
        chosen = {arm: self.trials_of(arm, point) for arm in self.arms}
        return self._rows(metric or self.metric, chosen, dict.fromkeys(self.arms, point))

    def _rows(
        self, metric: Metric, chosen: Mapping[Arm, Sequence[Finished]], points: Mapping[Arm, int]
    ) -> list[Row]:
        finals = [final_values(arm.name, trials, metric) for arm, trials in chosen.items()]
        found = contrasts(finals, lambda names: [(name, BASE) for name in names if name != BASE])
        by_arm = {row.setting: row for row in found}
        rows = []
        for (arm, trials), final in zip(chosen.items(), finals, strict=True):
            there = self.trials_of(arm, points[arm])
            setting = there[0].setting if there else arm.name
            params = ", ".join(params_texts(self.grid[points[arm]]))
            contrast = by_arm.get(arm.name)
            rows.append(Row(arm, setting, params, trials, final, contrast, *_costs(trials)))
        return rows


def final_value(trial: Finished, metric: Metric) -> float:
    """The mean over the last tenth of the epochs, as in the study."""
    reported = trial.measured.metrics[metric.name]
    return statistics.fmean(reported[-max(len(reported) // 10, 1) :])


def final_values(arm: str, trials: Sequence[Finished], metric: Metric) -> Final:
    """The final values of an arm by seed."""
    values, diverged, last = {}, [], 0
    for trial in trials:
        if trial.measured.diverged:
            diverged.append(trial.spec.seed)
        else:
            values[trial.spec.seed] = final_value(trial, metric)
            last = max(last, len(trial.measured.seconds))
    end = (values, tuple(diverged), estimate(values.values()), _NO_BEST)
    return Final(_CELL, arm, metric, last - max(last // 10, 1) + 1, last, *end)


def _costs(trials: Sequence[Finished]) -> tuple[float, int | None]:
    """The median time of an epoch, and the median peak of memory."""
    seconds = [second for trial in trials for second in trial.measured.seconds]
    peaks = [trial.measured.peak_bytes for trial in trials if trial.measured.peak_bytes]
    return (
        statistics.median(seconds) if seconds else math.nan,
        round(statistics.median(peaks)) if peaks else None,  # the first trial may load the data
    )


def other_lengths(trials: Sequence[Finished], arms: Sequence[Arm]) -> str:
    """A warning of annealed trials that are longer or shorter than λ was fitted to; else empty."""
    fitted = {arm.name: arm for arm in arms if arm.unfitted is not None}
    annealed = [t for t in trials if t.spec.arm in fitted and not t.measured.diverged]
    others = [
        trial
        for trial in annealed
        if fitted[trial.spec.arm].setting(len(trial.measured.seconds)) != trial.setting
    ]
    if not others:
        return ""
    first = others[0]
    epochs = counted(len(first.measured.seconds), "epoch")
    return (
        f"warning: {len(others)} of {len(annealed)} annealed trials are longer or shorter than the "
        f"trial of base to which λ was fitted, as {first.spec} ({first.setting} in {epochs}); "
        "train as many epochs in every trial, or set their number, as in a1/20"
    )


def seeds_to_show(contrast: Contrast, family: int) -> int | None:
    """With so many seeds in all a gain of this size is shown in four of five repetitions.

    It assumes that the true gain is the measured one. None if it takes more than ``MOST_SEEDS``.
    """
    gain, n = contrast.gain, np.arange(2, MOST_SEEDS + 1)
    if not gain.n >= 2 or gain.mean == 0:
        return None
    least = math.ceil(1 - math.log2(ALPHA / family))  # with fewer no sign-flip test can show it
    if gain.sd == 0:
        return least
    critical = stats.t.isf(ALPHA / family / 2, n - 1)
    power = stats.nct.sf(critical, n - 1, abs(gain.mean) / gain.sd * np.sqrt(n))
    enough = np.flatnonzero(power >= POWER)
    return max(least, int(n[enough[0]])) if len(enough) else None


def more_seeds(contrast: Contrast, family: int) -> int | None:
    """How many more seeds would show the difference; see :func:`seeds_to_show`."""
    total = seeds_to_show(contrast, family)
    return None if total is None else max(total - contrast.gain.n, 1)


def prospect(row: Row, family: int) -> str:
    """What is settled, or how many more seeds would settle it."""
    contrast = row.contrast
    if contrast is None:
        return ""
    if contrast.outcome != "unclear":
        return contrast.outcome
    if contrast.test == "sign":
        return "unclear; with a smaller learning rate fewer trials would diverge"
    if contrast.gain.n < 2:
        return "needs two seeds" + " that do not diverge" * bool(sum(contrast.diverged))
    if not any(contrast.by_seed.values()):
        return "the same as base in every trial"
    more = more_seeds(contrast, family)
    if more is None:
        return f"unclear; a difference this small would take over {MOST_SEEDS:,} seeds"
    seeds = counted(more, "more seed")
    return f"unclear; if the difference is real, about {seeds} would show it"


@dataclass(frozen=True)
class Answer:
    """Whether it helps, in a sentence, and what to set."""

    word: str
    sentence: str
    advice: str


def answer(results: Results) -> Answer:
    """The answer at the best parameters of each arm."""
    if results.is_one_training:
        return Answer(UNSETTLED, ONE_TRAINING, USE_THE_SEED)
    _, *rows = results.at_best()
    better, worse = ([r for r in rows if _outcome(r) == word] for word in ("better", "worse"))
    compared = [row.contrast for row in rows if row.contrast]
    measured = [contrast for contrast in compared if contrast.gain.n >= 2]
    keep = "Keep the activation that the model has."
    if not (measured or any(contrast.test == "sign" for contrast in compared)):
        sentence = f"There are too few seeds to compare {results.metric.title}."
        return Answer(UNSETTLED, sentence, "Run more seeds, at least three.")
    top = max(better or rows, key=_merit)
    if better:
        others = [row.arm.name for row in better if row is not top]
        also = f" {listed(others)} help{'s' * (len(others) == 1)} too." if others else ""
        return Answer(HELPS, f"{top.arm.name} helps: {_gain_text(top)}.{also}", advice(top))
    if len(worse) == len(rows):
        least = f"the least harmful is {top.arm.name}: {_gain_text(top)}"
        return Answer(HURTS, f"Every setting hurts: {least}.", keep)
    sentence = (
        f"No setting is shown to help. {top.arm.name} comes closest: {_gain_text(top)}; "
        f"{prospect(top, len(rows))}."
    )
    if top.contrast and top.contrast.p <= ALPHA < top.contrast.p_holm:
        sentence += (
            f" The interval is of {top.arm.name} alone, and p is corrected for all {len(rows)} "
            "settings that were compared."
        )
    if (excluded := max((c.gain.high for c in measured), default=0.0)) > 0:
        sign, words = (1, "reaches a gain above") if results.metric.higher else (-1, "goes below")
        most = difference_texts(estimate([sign * excluded]), results.metric)[0]
        sentence += f" No 95 % interval {words} {most}{_unit(results.metric)}."
    if worse:
        names = [row.arm.name for row in worse]
        sentence += f" {listed(names)} hurt{'s' * (len(names) == 1)}."
    return Answer(UNSETTLED, sentence, keep)


def advice(row: Row) -> str:
    """What to set, as code."""
    at = f", with {row.params}" if row.params else ""
    if row.arm.name in rivals():
        return f"Set the plain activation {row.arm.name} in the model{at}."
    code = f'model = qn.convert(model, "{row.setting}")'
    if row.setting.startswith(("a", "lin", "cos")):
        code += "; scheduler = qn.LambdaScheduler(model); scheduler.step() after every epoch"
    return f"Set {code}{at}."


def _outcome(row: Row) -> str:
    return row.contrast.outcome if row.contrast else "unclear"


def _merit(row: Row) -> tuple[float, float]:
    """Diverges less often than base; then its mean gain."""
    contrast = row.contrast
    assert contrast is not None  # base is not compared with itself
    fewer = contrast.diverged[1] - contrast.diverged[0]
    return fewer, contrast.gain.mean if contrast.gain.n else -math.inf


def _unit(metric: Metric) -> str:
    return " points" if metric.percent else ""


def _gain_text(row: Row) -> str:
    contrast = row.contrast
    assert contrast is not None  # base is not compared with itself
    metric, parts = contrast.metric, []
    if contrast.difference.n:
        mean, interval = difference_texts(contrast.difference, metric)
        seeds = counted(contrast.difference.n, "seed")
        parts.append(f"{metric.title} {mean} {interval}{_unit(metric)} against base over {seeds}")
    if contrast.test == "sign":
        own, of_base = contrast.diverged
        trials = counted(contrast.seeds, "trial")
        parts.append(f"{own} of {trials} diverged, and {of_base} of base's")
    equals = "= " * (contrast.p_holm >= 0.001)
    return f"{', '.join(parts)} (corrected p {equals}{p_text(contrast.p_holm)})"
