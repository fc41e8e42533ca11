"""Which runs are compared, at which epoch, and the numbers that come of it."""

import math

import numpy as np
import pytest

pl = pytest.importorskip("polars")
stats = pytest.importorskip("scipy.stats")

from qneurons.report.comparisons import (
    METRICS,
    PRIMARY,
    Cell,
    Contrast,
    contrasts,
    declared_pairs,
    run_states,
    setting_order,
    survivors,
)
from qneurons.report.inference import Estimate, holm, sign_flip
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


@pytest.mark.parametrize("metric", ["test_accuracy", "train_loss"])
def test_gains_by_seed_are_positive_where_better(make_frame, metric):
    frame = make_frame(cells=[ELU], gain=0.01, loss_gain=0.01)
    row = of(contrasts(finals(frame, metric)), "a1", reference="base")
    differences = column(frame, "a1", metric, 5) - column(frame, "base", metric, 5)
    sign = 1 if metric == "test_accuracy" else -1
    assert row.gains_by_seed == dict(enumerate(sign * differences))
    assert min(row.gains_by_seed.values()) > 0


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
