"""The statistics of a report, made once from the frame."""

import pytest

pl = pytest.importorskip("polars")
pytest.importorskip("scipy")

from qneurons.report.final_values import Cell
from qneurons.report.results import Results

ELU = Cell("digits", "mnist-mlp", False, "elu")


def test_everything_is_found_by_its_name(make_frame, digits_cells):
    results = Results(make_frame(settings=("a1", "base", "limit"), epochs=3))
    assert results.cells == sorted(Cell(*cell) for cell in digits_cells)
    assert results.settings(ELU) == ["base", "limit", "a1"]
    assert results.settings(ELU._replace(activation="sin")) == []
    assert results.epoch(ELU) == 3
    for metric in ("test_accuracy", "train_loss"):
        assert results.curves[metric]["epoch"].max() == 3
        for row in results.finals[metric]:
            assert results.final(row.cell, row.setting, metric) is row
        for row in results.contrasts[metric]:
            assert results.contrast(row.cell, row.setting, row.reference, metric) is row


def test_extra_contrasts_are_a_family_of_their_own(make_frame):
    results = Results(make_frame(cells=[ELU], gain={"a1": 0.01}, spread=0))
    [row] = results.extra_contrasts(ELU, [("a1", "c0.1")]).values()
    assert row.p_holm == row.p == 2**-9
    assert row.gain.mean == pytest.approx(0.01, abs=1e-3)


def test_runs_that_learn_nothing_are_counted_by_setting(make_frame):
    lost = ELU._replace(activation="tanh")
    frame = make_frame(
        cells=[ELU, lost],
        loss_gain=lambda cell, setting: -2.3 if (cell, setting) == (lost, "c0.1") else 0,
    )
    results = Results(frame)
    assert (results.untrained(ELU), results.untrained(lost)) == ({}, {"c0.1": 10})
    barely = Results(
        make_frame(cells=[ELU], loss=2.18, loss_noise=0, loss_gain=-0.01)
    )  # ln 10: 2.30
    assert barely.untrained(ELU) == dict.fromkeys(("c0.02", "c0.1", "a1", "a5", "a9"), 10)


def test_a_setting_learns_if_all_of_its_runs_do(make_frame):
    frame = make_frame(cells=[ELU], loss_gain={"c0.1": -2.3})
    lucky = (pl.col("seed") > 0) & (pl.col("setting") == "c0.1")
    some = pl.when(lucky).then(0.1).otherwise("train_loss").alias("train_loss")
    results = Results(frame.with_columns(some))
    assert results.untrained(ELU) == {"c0.1": 1}
    assert results.learns(ELU, "base", "a1")
    assert not results.learns(ELU, "base", "c0.1")


def test_a_run_learns_nothing_by_its_mean_over_the_last_tenth(make_frame):
    frame = make_frame(cells=[ELU], settings=("base", "a1"), epochs=20)
    spike = 2.3 * (pl.col("epoch") == 20) * (pl.col("setting") == "a1")
    results = Results(frame.with_columns(pl.col("train_loss") + spike))
    assert results.untrained(ELU) == {}
    assert results.last_epoch.untrained(ELU) == {"a1": 10}


def test_the_last_epoch_is_computed_only_if_it_differs(make_frame):
    few = Results(make_frame(cells=[ELU], epochs=19))
    assert few.last_epoch is few
    many = Results(make_frame(cells=[ELU], settings=("base", "a1"), epochs=20))
    assert many.last_epoch is many.last_epoch is not many


def test_cells_with_their_loss_without_noise_are_known(make_frame, digits_cells):
    frame = make_frame(epochs=10)
    assert Results(frame).noiseless == {Cell(*cell) for cell in digits_cells}
    tanh = pl.when(pl.col("activation") != "tanh").then("train_loss_limit")
    assert Results(frame.with_columns(tanh)).noiseless == {ELU}
    assert Results(make_frame(epochs=11)).noiseless == set()


def test_differences_are_by_seed(make_frame):
    results = Results(make_frame(cells=[ELU], incomplete={("a1", 2): 1}))
    found = results.differences(ELU, "a1", "base", "train_loss")
    assert found == results.contrast(ELU, "a1", "base", "train_loss").by_seed
    assert found.keys() == {*range(10)} - {2}
