"""What counts as a gain: the margin rule for one contrast, and gains pooled over contrasts."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from qneurons.report.claims.verdicts import Number
from qneurons.report.comparisons import MIN_PAIRS, Cell, Contrast, Metric
from qneurons.report.inference import estimate, paired_test
from qneurons.report.results import Results

MARGIN = 0.05  # a gain below this share of base's error (or loss) is too small to matter
LEAST_ERROR = 1e-4  # one image in ten thousand: shares of a smaller error mean nothing

Gain = Literal["gain", "no gain", "unclear"]

MARGIN_RULE = (
    "A gain is a difference in the right direction with p ≤ 0.05 after Holm's correction. There is "
    "no gain if the difference is a significant loss, or if its 95 % interval ends below 5 % of "
    "base's error (for a loss: of base's loss). Everything else is unclear: p > 0.05 alone never "
    "shows that there is no gain."
)


def scale(results: Results, cell: Cell, metric: Metric) -> float:
    """Base's mean error (or loss), to which gains are compared."""
    mean = results.final(cell, "base", metric.name).estimate.mean
    return max(1 - mean, LEAST_ERROR) if metric.higher else mean


def judge_gain(results: Results, contrast: Contrast) -> Gain:
    """Applies :data:`MARGIN_RULE` to one contrast."""
    if contrast.outcome != "unclear":
        return "gain" if contrast.outcome == "better" else "no gain"
    small = contrast.gain.high < MARGIN * scale(results, contrast.cell, contrast.metric)
    return "no gain" if small and contrast.gain.n >= MIN_PAIRS else "unclear"


def pooled_gain(results: Results, label: str, rows: Sequence[Contrast]) -> Number:
    """The mean gain over contrasts of one metric, by seed, without settings that learn nothing."""
    metric = rows[0].metric
    learning = [
        row for row in rows if not {row.setting, row.reference} & results.untrained(row.cell).keys()
    ]
    gains, missing = pool(row.gains_by_seed for row in learning or rows)
    lost = [missing] if missing else []
    if learning and len(learning) < len(rows):
        lost.append(f"{len(rows) - len(learning)} of {len(rows)} left out: they learned nothing")
    label = f"gain in {metric.title}, {label}" + (f" ({'; '.join(lost)})" if lost else "")
    p = paired_test(gains)[1]
    return Number.of(label, estimate(gains), p, unit="pp" if metric.percent else "")


def pool(
    samples: Iterable[Mapping[int, float | NDArray[np.float64]]],
) -> tuple[NDArray[np.float64], str]:
    """Averages samples by seed, over seeds that all have; says in words what was left out.

    Filling gaps would shrink the variance. Instead, the sample or the seed with the largest share
    of gaps is left out, one after the other, until there are no gaps. This loses few values.
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
    return values, f"{' and '.join(lost)} left out for missing runs" if lost else ""
