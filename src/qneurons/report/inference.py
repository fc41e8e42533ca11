"""A mean with its interval, a paired test, and Holm's correction: numbers in, numbers out.

The paired test is the exact sign-flip test for up to 16 pairs, if its smallest possible p,
2^(1 - n), can reach the level after Holm's correction. Otherwise (very few pairs, or many) it is
the paired t test. The choice depends only on the numbers of pairs and contrasts, not on values.

If a run of one side diverged and its partner did not, there is no difference to average. Then it is
the sign test, in which the run that diverged loses. Which pairs these are does not depend on which
run of a pair is called the setting and which the reference, so p keeps its meaning.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special, stats  # type: ignore[import-untyped]

ALPHA = 0.05
_MOST_FLIPS = 16  # pairs: 2^15 sums


@dataclass(frozen=True)
class Estimate:
    """A mean over seeds with its 95 % t-interval; NaN if there are too few values."""

    n: int
    mean: float
    sd: float
    low: float
    high: float

    def __neg__(self) -> "Estimate":
        return Estimate(self.n, -self.mean, self.sd, -self.high, -self.low)


def estimate(values: Iterable[float]) -> Estimate:
    sample = np.fromiter(values, dtype=np.float64)
    n = len(sample)
    if n < 2:
        return Estimate(n, float(sample[0]) if n else math.nan, math.nan, math.nan, math.nan)
    mean, sd = float(sample.mean()), float(sample.std(ddof=1))
    half = float(special.stdtrit(n - 1, 1 - ALPHA / 2)) * sd / math.sqrt(n)
    return Estimate(n, mean, sd, mean - half, mean + half)


def paired_test(differences: NDArray[np.float64], family: int = 1) -> tuple[str, float]:
    """The name of the test for this many pairs and contrasts, and its two-sided p."""
    n = len(differences)
    if n < 2:
        return "none", 1.0
    reachable = 2.0 ** (1 - n) * family <= ALPHA
    # Equal differences (a small test set makes ties) have no spread for a t statistic.
    constant = np.ptp(differences) <= 1e-9 * np.abs(differences).max()
    if n <= _MOST_FLIPS and (reachable or constant):
        return "sign-flip", sign_flip(differences)
    if constant:
        return "paired t", 1.0 if not differences.any() else 2.0 ** (1 - n)
    return "paired t", float(stats.ttest_1samp(differences, 0.0).pvalue)


def sign_flip(differences: NDArray[np.float64]) -> float:
    """The exact two-sided p: the share of all 2^n sign flips with a sum at least as far from 0."""
    sums = np.abs(_signs(len(differences)) @ differences)
    tolerance = 1e-9 * np.abs(differences).sum()  # rounding must not break ties
    return float(np.mean(sums >= abs(differences.sum()) - tolerance))


def sign_test(wins: int, losses: int) -> float:
    """The exact two-sided p of a number of pairs that are won, if either side is as likely."""
    return float(stats.binomtest(wins, wins + losses).pvalue) if wins + losses else 1.0


@cache  # most contrasts have the same number of pairs
def _signs(n: int) -> NDArray[np.float64]:
    half = (np.arange(2 ** (n - 1))[:, None] >> np.arange(n)) & 1  # the other half mirrors these
    return np.asarray(1 - 2 * half, dtype=np.float64)


def paired_tests(samples: Sequence[ArrayLike]) -> list[float]:
    """p of the paired test of each, after Holm's correction over all of them."""
    return holm([paired_test(np.asarray(sample), len(samples))[1] for sample in samples])


def holm(p: Sequence[float]) -> list[float]:
    """Holm's step-down adjusted p-values, in the order given."""
    order = np.argsort(p, kind="stable")
    steps = np.asarray(p)[order] * np.arange(len(p), 0, -1)
    adjusted = np.empty(len(p))
    adjusted[order] = np.minimum(np.maximum.accumulate(steps), 1.0)
    return [float(value) for value in adjusted]
