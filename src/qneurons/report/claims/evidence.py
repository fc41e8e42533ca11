"""What counts as a gain: the margin rule for one contrast, and effects averaged over cells."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from qneurons.report.contrasts import MIN_PAIRS, Contrast
from qneurons.report.final_values import Cell, Metric
from qneurons.report.inference import Estimate, estimate
from qneurons.report.results import Results

MARGIN = 0.05  # a gain below this share of base's error (or loss) is too small to matter
LEAST_ERROR = 1e-4  # one image in ten thousand: shares of a smaller error mean nothing

Gain = Literal["gain", "no gain", "unclear"]

MARGIN_RULE = (
    "A gain is a difference in the right direction with p ≤ 0.05 after Holm's correction over the "
    "contrasts of its cell and metric (11 with all seven settings). There is no gain if the "
    "difference is a significant loss, or if it is not significant and its 95 % interval ends "
    "below 5 % of base's error (for a loss: of base's loss). Everything else is unclear: p > 0.05 "
    "alone never shows that there is no gain."
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


def name_idle(results: Results, pairs: Iterable[tuple[Cell, str]]) -> str:
    """Names those of the cells and settings that learn nothing."""
    found: dict[Cell, list[str]] = {}
    for cell, setting in dict.fromkeys(pairs):
        if not results.learns(cell, setting):
            found.setdefault(cell, []).append(setting)
    return "; ".join(f"{cell} ({', '.join(settings)})" for cell, settings in found.items())


Sample = tuple[Cell, Mapping[int, float | NDArray[np.float64]]]  # of a cell: values by seed


@dataclass(frozen=True)
class Effect:
    """A mean over cells and seeds, with two intervals."""

    over_seeds: Estimate
    over_cells: Estimate  # the cells as a sample; the same mean
    lost: str  # what was left out for missing runs


def mean_effect(samples: Iterable[Sample]) -> Effect:
    """Every cell has the same weight, whatever the number of its samples."""
    values, lost = pool(samples)
    by_seed, by_cell = ((), ()) if not values.size else (values.mean(axis=0), values.mean(axis=1))
    return Effect(estimate(by_seed), estimate(by_cell), lost)


def pool(samples: Iterable[Sample]) -> tuple[NDArray[np.float64], str]:
    """The mean of the samples of each cell (first axis) by seed (second axis), without gaps.

    Filling gaps would shrink the variance. Instead, the sample or the seed with the largest share
    of gaps is left out, one after the other, until there are no gaps. This loses few values. Also
    says in words what was left out.
    """
    kept = list(samples)
    seeds = sorted({seed for _, sample in kept for seed in sample})
    total = (len(kept), len(seeds))
    here = np.array([seed in sample for _, sample in kept for seed in seeds], bool).reshape(total)
    while not here.all():
        by_sample, by_seed = here.mean(axis=1), here.mean(axis=0)
        axis = 0 if by_sample.min() < by_seed.min() else 1
        worst = int((by_sample, by_seed)[axis].argmin())
        del (kept, seeds)[axis][worst]
        here = np.delete(here, worst, axis)
    lost = [
        f"{count - left} of {count} {name}"
        for count, left, name in zip(total, here.shape, ("contrasts", "seeds"), strict=True)
        if left < count
    ]
    by_cell: dict[Cell, list[NDArray[np.float64]]] = {}
    for cell, sample in kept:
        by_cell.setdefault(cell, []).append(np.array([sample[seed] for seed in seeds]))
    values = np.array([np.mean(samples, axis=0) for samples in by_cell.values()])
    words = f"{' and '.join(lost)} left out for missing runs" if lost else ""
    return values if seeds else np.empty((0, 0)), words
