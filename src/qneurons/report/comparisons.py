"""From tidy rows to numbers: the final value of each run, means over seeds, paired contrasts.

Which runs are compared. A cell is everything that a run depends on except setting and seed. Its
settings are compared up to one epoch: the last one that at least half of its runs reached. The
final value of a run is its mean over the last tenth of these epochs (91 to 100 of 100), at least
over the last one. Runs that did not reach the epoch are incomplete. They are counted, but no mean
includes them. Diverged runs have no final value. They are counted beside the mean, and in a
contrast they lose against their partners that did not diverge.

Which epochs. The training loss is recorded after some epochs only, and older runs have more of
them. So means and curves of a cell use the epochs that all its compared runs have. If the last
tenth has none of these, the final value is that of the last one before it.

Which contrasts. Differences are paired by seed. Holm's correction covers the declared contrasts of
one cell and metric: one panel of the paper's figures is one family, and claims count panels.
"""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import NamedTuple

import numpy as np
import polars as pl
from scipy import stats  # type: ignore[import-untyped]

from qneurons.report.inference import ALPHA, Estimate, estimate, holm, paired_test, sign_test
from qneurons.schedules import Constant
from qneurons.study.errors import StudyError
from qneurons.study.runs import parse_setting
from qneurons.study.store import CELL, RUN

STATES = ("compared", "incomplete", "diverged")  # of a run
MIN_PAIRS = 3  # with fewer seeds, "no gain" is never concluded


class Cell(NamedTuple):
    """What is held fixed while settings are compared."""

    dataset: str
    network: str
    dropout: bool
    activation: str
    protocol: str = ""  # what differs from the paper's protocol, in words

    @property
    def where(self) -> str:
        """The network, its data and what differs from the paper's protocol."""
        return f"{self.network} on {self.dataset}" + (f", {self.protocol}" if self.protocol else "")

    def __str__(self) -> str:
        dropout = "dropout" if self.dropout else "no dropout"
        protocol = f", {self.protocol}" if self.protocol else ""
        return f"{self.network} on {self.dataset}, {self.activation}, {dropout}{protocol}"


@dataclass(frozen=True)
class Metric:
    """A column of the frame, and how to read it."""

    name: str
    title: str
    higher: bool  # True if higher is better
    percent: bool  # True if shown as a percentage


METRICS = {
    "test_accuracy": Metric("test_accuracy", "test accuracy", higher=True, percent=True),
    "train_loss": Metric("train_loss", "training loss", higher=False, percent=False),
    "train_loss_limit": Metric(
        "train_loss_limit", "training loss without noise", higher=False, percent=False
    ),
}
PRIMARY = ("test_accuracy", "train_loss")


def is_q(setting: str) -> bool:
    return parse_setting(setting).kind == "q"


def setting_order(setting: str) -> tuple[int, bool, float, str]:
    """Sorts base, limit, means, then constant and annealed by λ, then gradient noise."""
    parsed = parse_setting(setting)
    rank = ("base", "limit", "mean", "q", "gradient-noise").index(parsed.kind)
    annealed = not isinstance(parsed.schedule, Constant | None)
    return rank, annealed, parsed.lam(1), setting


@dataclass(frozen=True)
class Best:
    """The peak of the mean curve. Chosen on the test set, as in the paper, so a little too good."""

    epoch: int
    estimate: Estimate  # of no values if no run is compared
    single: float  # best value of any single run at any epoch


@dataclass(frozen=True)
class Final:
    """One setting in one cell: the final value of each compared run."""

    cell: Cell
    setting: str
    metric: Metric
    first: int  # final values are means over the epochs from this one
    epoch: int  # to the epoch of comparison, or the last before it that has the metric
    values: Mapping[int, float] = field(repr=False)  # by seed
    diverged: tuple[int, ...]  # seeds
    estimate: Estimate
    best: Best

    @property
    def epochs(self) -> str:
        """The epochs of the final values, in words."""
        single = self.first == self.epoch
        return f"epoch {self.epoch}" if single else f"epochs {self.first}–{self.epoch}"


def run_states(frame: pl.DataFrame, *, last_only: bool = False) -> pl.DataFrame:
    """One row per run: its last epoch, the epochs of its final value, its state.

    The final value is the mean over the epochs from ``first`` to ``target``, the epoch of
    comparison of its cell; with ``last_only`` it is the value of ``target``.
    """
    keys = frame.select(*RUN, "epoch")
    if len(twice := keys.filter(keys.is_duplicated())):
        *cell, setting, seed, epoch = twice.row(0)
        raise StudyError(
            f"{Cell(*cell)}, {setting}, seed {seed}: epoch {epoch} occurs more than once",
            "give every epoch of a run one row",
        )
    runs = frame.group_by(RUN).agg(
        last=pl.col("epoch").max(), diverged=pl.col("diverged").fill_null(False).any()
    )
    alive = pl.col("last").filter(~pl.col("diverged"))
    # The upper median: at least half of the runs that did not diverge have reached it.
    target = pl.coalesce(alive.quantile(0.5, "higher").cast(pl.Int64), pl.col("last").max())
    runs = runs.with_columns(target=target.over(CELL))
    is_late = pl.col("last") < pl.col("target")
    state = pl.when(is_late).then(pl.lit("incomplete")).otherwise(pl.lit("compared"))
    state = pl.when("diverged").then(pl.lit("diverged")).otherwise(state)
    num_epochs = pl.lit(1) if last_only else (pl.col("target") // 10).clip(1)
    first = pl.col("target") - num_epochs + 1
    return runs.select(*RUN, "last", "target", first=first, state=state).sort(RUN)


def compared_rows(frame: pl.DataFrame, states: pl.DataFrame, metric: str) -> pl.DataFrame:
    """The finite values of a metric, of the compared runs up to the epoch of comparison.

    Only epochs in which all compared runs of the cell have it, or all that have it at all.
    ``target`` becomes the last of these, and ``first`` is not after it.

    The training loss without noise is that of the last epoch with a training loss. It is recorded
    every tenth epoch, and not at all in older stores. In cells in which it is not recorded for all
    (``noiseless`` is False), the training loss with the noise of the epoch stands in.
    """
    compared = states.filter(pl.col("state") == "compared").select(*RUN, "first", "target")
    rows = frame.join(compared, on=RUN).filter(pl.col("epoch") <= pl.col("target"))
    is_limit = metric == "train_loss_limit"
    rows = rows.filter(pl.col("train_loss" if is_limit else metric).is_finite())
    num_runs = pl.struct("setting", "seed").n_unique().over(CELL)
    rows = rows.filter(pl.len().over(*CELL, "epoch") == num_runs)
    rows = rows.with_columns(target=pl.col("epoch").max().over(CELL))
    rows = rows.with_columns(first=pl.min_horizontal("first", "target"))
    if is_limit:
        rows = rows.filter(pl.col("epoch") == pl.col("target"))
        is_recorded = pl.col(metric).is_finite().fill_null(False)
        rows = rows.with_columns(noiseless=is_recorded.all().over(CELL))
        rows = rows.with_columns(pl.when("noiseless").then(metric).otherwise("train_loss"))
    return rows


def curves(rows: pl.DataFrame, metric: str) -> pl.DataFrame:
    """By epoch: n, mean, sd and t-interval (low, high) over runs, and the best single value.

    Also the median with its quartiles (lower, upper): one run with a spike moves a mean.
    """
    value = pl.col(metric)
    means = rows.group_by(*CELL, "setting", "epoch").agg(
        n=pl.len(),
        mean=value.mean(),
        sd=value.std(),
        single=value,
        median=value.median(),
        lower=value.quantile(0.25, "linear"),
        upper=value.quantile(0.75, "linear"),
    )
    n = means["n"].to_numpy()
    half = pl.Series(stats.t.ppf(1 - ALPHA / 2, n - 1) / np.sqrt(n)) * means["sd"]
    extreme = pl.col("single").list.max() if METRICS[metric].higher else pl.col("single").list.min()
    return means.with_columns(
        low=pl.col("mean") - half, high=pl.col("mean") + half, single=extreme
    ).sort(*CELL, "setting", "epoch")


def gain_curves(rows: pl.DataFrame, metric: str) -> pl.DataFrame:
    """The same of the differences from base, paired by seed, in the cells that have base."""
    same = [*CELL, "seed", "epoch"]
    base = rows.filter(setting="base").select(*same, base=metric)
    pairs = rows.filter(pl.col("setting") != "base").join(base, on=same)
    return curves(pairs.with_columns(pl.col(metric) - pl.col("base")), metric)


def finals(
    states: pl.DataFrame, rows: pl.DataFrame, means: pl.DataFrame, metric: str
) -> list[Final]:
    """Every setting of every cell, sorted by cell and :func:`setting_order`.

    The arguments are the results of :func:`run_states`, :func:`compared_rows`, :func:`curves`.
    """
    ends = rows.filter(pl.col("epoch") >= pl.col("first"))
    means_of_runs = ends.group_by(RUN).agg(pl.col(metric).mean())
    values = {row[:-1]: row[-1] for row in means_of_runs.iter_rows()}
    higher = METRICS[metric].higher
    peak = pl.col("mean").arg_max() if higher else pl.col("mean").arg_min()
    peaks = means.group_by(*CELL, "setting").agg(
        pl.col("epoch", "n", "mean").get(peak),
        pl.col("sd", "low", "high").get(peak).fill_null(math.nan),
        pl.col("single").max() if higher else pl.col("single").min(),
    )
    best = {
        tuple(key): Best(epoch, Estimate(n, mean, sd, low, high), single)
        for *key, epoch, n, mean, sd, low, high, single in peaks.iter_rows()
    }
    none = Best(0, estimate(()), math.nan)
    spans = {
        row[:-2]: row[-2:] for row in rows.select(*CELL, "first", "target").unique().iter_rows()
    }
    found = []
    for key, group in groupby(states.iter_rows(), key=lambda row: row[: len(CELL) + 1]):
        runs = [row[len(key) :] for row in group]
        _, _, target, first, _ = runs[0]
        first, target = spans.get(key[:-1], (first, target))
        done = {seed: values[*key, seed] for seed, *_ in runs if (*key, seed) in values}
        diverged = tuple(seed for seed, *_, state in runs if state == "diverged")
        end = (first, target, done, diverged, estimate(done.values()), best.get(key, none))
        found.append(Final(Cell(*key[:-1]), key[-1], METRICS[metric], *end))
    return sorted(found, key=lambda final: (final.cell, setting_order(final.setting)))


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
