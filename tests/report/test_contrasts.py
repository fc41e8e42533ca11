"""Differences of settings, paired by seed, and their tests."""

import math

import numpy as np
import pytest

pl = pytest.importorskip("polars")
stats = pytest.importorskip("scipy.stats")

from qneurons.report.contrasts import Contrast, contrasts, declared_pairs, survivors
from qneurons.report.final_values import METRICS, Cell
from qneurons.report.inference import Estimate, holm, sign_flip
from qneurons.report.results import Results

ELU = ("digits", "mnist-mlp", False, "elu")


def finals(frame, metric="test_accuracy"):
    return Results(frame).finals[metric]


def of(rows, setting, **wanted):
    [row] = [
        row
        for row in rows
        if row.setting == setting and all(getattr(row, k) == v for k, v in wanted.items())
    ]
    return row


def column(frame, setting, name, epoch):
    rows = frame.filter((pl.col("setting") == setting) & (pl.col("epoch") == epoch))
    return rows.sort("seed")[name].to_numpy()


@pytest.mark.parametrize("metric", ["test_accuracy", "train_loss"])
def test_gains_by_seed_are_positive_where_better(make_frame, metric):
    frame = make_frame(cells=[ELU], gain=0.01, loss_gain=0.01)
    row = of(contrasts(finals(frame, metric)), "a1", reference="base")
    differences = column(frame, "a1", metric, 5) - column(frame, "base", metric, 5)
    sign = 1 if metric == "test_accuracy" else -1
    assert row.gains_by_seed == dict(enumerate(sign * differences))
    assert min(row.gains_by_seed.values()) > 0


def test_the_declared_contrasts():
    pairs = declared_pairs(["base", "limit", "c0.02", "a1", "n0.001"])
    assert pairs == [
        ("limit", "base"), ("n0.001", "base"), ("c0.02", "base"), ("a1", "base"),
        ("c0.02", "limit"), ("a1", "limit"),
    ]  # fmt: skip
    assert declared_pairs(["c0.02", "a1"]) == []
    assert declared_pairs(["limit", "a1"]) == [("a1", "limit")]


def test_contrasts_are_paired_by_seed_and_corrected_within_the_cell(make_frame):
    frame = make_frame(gain=1e-4, noise=1e-4, spread=0.01)
    rows = contrasts(finals(frame))
    assert len(rows) == 2 * 11  # families of 11
    row = of(rows, "c0.1", reference="base", cell=Cell(*ELU))
    mine = frame.filter(pl.col("activation") == "elu")
    differences = column(mine, "c0.1", "test_accuracy", 5) - column(
        mine, "base", "test_accuracy", 5
    )
    assert row.difference.mean == pytest.approx(differences.mean())
    assert (row.test, row.p) == ("sign-flip", sign_flip(differences))
    assert row.difference.high - row.difference.low < 1e-3  # seeds' spread is not in it
    family = [row for row in rows if row.cell == Cell(*ELU)]
    assert [r.p_holm for r in family] == holm([r.p for r in family])


def test_unpaired_seeds_are_left_out_of_a_contrast(make_frame):
    frame = make_frame(cells=[ELU], settings=("base", "c0.1"), seeds=6, incomplete={("base", 2): 1})
    frame = frame.filter((pl.col("setting") == "base") | (pl.col("seed") != 5))
    [row] = contrasts(finals(frame))
    assert (row.difference.n, row.seeds) == (4, 4)
    none = frame.filter((pl.col("setting") == "base") == (pl.col("seed") < 3))
    [row] = contrasts(finals(none))
    assert (row.difference.n, row.test, row.p, row.outcome) == (0, "none", 1.0, "unclear")
    assert math.isnan(row.difference.mean)


def test_equal_values_differ_by_nothing(make_frame):
    frame = make_frame(cells=[ELU], settings=("base", "limit"), noise=0.0)
    [row] = contrasts(finals(frame))
    assert (row.difference.low, row.difference.high, row.p) == (0.0, 0.0, 1.0)


@pytest.mark.parametrize("metric", ["test_accuracy", "train_loss"])
def test_outcomes_know_which_direction_is_better(make_frame, metric):
    up = {"c0.1": 0.01, "a1": -0.01}
    rows = contrasts(finals(make_frame(cells=[ELU], gain=up, loss_gain=up), metric=metric))
    outcomes = {row.setting: row.outcome for row in rows if row.reference == "base"}
    assert outcomes["c0.1"] == "better"
    assert outcomes["a1"] == "worse"
    assert of(rows, "c0.1", reference="base").gain.mean == pytest.approx(0.01, abs=1e-3)


@pytest.mark.parametrize(
    ("diverged", "lead", "outcome"),
    [
        ((0, 0), 1.0, "better"),
        ((1, 1), 1.0, "better"),
        ((1, 0), 1.0, "unclear"),
        ((0, 1), -1.0, "unclear"),
        ((1, 0), -1.0, "worse"),
        ((0, 1), 1.0, "better"),
    ],
)
@pytest.mark.parametrize("test", ["paired t", "sign"])
def test_diverging_more_often_is_never_better(diverged, lead, outcome, test):
    mean = math.nan if test == "sign" else lead
    difference = Estimate(8, mean, 0.1, mean - 0.1, mean + 0.1)
    metric = METRICS["test_accuracy"]
    row = Contrast(
        Cell(*ELU), "c0.1", "base", metric, difference, test, 0.001, 0.01, diverged, 17, {}, lead
    )
    assert row.outcome == outcome


def test_divergence_is_counted_over_the_seeds_that_both_have(make_frame):
    dead = {("c0.1", seed): 2 for seed in range(6)}
    frame = make_frame(cells=[ELU], settings=("base", "c0.1"), seeds=6, diverged=dead)
    [row] = contrasts(finals(frame))
    assert (row.diverged, row.seeds, row.outcome) == ((6, 0), 6, "worse")
    for seeds, outcome in ((5, "unclear"), (6, "worse")):
        few = frame.filter((pl.col("setting") == "c0.1") | (pl.col("seed") < seeds))
        [row] = contrasts(finals(few))
        assert (row.diverged, row.p, row.outcome) == ((seeds, 0), 2 / 2**seeds, outcome)
    apart = frame.filter((pl.col("setting") == "base") == (pl.col("seed") < 3))
    [row] = contrasts(finals(apart))
    assert (row.diverged, row.seeds, row.outcome) == ((0, 0), 0, "unclear")


@pytest.mark.parametrize("metric", ["test_accuracy", "train_loss"])
def test_a_run_that_diverges_alone_loses_its_seed(make_frame, metric):
    gain = {"gain": 0.01, "loss_gain": 0.01, "noise": 1e-6, "loss_noise": 1e-6}
    dead = {("c0.1", 0): 2, ("c0.1", 1): 2, ("base", 1): 2, ("base", 2): 2}
    cell = {"cells": [ELU], "settings": ("base", "c0.1"), "seeds": 12}
    [row] = contrasts(finals(make_frame(**cell, **gain, diverged=dead), metric))
    # of 12 seeds one is lost, one is won by base's divergence, in one both diverge
    assert (row.test, row.lead, row.diverged) == ("sign", 10 - 1, (2, 2))
    assert row.p == pytest.approx(stats.binomtest(10, 11).pvalue)
    assert row.outcome == "better"
    assert survivors([row]) == [(1, "sign"), (1, "sign")]
    alike = {(setting, 1): 2 for setting in cell["settings"]}
    [row] = contrasts(finals(make_frame(**cell, **gain, diverged=alike), metric))
    assert (row.test, row.outcome) == ("sign-flip", "better")


@pytest.mark.parametrize("seeds", [3, 5, 10])
def test_runs_that_diverge_by_chance_make_no_claims(make_frame, seeds):
    """Settings that diverge alike: at most 5 % of the cells may have a claim."""
    rng = np.random.default_rng(seeds)
    cells = [("digits", "m", False, f"f{i}") for i in range(300)]
    settings = ("base", "c0.1", "a1")
    dead = {
        (cell, setting, seed): 2
        for cell in cells
        for setting in settings
        for seed in range(seeds)
        if rng.random() < 0.3
    }
    rows = contrasts(finals(make_frame(cells=cells, settings=settings, seeds=seeds, diverged=dead)))
    claimed = {row.cell for row in rows if row.outcome != "unclear"}
    assert {row.test for row in rows} >= {"sign"}
    assert len(claimed) <= stats.binom.isf(1e-3, len(cells), 0.05)


def test_false_positives_in_a_cell_stay_near_the_level(make_frame):
    frame = make_frame(cells=[("digits", "m", False, f"f{i}") for i in range(80)], epochs=1)
    cells = {row.cell for row in contrasts(finals(frame)) if row.outcome != "unclear"}
    assert len(cells) / 80 <= 0.05 + 3 * math.sqrt(0.05 * 0.95 / 80)


@pytest.mark.parametrize(("cells", "gain"), [(1, 0.0), (1, 0.01), (6, 0.0), (6, 4e-4), (6, 0.01)])
def test_fewer_contrasts_survive_a_correction_over_all_cells(make_frame, cells, gain):
    cells = [("digits", "m", False, f"f{i}") for i in range(cells)]
    rows = contrasts(finals(make_frame(cells=cells, gain=gain, noise=3e-4)))
    (within, test_within), (overall, test) = survivors(rows)
    assert within == sum(row.p_holm <= 0.05 for row in rows)
    assert test_within == "sign-flip"
    assert test == ("sign-flip" if len(cells) == 1 else "paired t")  # 66 / 512 is above 0.05
    p = [row.p for row in rows]
    if len(cells) > 1:
        p = [stats.ttest_1samp([*row.by_seed.values()], 0).pvalue for row in rows]
    assert overall == sum(q <= 0.05 for q in holm(p))
    if gain == 4e-4:
        assert 0 < overall < within
