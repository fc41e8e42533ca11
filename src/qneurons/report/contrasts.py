"""Paired contrasts: a setting against a reference, over the seeds that both have.

Differences are paired by seed. A run that diverged loses against a partner that did not. Holm's
correction covers the declared contrasts of one cell and metric: one panel of the paper's figures is
one family, and claims count panels.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby

import numpy as np

from qneurons.report.final_values import Cell, Final, Metric, is_q
from qneurons.report.inference import ALPHA, Estimate, estimate, holm, paired_test, sign_test

MIN_PAIRS = 3  # with fewer seeds, "no gain" is never concluded


@dataclass(frozen=True)
class Contrast:
    """A setting against a reference in one cell, paired by seed."""

    cell: Cell
    setting: str
    reference: str
    metric: Metric
    difference: Estimate  # setting - reference, in the units of the metric
    test: str  # "sign-flip" | "paired t" | "sign" | "none"
    p: float
    p_holm: float
    diverged: tuple[int, int]  # runs of the setting and of the reference, over the common seeds
    seeds: int  # common seeds: both runs are compared or diverged
    by_seed: Mapping[int, float] = field(repr=False)  # the difference of each pair
    lead: int = 0  # how many more seeds are won than lost; who alone diverges loses

    @property
    def gain(self) -> Estimate:
        """The difference, with the sign chosen so that positive is better."""
        return self.difference if self.metric.higher else -self.difference

    @property
    def gains_by_seed(self) -> dict[int, float]:
        sign = 1 if self.metric.higher else -1
        return {seed: sign * difference for seed, difference in self.by_seed.items()}

    @property
    def outcome(self) -> str:
        """``"better"``, ``"worse"`` or ``"unclear"`` at the level 0.05 after Holm's correction.

        The side with more diverged runs is never better.
        """
        more = self.diverged[0] - self.diverged[1]
        lead = self.lead if self.test == "sign" else self.gain.mean
        if self.p_holm <= ALPHA and lead > 0 and more <= 0:
            return "better"
        if self.p_holm <= ALPHA and lead < 0 and more >= 0:
            return "worse"
        return "unclear"


def paired(a: Final, b: Final) -> dict[int, float]:
    """The difference of two settings, by seed."""
    return {seed: a.values[seed] - b.values[seed] for seed in sorted(a.values.keys() & b.values)}


Pairs = Callable[[Sequence[str]], list[tuple[str, str]]]


def declared_pairs(settings: Sequence[str]) -> list[tuple[str, str]]:
    """The contrasts that are tested in every cell, as (setting, reference)."""
    q = [setting for setting in settings if is_q(setting)]
    others = [s for s in settings if s != "base" and s not in q]
    against_base = [(setting, "base") for setting in others + q if "base" in settings]
    return against_base + [(setting, "limit") for setting in q if "limit" in settings]


def contrasts(finals: Iterable[Final], pairs: Pairs = declared_pairs) -> list[Contrast]:
    """The declared contrasts of every cell, with Holm's correction within cell and metric."""
    found = []
    for _, group in groupby(finals, key=lambda final: (final.cell, final.metric.name)):
        by_setting = {final.setting: final for final in group}
        declared = [(by_setting[s], by_setting[r]) for s, r in pairs(list(by_setting))]
        tested = [_contrast(a, b, len(declared)) for a, b in declared]
        corrected = holm([row.p for row in tested])
        found += [replace(row, p_holm=p) for row, p in zip(tested, corrected, strict=True)]
    return found


def _contrast(a: Final, b: Final, family: int) -> Contrast:
    """Without a correction, as one of so many."""
    by_seed = paired(a, b)
    both = {*a.values, *a.diverged} & {*b.values, *b.diverged}
    lost, won = both & {*a.diverged}, both & {*b.diverged}
    better = [(d > 0) == a.metric.higher for d in by_seed.values() if d]
    wins, losses = len(won - lost) + sum(better), len(lost - won) + better.count(False)
    if lost == won:
        test, p = paired_test(np.array([*by_seed.values()]), family)
    else:
        test, p = "sign", sign_test(wins, losses)
    counts = (len(lost), len(won)), len(both), by_seed, wins - losses
    end = estimate(by_seed.values()), test, p, p, *counts
    return Contrast(a.cell, a.setting, b.setting, a.metric, *end)


def survivors(rows: Sequence[Contrast]) -> list[tuple[int, str]]:
    """How many contrasts are significant, corrected within cells and over all of them at once.

    Also the test of either: all contrasts at once may be too many for the sign-flip test.
    """
    tests = [
        (row.test, row.p)
        if row.test == "sign"
        else paired_test(np.array([*row.by_seed.values()]), len(rows))
        for row in rows
    ]
    within = [row.p_holm for row in rows], [row.test for row in rows]
    overall = holm([p for _, p in tests]), [name for name, _ in tests]
    return [
        (sum(p <= ALPHA for p in found), Counter(names).most_common(1)[0][0])
        for found, names in (within, overall)
    ]
