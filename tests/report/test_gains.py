"""Gains over base as numbers and as a table."""

import pytest

pl = pytest.importorskip("polars")
pytest.importorskip("scipy")

from qneurons.report.comparisons import Cell
from qneurons.report.gains import gains_over_base, gains_table, learns_nothing
from qneurons.report.results import Results

ELU = Cell("digits", "mnist-mlp", False, "elu")
TANH = ELU._replace(activation="tanh")
SETTINGS = ("base", "limit", "c0.02", "a1")


def test_gains_are_the_contrasts_with_base(make_frame):
    results = Results(make_frame(cells=[ELU], settings=SETTINGS, gain=0.005))
    gains = gains_over_base(results)
    assert set(gains) == {(ELU, setting) for setting in SETTINGS[1:]}
    assert gains[ELU, "a1"] is results.contrast(ELU, "a1", "base")


def test_a_row_for_each_cell_and_a_column_for_each_setting(make_frame):
    gain = {"a1": 0.005, "c0.02": -0.004}
    frame = make_frame(settings=SETTINGS, gain=gain, noise=1e-6, spread=0, epochs=3)
    table = gains_table(Results(frame.filter((pl.col("setting") != "a1") | (pl.col("seed") < 9))))
    assert table.columns == ("activation", "base, %", "limit", "c0.02", "a1")
    assert "epoch 3" in table.title
    for row in table.rows:
        assert row[1:] == ("98.00", "+0.00", "-0.40*", "+0.50*") or row[2] == "-0.00"


def test_what_is_missing_is_a_dash(make_frame):
    dead = {(TANH, "base", seed): 1 for seed in range(10)}
    frame = make_frame(settings=SETTINGS, diverged={(cell[:4], *rest): 1 for cell, *rest in dead})
    frame = frame.filter((pl.col("activation") != "elu") | (pl.col("setting") != "a1"))
    elu, tanh = gains_table(Results(frame)).rows
    assert (elu[0], elu[-1]) == ("elu", "–")
    assert tanh == ("tanh", "–", "–", "–", "–")


def test_a_cell_without_base_has_no_row(make_frame):
    frame = make_frame(settings=SETTINGS)
    frame = frame.filter((pl.col("activation") != "elu") | (pl.col("setting") != "base"))
    table = gains_table(Results(frame))
    assert len(table.rows) == 1
    assert "tanh" in table.title


def test_a_setting_learns_nothing_if_none_of_its_runs_does(make_frame):
    frame = make_frame(settings=SETTINGS, seeds=4, loss_gain=lambda c, s: -2.3 * (s == "a1"))
    assert learns_nothing(Results(frame)) == {(ELU, "a1"), (TANH, "a1")}
    lucky = (pl.col("seed") == 0) & (pl.col("activation") == "elu")
    some = pl.when(lucky).then(0.1).otherwise("train_loss").alias("train_loss")
    assert learns_nothing(Results(frame.with_columns(some))) == {(TANH, "a1")}
