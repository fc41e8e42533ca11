"""Gains held against the margin, and effects averaged over cells and seeds."""

import numpy as np
import pytest

pytest.importorskip("polars")
stats = pytest.importorskip("scipy.stats")

from qneurons.report.claims.evidence import (
    MARGIN,
    judge_gain,
    mean_effect,
    pool,
    scale,
)
from qneurons.report.final_values import METRICS, Cell
from qneurons.report.inference import paired_test
from qneurons.report.results import Results

ELU = Cell("digits", "mnist-mlp", False, "elu")


@pytest.fixture
def make_results(make_frame):
    def make(**options):
        return Results(make_frame(**{"cells": [ELU], "spread": 0, **options}))

    return make


@pytest.mark.parametrize("metric", ["test_accuracy", "train_loss"])
@pytest.mark.parametrize(
    ("effect", "noise", "gain"),
    [
        (0.01, 1e-4, "gain"),
        (2e-4, 2e-5, "gain"),  # small, but there
        (-0.01, 1e-4, "no gain"),
        (0.0, 1e-5, "no gain"),  # the interval ends below the margin
        (0.0, 0.01, "unclear"),  # as it does not here, though p > 0.05 all the same
    ],
)
def test_gains_against_the_margin(make_results, metric, effect, noise, gain):
    results = make_results(gain=effect, loss_gain=effect, noise=noise, loss_noise=noise)
    assert judge_gain(results, results.contrast(ELU, "c0.1", "base", metric)) == gain


def test_the_margin_is_a_share_of_bases_error(make_results):
    results = make_results(accuracy=0.8, noise=0, loss=0.3, loss_noise=0)
    assert scale(results, ELU, METRICS["test_accuracy"]) == pytest.approx(0.2)
    assert scale(results, ELU, METRICS["train_loss"]) == pytest.approx(0.3)
    # true gains of none, with an interval of about ± 0.004: below 5 % of 0.2, not of 0.02
    for accuracy, gain in ((0.8, "no gain"), (0.98, "unclear")):
        results = make_results(accuracy=accuracy, noise=0.004, rng=3)
        row = results.contrast(ELU, "c0.1", "base")
        assert MARGIN * 0.02 < row.gain.high < MARGIN * 0.2
        assert judge_gain(results, row) == gain


def test_two_seeds_never_show_that_there_is_no_gain(make_results):
    for seeds, gain in ((2, "unclear"), (3, "no gain")):
        results = make_results(seeds=seeds, noise=0)
        assert judge_gain(results, results.contrast(ELU, "c0.1", "base")) == gain


def test_without_a_finished_base_a_gain_is_unclear(make_results):
    results = make_results(incomplete={("base", seed): 1 for seed in range(10)})
    assert judge_gain(results, results.contrast(ELU, "c0.1", "base")) == "unclear"


def apart(samples):
    """Each sample as one of a cell of its own."""
    return [(ELU._replace(activation=f"f{i}"), sample) for i, sample in enumerate(samples)]


@pytest.mark.parametrize(
    ("samples", "values", "lost"),
    [
        ([{0: 1.0, 1: 3.0}, {0: 2.0, 1: 5.0}], [1.5, 4.0], ""),
        ([{0: 1.0, 1: 3.0}, {0: 2.0}], [1.5], "1 of 2 seeds"),
        ([{0: 1.0, 1: 3.0}, {}], [1.0, 3.0], "1 of 2 contrasts"),
        ([{0: 1.0}, {1: 1.0}, {1: 3.0}], [2.0], "1 of 3 contrasts and 1 of 2 seeds"),
        ([dict.fromkeys(range(4), 1.0)] * 9 + [{0: 2.0}], [1.0] * 4, "1 of 10 contrasts"),
        ([{0: 1.0, 1: 2.0}] * 9 + [{0: 1.0, 1: 2.0, 2: 9.0}], [1.0, 2.0], "1 of 3 seeds"),
    ],
)
def test_pooling_leaves_out_the_fewest_for_no_gaps(samples, values, lost):
    found, told = pool(apart(samples))
    assert list(found.mean(axis=0)) == values
    assert told.startswith(lost) if lost else told == ""


@pytest.mark.parametrize("samples", [[{}, {}], []])
def test_without_values_there_is_no_effect(samples):
    effect = mean_effect(apart(samples))
    assert (effect.over_seeds.n, effect.over_cells.n, effect.lost) == (0, 0, "")


def test_cells_have_equal_weights_and_are_a_sample_of_their_own():
    tanh = ELU._replace(activation="tanh")
    samples = [(ELU, {0: 1.0, 1: 2.0}), (ELU, {0: 3.0, 1: 4.0}), (tanh, {0: 6.0, 1: 9.0})]
    effect = mean_effect(samples)
    by_seed, by_cell = [4.0, 6.0], [2.5, 7.5]
    for found, values in ((effect.over_seeds, by_seed), (effect.over_cells, by_cell)):
        interval = stats.ttest_1samp(values, 0).confidence_interval(0.95)
        assert (found.n, found.mean) == (2, 5.0)
        assert (found.low, found.high) == pytest.approx(tuple(interval))


@pytest.mark.parametrize("missing", [0.05, 0.2])
def test_missing_runs_do_not_make_pooled_gains_of_nothing(missing):
    """Filled with the means of their samples they did, in 7 and 12 % of these draws."""
    generator = np.random.default_rng(0)
    hits, draws = 0, 800
    for _ in range(draws):
        gains, here = generator.normal(size=(6, 10)), generator.random((6, 10)) >= missing
        samples = [
            {s: row[s] for s in np.flatnonzero(mask)} for row, mask in zip(gains, here, strict=True)
        ]
        hits += paired_test(pool(apart(samples))[0].mean(axis=0))[1] <= 0.05
    assert 0.03 <= hits / draws <= 0.07
