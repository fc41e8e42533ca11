"""Which runs are compared, at which epoch, and the numbers that come of it."""

import math

import numpy as np
import pytest

pl = pytest.importorskip("polars")
stats = pytest.importorskip("scipy.stats")

from qneurons.report.contrasts import contrasts
from qneurons.report.final_values import METRICS, PRIMARY, Cell, run_states, setting_order
from qneurons.report.results import Results
from qneurons.study.errors import StudyError

ELU = ("digits", "mnist-mlp", False, "elu")


def finals(frame, metric="test_accuracy"):
    return Results(frame).finals[metric]


def curves(frame):
    return Results(frame).curves["test_accuracy"]


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


def test_a_cell_in_words():
    cell = Cell("digits", "mnist-mlp", True, "elu", "learning rate 0.1")
    assert str(cell) == "mnist-mlp on digits, elu, dropout, learning rate 0.1"
    assert str(Cell(*ELU)) == "mnist-mlp on digits, elu, no dropout"
    assert (Cell(*ELU).where, cell.where) == (
        "mnist-mlp on digits",
        "mnist-mlp on digits, learning rate 0.1",
    )


def test_the_order_of_settings():
    settings = ["a9", "n0.001", "m5", "c0.1", "limit", "a1", "c0.02", "base", "a2@0.25"]
    assert sorted(settings, key=setting_order) == [
        "base", "limit", "m5", "c0.02", "c0.1", "a1", "a2@0.25", "a9", "n0.001",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("epochs", "first"), [(1, 1), (9, 9), (19, 19), (20, 19), (29, 28), (100, 91)]
)
@pytest.mark.parametrize("metric", PRIMARY)
def test_final_values_are_means_over_the_last_tenth_of_the_epochs(
    make_frame, epochs, first, metric
):
    frame = make_frame(cells=[ELU], settings=("base", "a1"), seeds=2, epochs=epochs)
    row = of(finals(frame, metric), "a1")
    assert (row.first, row.epoch) == (first, epochs)
    last = [column(frame, "a1", metric, epoch) for epoch in range(first, epochs + 1)]
    assert [*row.values.values()] == pytest.approx(np.mean(last, axis=0))
    assert row.epochs == (f"epoch {epochs}" if first == epochs else f"epochs {first}–{epochs}")
    row = of(Results(frame).last_epoch.finals[metric], "a1")
    assert (row.first, row.epoch) == (epochs, epochs)
    assert [*row.values.values()] == list(last[-1])


def test_the_last_tenth_is_that_of_the_epochs_that_half_of_the_runs_reached(make_frame):
    early = {("base", seed): 30 for seed in range(3)} | {("a1", 0): 30}
    frame = make_frame(cells=[ELU], settings=("base", "a1"), seeds=3, epochs=50, incomplete=early)
    assert {(row.first, row.epoch) for row in finals(frame)} == {(28, 30)}


@pytest.mark.parametrize("metric", PRIMARY)
def test_finals_of_few_epochs_are_the_values_of_the_last(make_frame, metric):
    frame = make_frame(cells=[ELU], epochs=4)
    rows = finals(frame, metric=metric)
    assert [row.setting for row in rows] == ["base", "limit", "c0.02", "c0.1", "a1", "a5", "a9"]
    row = of(rows, "a1")
    values = column(frame, "a1", metric, 4)
    assert row.epoch == 4
    assert row.cell == Cell(*ELU)
    assert list(row.values.values()) == list(values)
    interval = stats.ttest_1samp(values, 0).confidence_interval(0.95)
    assert (row.estimate.low, row.estimate.high) == pytest.approx(tuple(interval))


def test_an_incomplete_run_is_left_out_and_counted(make_frame):
    frame = make_frame(cells=[ELU], epochs=6, incomplete={("c0.1", 3): 2, ("base", 0): 5})
    rows = finals(frame)
    assert set(range(10)) - of(rows, "c0.1").values.keys() == {3}
    assert run_states(frame)["state"].value_counts(name="n").sort("n").rows() == [
        ("incomplete", 2),
        ("compared", 68),
    ]
    assert of(rows, "c0.1").estimate.n == 9
    assert {row.epoch for row in rows} == {6}


def test_the_epoch_compared_is_what_half_of_a_cells_runs_reached(make_frame):
    early = {(s, seed): 3 for s in ("base", "limit", "c0.02", "c0.1") for seed in range(10)}
    frame = make_frame(epochs=8, incomplete={(ELU, *key): 3 for key in early})
    states = run_states(frame)
    targets = dict(states.select("activation", "target").unique().iter_rows())
    assert targets == {"elu": 3, "tanh": 8}
    rows = [row for row in finals(frame) if row.cell == Cell(*ELU)]
    assert all(row.estimate.n == 10 and row.epoch == 3 for row in rows)
    # one run less behind, and half have reached the end
    late = {("c0.1", seed): 3 for seed in range(10)}
    half = make_frame(cells=[ELU], settings=("base", "c0.1"), epochs=8, incomplete=late)
    assert run_states(half)["target"].unique().to_list() == [8]


@pytest.mark.parametrize("missing", [math.nan, None])
def test_diverged_runs_are_counted_not_averaged(make_frame, missing):
    frame = make_frame(cells=[ELU], diverged={("c0.1", 2): 3, ("c0.1", 5): 1})
    frame = frame.with_columns(
        pl.when(pl.col("diverged")).then(pl.lit(missing)).otherwise("test_accuracy")
        .alias("test_accuracy")
    )  # fmt: skip
    row = of(finals(frame), "c0.1")
    assert row.diverged == (2, 5)
    assert row.estimate.n == 8
    assert not math.isnan(row.estimate.mean)
    against = of(contrasts(finals(frame)), "c0.1", reference="base")
    assert (against.diverged, against.seeds) == ((2, 0), 10)


def test_a_cell_of_which_all_runs_diverged(make_frame):
    settings = ("base", "c0.1")
    diverged = {(setting, seed): 2 for setting in settings for seed in range(3)}
    frame = make_frame(cells=[ELU], settings=settings, seeds=3, diverged=diverged)
    rows = finals(frame)
    assert all(row.estimate.n == 0 and row.diverged == (0, 1, 2) for row in rows)
    [row] = contrasts(rows)
    assert (row.test, row.p, row.outcome) == ("none", 1.0, "unclear")


def test_a_value_that_was_not_recorded_is_left_out(make_frame):
    frame = make_frame(cells=[ELU]).with_columns(
        pl.when((pl.col("seed") == 4) & (pl.col("setting") == "a1"))
        .then(None).otherwise("test_accuracy").alias("test_accuracy")
    )  # fmt: skip
    row = of(finals(frame), "a1")
    assert set(range(10)) - row.values.keys() == {4}


def test_best_is_the_peak_of_the_mean_curve(make_frame):
    frame = make_frame(cells=[ELU], epochs=5).with_columns(
        pl.col("test_accuracy") + 0.2 * (pl.col("epoch") == 3),
        pl.col("train_loss") - 3.0 * (pl.col("epoch") == 2),
    )
    best = of(finals(frame), "a5").best
    values = column(frame, "a5", "test_accuracy", 3)
    assert best.epoch == 3
    assert best.estimate.mean == pytest.approx(values.mean())
    assert best.estimate.sd == pytest.approx(values.std(ddof=1))
    assert best.single == values.max()
    lowest = of(finals(frame, metric="train_loss"), "a5").best
    assert lowest.epoch == 2
    assert lowest.single == column(frame, "a5", "train_loss", 2).min()


def test_curves_of_gains_are_paired_by_seed_and_medians_ignore_a_spike(make_frame):
    cell = {"cells": [ELU], "settings": ("base", "a1"), "seeds": 5, "epochs": 3}
    # Seeds differ by whole points; the gain is the same in all of them.
    seed = 0.01 * pl.col("seed") + 0.001 * (pl.col("setting") == "a1")
    frame = make_frame(**cell).with_columns(
        test_accuracy=0.5 + seed,
        train_loss=pl.when(pl.col("seed") == 4).then(99.0).otherwise(0.01 * pl.col("seed")),
    )
    found = Results(frame)
    gains = found.gain_curves
    assert gains["setting"].unique().to_list() == ["a1"]
    assert gains["epoch"].to_list() == [1, 2, 3]
    for name in ("mean", "low", "high"):
        assert gains[name].to_numpy() == pytest.approx([0.001] * 3)
    losses = found.curves["train_loss"]
    for name, value in (("lower", 0.01), ("median", 0.02), ("upper", 0.03)):
        assert losses[name].to_numpy() == pytest.approx([value] * 6)
    assert Results(frame.filter(setting="a1")).gain_curves.is_empty()


def test_curves_are_over_the_same_seeds_at_every_epoch(make_frame):
    frame = make_frame(cells=[ELU], epochs=4, incomplete={("a1", 0): 2}, diverged={("a1", 1): 3})
    means = curves(frame).filter(pl.col("setting") == "a1")
    assert means["epoch"].to_list() == [1, 2, 3, 4]
    assert means["n"].unique().to_list() == [8]
    values = column(frame, "a1", "test_accuracy", 2)[2:]
    low, high = stats.ttest_1samp(values, 0).confidence_interval(0.95)
    row = means.row(1, named=True)
    assert (row["mean"], row["low"], row["high"]) == pytest.approx((values.mean(), low, high))


def test_a_single_seed_has_means_without_intervals(make_frame):
    frame = make_frame(cells=[ELU], seeds=1)
    rows = finals(frame)
    assert all(not math.isnan(r.estimate.mean) and math.isnan(r.estimate.low) for r in rows)
    assert all(math.isnan(row.best.estimate.low) for row in rows)
    assert all((row.p, row.p_holm, row.outcome) == (1, 1, "unclear") for row in contrasts(rows))
    assert curves(frame)["low"].is_nan().fill_null(True).all()


def test_runs_of_two_protocols_are_never_compared(make_frame):
    """Base at one learning rate and c0.1 at another, and other seeds at another rate."""
    frame = make_frame(cells=[ELU], settings=("base", "c0.1"), gain=0.3)
    slow = pl.lit("learning rate 0.0001").alias("protocol")
    apart = pl.concat(
        [
            frame.filter(setting="base").with_columns(slow),
            frame.filter(setting="c0.1"),
        ]
    )
    assert contrasts(finals(apart)) == []
    by_seed = pl.when(pl.col("seed") < 5).then(slow).otherwise("protocol").alias("protocol")
    ends = finals(frame.with_columns(by_seed))
    assert sorted((row.cell.protocol, row.setting, len(row.values)) for row in ends) == [
        ("", "base", 5),
        ("", "c0.1", 5),
        ("learning rate 0.0001", "base", 5),
        ("learning rate 0.0001", "c0.1", 5),
    ]
    assert str(ends[-1].cell).endswith(", learning rate 0.0001")


def test_an_epoch_that_is_there_twice_is_an_error(make_frame):
    frame = make_frame(cells=[ELU], settings=("base", "c0.1"))
    with pytest.raises(StudyError, match=r"elu.*base, seed 0: epoch 1 "):
        finals(pl.concat([frame, frame]))


def test_the_loss_without_noise_is_that_of_the_last_epoch_or_another_stands_in(make_frame):
    frame = make_frame(cells=[ELU], epochs=20)
    found = of(finals(frame, "train_loss_limit"), "a1").values
    assert [*found.values()] == list(column(frame, "a1", "train_loss_limit", 20))
    lacking = pl.when((pl.col("seed") != 3) | (pl.col("setting") != "a1"))  # one run is enough
    frame = frame.with_columns(lacking.then("train_loss_limit"))
    for setting in ("base", "a1"):
        found = of(finals(frame, "train_loss_limit"), setting).values
        assert [*found.values()] == list(column(frame, setting, "train_loss", 20))


NEWER = [pl.col("seed") > 6, pl.col("setting") == "a1", pl.lit(True)]  # only some seeds, or all


@pytest.mark.parametrize("newer", NEWER, ids=str)
def test_training_losses_are_of_epochs_that_all_runs_have(make_frame, thin_out, newer):
    frame = make_frame(cells=[ELU], settings=("base", "a1"), epochs=37)  # the last tenth: 35 to 37
    thin = thin_out(frame, newer)
    for metric, at in (("train_loss", 35), ("train_loss_limit", 35)):
        for setting in ("base", "a1"):
            found = of(finals(thin, metric), setting)
            assert [*found.values.values()] == list(column(frame, setting, "train_loss", at))
            assert found.epoch == at
    found = Results(thin)
    means = found.curves["train_loss"]
    assert means["epoch"].unique().to_list() == [1, *range(5, 36, 5)]
    assert set(means["n"]) == {10}
    assert found.finals["test_accuracy"] == finals(frame)
    assert found.epoch(Cell(*ELU)) == 37


@pytest.mark.parametrize("newer", NEWER, ids=str)
def test_a_training_loss_before_the_last_tenth_stands_in(make_frame, thin_out, newer):
    frame = make_frame(cells=[ELU], settings=("base", "a1"), epochs=13)
    results = Results(thin_out(frame, newer))
    for metric in ("train_loss", "train_loss_limit"):
        found = of(results.finals[metric], "a1")
        assert [*found.values.values()] == list(column(frame, "a1", metric, 10))
        assert found.epochs == "epoch 10"
    assert results.noiseless == {Cell(*ELU)}


@pytest.mark.parametrize("newer", NEWER, ids=str)
def test_final_values_of_finished_runs_need_no_other_epochs(make_frame, thin_out, newer):
    frame = make_frame(cells=[ELU], settings=("base", "a1"), seeds=8, epochs=100)
    thin = thin_out(frame, newer)
    assert thin["train_loss"].null_count()
    for metric in METRICS:
        for ours, theirs in zip(finals(thin, metric), finals(frame, metric), strict=True):
            assert (ours.values, ours.epochs) == (theirs.values, theirs.epochs)


def test_accuracies_are_percentages_and_higher_is_better():
    for name, metric in METRICS.items():
        assert metric.name == name
        assert metric.higher == metric.percent == ("accuracy" in name)


def test_a_run_of_which_divergence_is_unknown_did_not_diverge(make_frame):
    unknown = pl.lit(None, dtype=pl.Boolean).alias("diverged")
    states = run_states(make_frame(cells=[ELU]).with_columns(unknown))
    assert states["state"].unique().to_list() == ["compared"]


def test_an_empty_frame_has_no_numbers(make_frame):
    empty = make_frame().clear()
    assert finals(empty) == []
    assert contrasts([]) == []
    assert curves(empty).is_empty()


def test_a_whole_paper_is_summarised_in_seconds(make_frame, paper_cells):
    frame = make_frame(cells=paper_cells, epochs=100, every=10)
    assert len(contrasts(finals(frame))) == 24 * 11
    assert np.isfinite([row.estimate.mean for row in finals(frame)]).all()
