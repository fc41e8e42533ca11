"""The graded lines: signs are counted, means have two intervals, and what is left out is told."""

import numpy as np
import pytest

pl = pytest.importorskip("polars")
stats = pytest.importorskip("scipy.stats")

from qneurons.report.claims import cases
from qneurons.report.claims.grading import grade
from qneurons.report.final_values import Cell
from qneurons.report.rendering import interval_text
from qneurons.report.results import Results

CELLS = [Cell("digits", "mnist-mlp", False, name) for name in ("elu", "tanh", "gelu")]
ELU, TANH, _ = CELLS
Q = ("c0.02", "a1")


@pytest.fixture
def make_results(make_frame):
    def make(**options):
        fixed = {"cells": CELLS, "settings": ("base", *Q), "seeds": 4}
        return Results(make_frame(**{**fixed, **options}))

    return make


def lines(results, *, settings=Q, sign=1, judge=cases.over_base):
    found = [judge(results, cell, settings) for cell in results.cells]
    return grade(results, found, sign)


def test_the_effect_of_a_case_is_the_mean_of_its_contrasts(make_results):
    def gain(cell, setting):
        return {"elu": 0.004, "tanh": -0.002, "gelu": 0.001}[cell[3]] * (setting == "a1")

    results = make_results(gain=gain, loss_gain=gain)
    accuracy, loss = lines(results)
    assert accuracy.startswith(
        "test accuracy is higher in 2 of 3 cases, and the mean difference is +0.0"
    )
    assert loss.startswith("training loss is lower in 2 of 3 cases, and the mean difference is -0.")
    for line, metric, factor, form, unit in (
        (accuracy, "test_accuracy", 100, "+.3f", "points"),
        (loss, "train_loss", 1000, "+.3g", "thousandths"),
    ):
        values = factor * np.array(
            [
                [
                    np.mean([results.differences(cell, s, "base", metric)[k] for s in Q])
                    for k in range(4)
                ]
                for cell in results.cells
            ]
        )
        assert f"the mean difference is {values.mean():{form}} {unit}" in line
        samples = (values.mean(axis=0), "over seeds"), (values.mean(axis=1), "over 3 cells")
        for sample, words in samples:
            interval = stats.ttest_1samp(sample, 0).confidence_interval(0.95)
            assert f"{interval_text(*interval, form)} {words}" in line


def test_a_claim_of_no_gain_has_the_other_sign(make_results):
    results = make_results(gain={"a1": 0.01}, loss_gain={"a1": -0.01})
    accuracy, loss = lines(results, settings=("a1",), sign=-1)
    assert accuracy.startswith("test accuracy is lower in 0 of 3 cases")
    assert loss.startswith("training loss is higher in 3 of 3 cases")


def test_settings_that_learn_nothing_have_a_sign_and_are_in_no_mean(make_results):
    def lost(size):
        return lambda cell, s: size if (cell[3], s) == ("tanh", "a1") else 0.002 * (s != "base")

    results = make_results(gain=lost(-0.88), loss_gain=lost(-2.3), noise=0)
    accuracy, loss, told = lines(results, settings=("a1",))
    assert accuracy.startswith(
        "test accuracy is higher in 2 of 3 cases, and the mean difference is +0.2"
    )
    assert "over 2 cells as a sample" in accuracy
    assert accuracy.endswith("with settings that learn nothing -29.200 points)")
    assert "with settings that learn nothing +7" in loss
    assert loss.endswith(" thousandths)")
    assert told.endswith("nothing: mnist-mlp on digits, tanh, no dropout (a1)")
    # another setting of the same case learns, and gives it its sign
    assert lines(results)[0].startswith("test accuracy is higher in 3 of 3 cases")


def test_the_mean_without_the_rule_is_told_only_where_its_sign_is_another(make_results):
    def lost(cell, setting):
        return -2.3 if (cell[3], setting) == ("tanh", "a1") else 0.0

    accuracy, *_ = lines(make_results(gain={"a1": 0.002}, loss_gain=lost), settings=("a1",))
    assert "over 2 cells" in accuracy
    assert "with settings" not in accuracy


def test_a_case_of_which_nothing_learns_has_no_mean(make_results):
    accuracy, *_ = lines(
        make_results(loss_gain=lambda cell, s: -2.3 * (s == "a1")), settings=("a1",)
    )
    assert accuracy in {f"test accuracy is higher in {n} of 3 cases" for n in range(4)}


def test_the_last_epoch_is_beside_the_mean(make_results):
    results = make_results(epochs=20, gain={"a1": 0.002}, cells=CELLS[:1], noise=1e-6)
    late = (pl.col("epoch") == 20) & (pl.col("setting") == "a1")
    frame = results.frame.with_columns(pl.col("test_accuracy") + 0.01 * late)
    accuracy, _ = lines(Results(frame), settings=("a1",))
    assert "mean difference is +0.700 points" in accuracy  # of two epochs
    assert "; at the last epoch +1.200" in accuracy


def test_missing_runs_are_told(make_results):
    results = make_results(incomplete={(ELU, "a1", 0): 1})
    assert "1 of 6 contrasts left out for missing runs" in lines(results)[0]


@pytest.mark.parametrize(
    ("epochs", "lacking", "told"),
    [
        (20, (), ""),
        (19, (), "all 3 of mnist-mlp on digits"),  # recorded every tenth epoch
        (20, ("tanh",), "tanh without dropout in mnist-mlp on digits"),
    ],
)
def test_a_loss_that_stands_in_is_named(make_results, epochs, lacking, told):
    results = make_results(settings=("base", "a9"), epochs=epochs)
    unknown = pl.when(~pl.col("activation").is_in(lacking)).then("train_loss_limit")
    results = Results(results.frame.with_columns(unknown))
    loss, accuracy, *rest = lines(results, settings=("base", "a9"), sign=-1, judge=cases.underfits)
    assert loss.startswith("training loss without noise is higher in ")
    assert "last epoch" not in loss
    assert accuracy.startswith("test accuracy is lower in ")
    assert [line.rpartition(" stands in: ")[2] for line in rest] == [told] * bool(told)
