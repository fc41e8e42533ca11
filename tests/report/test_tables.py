"""The tables of a report: their rows, columns and notes."""

import pytest

pl = pytest.importorskip("polars")
pytest.importorskip("scipy")

from qneurons.report import tables
from qneurons.report.results import Results
from qneurons.study.runs import Run

SETTINGS = ("base", "limit", "c0.02", "a1")
PROTOCOL = {"batch_size": 64, "learning_rate": 0.05}


def finals(frame, metric="test_accuracy"):
    return Results(frame).finals[metric]


@pytest.fixture
def frame(make_frame):
    return make_frame(
        settings=SETTINGS,
        seeds=6,
        epochs=3,
        gain={"a1": 0.005},
        noise=1e-7,
        spread=0,
        incomplete={("c0.02", 0): 1},
        diverged={("a1", 1): 2},
    )


def test_final_values_by_cell_and_setting(frame):
    table = tables.final_table(Results(frame))
    assert table.title == "Test accuracy (%) at epoch 3 (digits, mnist-mlp, no dropout)"
    assert table.columns == ("activation", "base", "limit", "c0.02", "a1")
    assert [row[0] for row in table.rows] == ["elu", "tanh"]
    assert table.rows[0][1] == "98.00 ± 0.00"
    assert table.rows[0][4] == "98.50 ± 0.00 (1 diverged)"
    assert "5 to 6 seeds" in table.note
    assert "parentheses" not in table.note


def test_contrasts_with_settings_that_learn_nothing_survive_no_correction(make_frame):
    def lost(size):
        return lambda cell, s: size if (cell[3], s) == ("tanh", "c0.02") else 0.01 * (s != "base")

    results = Results(make_frame(settings=SETTINGS, seeds=8, gain=lost(-0.8), loss_gain=lost(-3)))
    told = tables.survival_text(results, "test_accuracy")
    # 5 contrasts a cell: 3 over base and 2 over the limit; c0.02 of tanh is in two of them
    assert told.startswith("Of 8 contrasts in test accuracy (2 with settings that learn nothing")
    assert "(sign-flip test, 5 contrasts each)" in told
    assert told.endswith(
        "(paired t test; no p of the sign-flip test is small enough for so many contrasts)."
    )
    same = Results(make_frame(settings=SETTINGS, seeds=8, gain=0.01))
    assert tables.survival_text(same, "test_accuracy").startswith("Of 10 contrasts in test accur")


def test_losses_are_no_percentages(frame):
    table = tables.final_table(Results(frame), "train_loss")
    assert table.title.startswith("Training loss at epoch 3")
    assert table.rows[0][1].startswith("0.0")


def test_what_cells_differ_in_has_a_column(make_frame, paper_cells):
    table = tables.final_table(Results(make_frame(cells=paper_cells, epochs=1)))
    assert table.title == "Test accuracy (%) at epoch 1"
    assert table.columns[:4] == ("dataset", "network", "dropout", "activation")
    assert len(table.rows) == 24
    assert {row[2] for row in table.rows} == {"dropout", "no dropout"}


def test_a_setting_that_a_cell_lacks_is_a_dash(make_frame):
    frame = make_frame(settings=SETTINGS)
    frame = frame.filter((pl.col("activation") == "elu") | (pl.col("setting") != "a1"))
    elu, tanh = tables.final_table(Results(frame)).rows
    assert elu[-1] != tanh[-1] == "–"


def test_best_values_with_their_epoch(frame):
    peak = frame.with_columns(pl.col("test_accuracy") + 0.1 * (pl.col("epoch") == 2))
    table = tables.best_table(Results(peak))
    assert all(text.endswith("@2") for row in table.rows for text in row[1:])
    assert "test set" in table.note


def test_contrasts(frame):
    table = tables.contrast_table(Results(frame), "test_accuracy")
    assert table.title.startswith("Paired differences in test accuracy (percentage points)")
    rows = {row[:2]: dict(zip(table.columns, row, strict=True)) for row in table.rows}
    row = rows["elu", "c0.02 − base"]
    assert (row["pairs"], row["test"], row["outcome"]) == ("5", "paired t", "unclear")
    assert rows["elu", "a1 − base"]["mean"] == "+0.500"
    assert rows["elu", "a1 − base"]["diverged"] == "1 and 0"
    assert len(rows) == 2 * 5


def test_decompositions(frame):
    table = tables.decomposition_table(Results(frame))
    assert table.columns == (
        "activation", "setting", "seeds", "q − base", "limit − base", "q − limit",
    )  # fmt: skip
    assert table.rows[1][:3] == ("elu", "a1", "5")
    assert table.rows[1][3].startswith("+0.500 [+0.")


def test_accounting_of_the_frame_alone(frame):
    table = tables.accounting_table(tables.count_runs(Results(frame).states), finals(frame))
    assert table.columns[-6:] == (
        "epoch", "runs", "compared", "incomplete", "diverged", "not begun",
    )  # fmt: skip
    assert [row[1:] for row in table.rows] == [("3", "24", "22", "1", "1", "0")] * 2


def test_accounting_against_the_study(frame):
    runs = [
        Run("digits", "mnist-mlp", dropout, "elu", setting, seed, **PROTOCOL)
        for dropout in (False, True)
        for setting in SETTINGS
        for seed in range(8)
    ]
    frame = frame.filter(pl.col("activation") == "elu")
    table = tables.accounting_table(tables.count_runs(Results(frame).states, runs), finals(frame))
    assert table.columns[0] == "dropout"
    assert [row[1:] for row in table.rows] == [
        ("3", "32", "22", "1", "1", "8"),
        ("–", "32", "0", "0", "0", "32"),
    ]


def test_the_epoch_of_comparison_in_words(make_frame, digits_cells):
    early = {(digits_cells[0], setting, seed): 2 for setting in SETTINGS for seed in range(3)}
    apart = finals(make_frame(settings=SETTINGS, seeds=3, incomplete=early))
    assert tables.compared_at(apart) == "at epoch 2 to epoch 5"
    assert tables.compared_at(apart, 5) == "at epoch 2 to epoch 5 of 5"
    same = [row for row in apart if row.epoch == 5]
    assert [tables.compared_at(same, epochs) for epochs in (None, 5, 9)] == [
        *("at epoch 5", "at epoch 5", "at epoch 5 of 9")
    ]
    long = finals(make_frame(settings=SETTINGS, seeds=3, epochs=20))
    assert tables.compared_at(long, 100) == "at epochs 19–20 of 100"


@pytest.fixture
def lost(make_frame):
    """c0.02 and the limit of tanh learn nothing; the last of 20 epochs is 1 point better."""

    def gain(cell, setting):
        return -0.88 * (cell[3] == "tanh" and setting in ("limit", "c0.02"))

    options = {"settings": SETTINGS, "seeds": 4, "epochs": 20, "noise": 0, "spread": 0}
    frame = make_frame(gain=gain, loss_gain=lambda *case: 2.6 * gain(*case), **options)
    return frame.with_columns(pl.col("test_accuracy") + 0.01 * (pl.col("epoch") == 20))


def test_settings_that_learn_nothing_have_words_for_numbers(lost):
    results = Results(lost)
    for table in (tables.final_table(results), tables.best_table(results)):
        elu, tanh = table.rows
        assert not any("learns" in text for text in elu)
        assert tanh[2:4] == ("learns nothing", "learns nothing")
        assert "learns" not in tanh[1] + tanh[4]
    rows = tables.contrast_table(results, "test_accuracy").rows
    shown = {row[1]: row[3:6] for row in rows if row[0] == "tanh"}
    idle = ("learns nothing", "–", "–")
    assert [contrast for contrast, numbers in shown.items() if numbers == idle] == [
        *("limit − base", "c0.02 − base", "c0.02 − limit", "a1 − limit")
    ]
    small, annealed = (row for row in tables.decomposition_table(results).rows if row[0] == "tanh")
    assert small[3:] == ("learns nothing",) * 3
    assert annealed[3].startswith("+0.000")
    assert annealed[4:] == ("learns nothing",) * 2


def test_the_noise_alone(make_frame):
    def world(setting):
        lost = {"loss_gain": {setting: -2.3}}
        gain = {"limit": 0.001, "m1": 0.003, "a1": 0.002}
        settings = ("base", "limit", "m1", "a1")
        return Results(make_frame(settings=settings, gain=gain, noise=1e-6, **lost))

    elu, tanh = tables.mean_split_table(world("none")).rows
    assert (elu[0], tanh[0]) == ("elu", "tanh")
    assert [text[:6] for text in elu[1:]] == ["a1", "-0.100", "+0.200", "+0.300"]
    assert all(text.endswith("]*") for text in elu[2:])
    note = tables.mean_split_table(world("none")).note
    assert "parentheses" not in note
    assert (
        "6 of 6 contrasts have a star, and 6 would have one after a correction over all 6" in note
    )
    frame = make_frame(settings=("limit", "base", "m1", "a1"), epochs=20, noise=1e-7, spread=0)
    late = (pl.col("epoch") == 20) & (pl.col("setting") == "a1")
    split = tables.mean_split_table(
        Results(frame.with_columns(pl.col("test_accuracy") + 0.01 * late))
    )
    assert split.rows[0][2] == "+0.500 [+0.500, +0.500]* (+1.000*)"  # of two epochs and of one
    assert "In parentheses the last epoch" in split.note
    idle, *_ = tables.mean_split_table(world("limit")).rows
    assert idle[3] == "learns nothing"
    assert not any("learns" in text for text in (idle[2], idle[4]))


def test_the_last_epoch_is_beside_the_mean(lost):
    results = Results(lost)
    table = tables.final_table(results)
    assert "at epochs 19–20" in table.title
    assert table.rows[0][1].startswith("98.")
    assert table.rows[0][1].endswith("± 0.00 (99.00)")
    assert "in parentheses the last epoch" in table.note
    late = (pl.col("epoch") == 20) & (pl.col("setting") == "a1")
    results = Results(lost.with_columns(pl.col("test_accuracy") + 0.002 * late))
    table = tables.contrast_table(results, "test_accuracy")
    rows = {row[:2]: dict(zip(table.columns, row, strict=True)) for row in table.rows}
    row = rows["elu", "a1 − base"]
    assert (row["mean"], row["last epoch"]) == ("+0.100", "+0.200")


def test_parts_by_activation_and_last_on_average(make_frame):
    frame = make_frame(settings=SETTINGS, gain={"limit": 0.002, "c0.02": 0.002, "a1": 0.002})
    elu, tanh, average = tables.attribution_table(Results(frame)).rows
    assert (elu[:2], tanh[:2]) == (("elu without dropout", "1"), ("tanh without dropout", "1"))
    assert (elu[-3], elu[-1]) == ("1 and 0", "the limit")
    assert (average[0], average[1], average[-3], average[-1]) == (
        "all of these",
        "2",
        "2 and 0",
        "–",
    )
    assert average[3].startswith("+0.2")
    [alone] = tables.attribution_table(Results(frame.filter(activation="elu"))).rows
    assert alone == elu
