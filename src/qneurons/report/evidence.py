"""What claims are judged from: contrasts by name, gains held against a margin, pooled gains."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np
import polars as pl
from numpy.typing import NDArray

from qneurons.report.comparisons import MIN_PAIRS, Cell, Contrast, Final, Metric, contrasts, finals
from qneurons.report.inference import estimate, paired_test
from qneurons.report.numbers import Number, number
from qneurons.study.data import NUM_CLASSES

MARGIN = 0.05  # a gain below this share of base's error (of base's loss) is not worth having
LEAST_ERROR = 1e-4  # a share of an error below one image in ten thousand means nothing
GUESSING = 0.95 * math.log(NUM_CLASSES)  # a run that ends with a training loss above learnt nothing

Gain = Literal["gain", "no gain", "unclear"]

MARGIN_RULE = (
    "A gain is a difference in the right direction with p ≤ 0.05 after Holm's correction. No gain "
    "is shown by a significant loss, or by a 95 % interval that ends below 5 % of base's error "
    "(for a loss: 5 % of base's). Everything else is unclear; so p > 0.05 alone never shows that "
    "there is no gain."
)


class Evidence:
    """The finals of a frame by metric, cell and setting, and contrasts between them."""

    def __init__(self, frame: pl.DataFrame) -> None:
        self.finals = {
            (final.metric.name, final.cell, final.setting): final
            for metric in ("test_accuracy", "train_loss")
            for final in finals(frame, metric=metric)
        }
        self.cells = sorted({cell for _, cell, _ in self.finals})
        self._declared = {
            (c.metric.name, c.cell, c.setting, c.reference): c
            for c in contrasts(self.finals.values())
        }

    def of_metric(self, metric: str) -> tuple[list[Final], list[Contrast]]:
        """All finals and all declared contrasts of one metric."""
        return (
            [final for final in self.finals.values() if final.metric.name == metric],
            [row for row in self._declared.values() if row.metric.name == metric],
        )

    def settings(self, cell: Cell) -> list[str]:
        return [s for metric, c, s in self.finals if c == cell and metric == "test_accuracy"]

    def final(self, cell: Cell, setting: str, metric: str = "test_accuracy") -> Final:
        return self.finals[metric, cell, setting]

    def contrast(
        self, cell: Cell, setting: str, reference: str, metric: str = "test_accuracy"
    ) -> Contrast:
        """One of the declared contrasts."""
        return self._declared[metric, cell, setting, reference]

    def extra(
        self, cell: Cell, pairs: list[tuple[str, str]], metric: str = "test_accuracy"
    ) -> dict[tuple[str, str], Contrast]:
        """Contrasts beside the declared ones, as a family of their own."""
        rows = [self.final(cell, setting, metric) for setting in self.settings(cell)]
        return {(c.setting, c.reference): c for c in contrasts(rows, lambda settings: pairs)}

    def scale(self, cell: Cell, metric: Metric) -> float:
        """Base's mean error or loss, which gains are held against."""
        mean = self.final(cell, "base", metric.name).estimate.mean
        return max(1 - mean, LEAST_ERROR) if metric.higher else mean

    def untrained(self, cell: Cell) -> dict[str, int]:
        """How many runs of a setting end no better than guessing, where there are any.

        The accuracies of a cell are then far apart, and it would outweigh all others in a mean.
        """
        ends = {s: self.final(cell, s, "train_loss").values.values() for s in self.settings(cell)}
        counts = {setting: sum(loss > GUESSING for loss in ends[setting]) for setting in ends}
        return {setting: count for setting, count in counts.items() if count}

    def gain(self, contrast: Contrast) -> Gain:
        """The rule of :data:`MARGIN_RULE` for one contrast."""
        if contrast.outcome != "unclear":
            return "gain" if contrast.outcome == "better" else "no gain"
        small = contrast.gain.high < MARGIN * self.scale(contrast.cell, contrast.metric)
        return "no gain" if small and contrast.gain.n >= MIN_PAIRS else "unclear"

    def gains_by_seed(self, contrast: Contrast) -> dict[int, float]:
        """setting - reference of each pair, with the sign that makes positive better."""
        name, cell = contrast.metric.name, contrast.cell
        a = self.finals[name, cell, contrast.setting].values
        b = self.finals[name, cell, contrast.reference].values
        sign = 1 if contrast.metric.higher else -1
        return {seed: sign * (a[seed] - b[seed]) for seed in sorted(a.keys() & b.keys())}

    def pooled(self, label: str, rows: Iterable[Contrast]) -> Number:
        """The mean gain over contrasts of one metric, taken by seed, of settings that learn."""
        rows = list(rows)
        metric = rows[0].metric
        learning = [
            row
            for row in rows
            if not {row.setting, row.reference} & self.untrained(row.cell).keys()
        ]
        pooled = pool(self.gains_by_seed(row) for row in learning or rows)
        lost = [pooled.lost] if pooled.lost else []
        if learning and len(learning) < len(rows):
            lost.append(f"{len(rows) - len(learning)} of {len(rows)} left out that did not train")
        label = f"gain in {metric.title}, {label}" + (f" ({'; '.join(lost)})" if lost else "")
        p = paired_test(pooled.values)[1]
        return number(label, estimate(pooled.values), p, unit="pp" if metric.percent else "")


@dataclass(frozen=True)
class Pool:
    """The mean over samples for each seed, and in words what was left out for it."""

    values: NDArray[np.float64]
    lost: str


def pool(samples: Iterable[Mapping[int, float | NDArray[np.float64]]]) -> Pool:
    """Averages samples by seed, over seeds that all of them have.

    To fill a gap would shrink the variance. So the sample or the seed with the largest share of
    gaps is left out, and the next, until there is no gap: few values are lost with them.
    """
    kept = list(samples)
    seeds = sorted({seed for sample in kept for seed in sample})
    total = (len(kept), len(seeds))
    here = np.array([seed in sample for sample in kept for seed in seeds], bool).reshape(total)
    while not here.all():
        by_sample, by_seed = here.mean(axis=1), here.mean(axis=0)
        axis = 0 if by_sample.min() < by_seed.min() else 1
        worst = int((by_sample, by_seed)[axis].argmin())
        del (kept, seeds)[axis][worst]
        here = np.delete(here, worst, axis)
    lost = [
        f"{count - left} of {count} {name}"
        for count, left, name in zip(total, here.shape, ("cases", "seeds"), strict=True)
        if left < count
    ]
    values = np.array([np.array([s[seed] for s in kept]).mean(axis=0) for seed in seeds])
    return Pool(values, f"{' and '.join(lost)} left out for missing runs" if lost else "")
