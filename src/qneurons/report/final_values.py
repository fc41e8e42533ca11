"""From tidy rows to numbers: which runs are compared, their final values, means over seeds.

Which runs are compared. A cell is everything that a run depends on except setting and seed. Its
settings are compared up to one epoch: the last one that at least half of its runs reached. The
final value of a run is its mean over the last tenth of these epochs (91 to 100 of 100), at least
over the last one. Runs that did not reach the epoch are incomplete. They are counted, but no mean
includes them. Diverged runs have no final value. They are counted beside the mean.

Which epochs. The training loss is recorded after some epochs only, and older runs have more of
them. So means and curves of a cell use the epochs that all its compared runs have. If the last
tenth has none of these, the final value is that of the last one before it.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import groupby
from typing import NamedTuple

import numpy as np
import polars as pl
from scipy import stats  # type: ignore[import-untyped]

from qneurons.report.inference import ALPHA, Estimate, estimate
from qneurons.schedules import Constant
from qneurons.study.errors import StudyError
from qneurons.study.runs import parse_setting
from qneurons.study.store import CELL, RUN

STATES = ("compared", "incomplete", "diverged")  # of a run


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
