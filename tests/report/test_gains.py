"""Gains over base as numbers and as a table."""

import pytest

pl = pytest.importorskip("polars")
pytest.importorskip("scipy")

from qneurons.report.final_values import Cell
from qneurons.report.gains import gains_over, gains_table
from qneurons.report.results import Results

ELU = Cell("digits", "mnist-mlp", False, "elu")
TANH = ELU._replace(activation="tanh")
SETTINGS = ("base", "limit", "c0.02", "a1")


def test_gains_are_the_contrasts_with_base(make_frame):
    results = Results(make_frame(cells=[ELU], settings=SETTINGS, gain=0.005))
    gains = gains_over(results, "base")
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


def test_over_the_limit_are_the_q_settings(make_frame):
    gain = {"limit": 0.003, "a1": 0.005}
    table = gains_table(
        Results(make_frame(settings=SETTINGS, gain=gain, noise=1e-6, spread=0)), "limit"
    )
    assert table.columns == ("activation", "limit, %", "c0.02", "a1")
    assert "limit, and gain over limit in points" in table.title
    assert "better or worse than limit" in table.note
    for row in table.rows:
        assert [text.rstrip("*") for text in row[1:]] == ["98.30", "-0.30", "+0.20"]


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
    assert [row[0] for row in table.rows] == ["tanh"]  # also a row alone has a name


def test_the_last_epoch_is_in_parentheses(make_frame):
    frame = make_frame(cells=[ELU], settings=("base", "a1"), epochs=20, noise=0, spread=0)
    late = (pl.col("epoch") == 20) & (pl.col("setting") == "a1")
    table = gains_table(Results(frame.with_columns(pl.col("test_accuracy") + 0.004 * late)))
    assert table.title.startswith("Test accuracy at epochs 19–20: base, and gain")
    assert table.rows[0][-1] == "+0.20* (+0.40*)"
    assert "in parentheses the last epoch" in table.note
    assert "(" not in gains_table(Results(make_frame(settings=SETTINGS))).rows[0][-1]


@pytest.mark.parametrize(("lucky", "text"), [(0, ""), (1, " (3 of 4 runs)")])
def test_a_setting_that_learns_nothing_has_no_gain(make_frame, lucky, text):
    frame = make_frame(settings=SETTINGS, seeds=4, loss_gain=lambda c, s: -2.3 * (s == "a1"))
    some = pl.when(pl.col("seed") < lucky).then(0.1).otherwise("train_loss").alias("train_loss")
    for row in gains_table(Results(frame.with_columns(some))).rows:
        assert row[-1] == f"learns nothing{text}"
        assert "learns" not in "".join(row[:-1])


def test_the_corrections_are_told(make_frame):
    note = gains_table(Results(make_frame(settings=SETTINGS, gain=0.01, noise=1e-5))).note
    told = (
        "Of 10 contrasts in test accuracy, 8 have p ≤ 0.05 after the correction within their cell"
    )
    assert (
        f"{told} (sign-flip test, 5 contrasts each), and 8 after one over all 10 at once (sign-flip"
        in note
    )


@pytest.mark.parametrize("few", [{"seeds": 1}, {"cells": [ELU], "settings": ("base", "a1")}])
def test_without_a_correction_nothing_is_told_of_it(make_frame, few):
    assert "contrasts in test accuracy" not in gains_table(Results(make_frame(**few))).note
