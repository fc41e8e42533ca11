"""The tables of a report: their rows, columns and notes."""

import pytest

pl = pytest.importorskip("polars")
pytest.importorskip("scipy")

from qneurons.report import tables  # noqa: E402
from qneurons.report.claims import decompositions, judge  # noqa: E402
from qneurons.report.statistics import contrasts, finals  # noqa: E402
from qneurons.study.spec import Run  # noqa: E402

SETTINGS = ("base", "limit", "c0.02", "a1")
PROTOCOL = {"batch_size": 64, "learning_rate": 0.05}


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
    table = tables.accuracy_table(finals(frame))
    assert table.title == "Test accuracy (%) at the end (digits, mnist-mlp, no dropout)"
    assert table.columns == ("activation", "base", "limit", "c0.02", "a1")
    assert [row[0] for row in table.rows] == ["elu", "tanh"]
    assert table.rows[0][1] == "98.00 ± 0.00"
    assert table.rows[0][4] == "98.50 ± 0.00 (1 diverged)"
    assert "over 5 to 6 seeds, at epoch 3" in table.note


def test_losses_are_no_percentages(frame):
    table = tables.accuracy_table(finals(frame, metric="train_loss"))
    assert table.title.startswith("Training loss at the end")
    assert table.rows[0][1].startswith("0.0")


def test_what_cells_differ_in_has_a_column(make_frame, paper_cells):
    table = tables.accuracy_table(finals(make_frame(cells=paper_cells, epochs=1)))
    assert table.title == "Test accuracy (%) at the end"
    assert table.columns[:4] == ("dataset", "network", "dropout", "activation")
    assert len(table.rows) == 24
    assert {row[2] for row in table.rows} == {"dropout", "no dropout"}


def test_a_setting_that_a_cell_lacks_is_a_dash(make_frame):
    frame = make_frame(settings=SETTINGS)
    frame = frame.filter((pl.col("activation") == "elu") | (pl.col("setting") != "a1"))
    elu, tanh = tables.accuracy_table(finals(frame)).rows
    assert elu[-1] != tanh[-1] == "–"


def test_best_values_with_their_epoch(frame):
    peak = frame.with_columns(pl.col("test_accuracy") + 0.1 * (pl.col("epoch") == 2))
    table = tables.best_table(finals(peak))
    assert all(text.endswith("@2") for row in table.rows for text in row[1:])
    assert "chosen on the test set" in table.note


def test_contrasts(frame):
    table = tables.contrast_table(contrasts(finals(frame)))
    assert table.title.startswith("Paired differences in test accuracy (percentage points)")
    rows = {row[:2]: dict(zip(table.columns, row, strict=True)) for row in table.rows}
    row = rows["elu", "c0.02 − base"]
    assert (row["pairs"], row["test"], row["outcome"]) == ("5", "paired t", "unclear")
    assert rows["elu", "a1 − base"]["mean"] == "+0.500"
    assert rows["elu", "a1 − base"]["diverged"] == "1 and 0"
    assert len(rows) == 2 * 5


def test_verdicts(frame):
    verdicts = judge(frame)
    table = tables.verdict_table(verdicts)
    assert len(table.rows) == 9
    assert table.rows[0][1] == "not decided by these data"
    assert table.rows[-1][0] == verdicts[-1].claim.statement
    assert "cases claimed" not in " ".join(row[3] for row in table.rows)  # the reasons have them
    assert "limit over base, share of base's error" in table.rows[-1][3]


def test_decompositions(frame):
    table = tables.decomposition_table(decompositions(frame))
    assert table.columns == (
        "activation", "setting", "seeds", "q − base", "limit − base", "q − limit",
    )  # fmt: skip
    assert table.rows[1][:3] == ("elu", "a1", "5")
    assert table.rows[1][3].startswith("+0.500 [+0.")


def test_accounting_of_the_frame_alone(frame):
    table = tables.accounting_table(frame)
    assert table.columns[-6:] == (
        "epoch", "expected", "finished", "incomplete", "diverged", "not begun",
    )  # fmt: skip
    assert [row[1:] for row in table.rows] == [("3", "24", "22", "1", "1", "0")] * 2
    assert "48 expected, 44 finished, 2 incomplete, 2 diverged, 0 not begun" in table.note


def test_accounting_against_the_study(frame):
    runs = [
        Run("digits", "mnist-mlp", dropout, "elu", setting, seed, **PROTOCOL)
        for dropout in (False, True)
        for setting in SETTINGS
        for seed in range(8)
    ]
    frame = frame.filter(pl.col("activation") == "elu")
    table = tables.accounting_table(frame, runs=runs, epochs=5)
    assert table.columns[0] == "dropout"
    assert [row[1:] for row in table.rows] == [
        ("5", "32", "0", "23", "1", "8"),
        ("5", "32", "0", "0", "0", "32"),
    ]


@pytest.mark.parametrize("render", [tables.to_rich, tables.to_markdown, tables.to_html])
def test_tables_of_nothing_can_be_shown(make_frame, render):
    empty = make_frame().clear()
    for table in (
        tables.accuracy_table(finals(empty)),
        tables.best_table([]),
        tables.contrast_table([]),
        tables.decomposition_table([]),
        tables.verdict_table(judge(empty)),
        tables.accounting_table(empty),
    ):
        assert render(table)
        assert all(len(row) == len(table.columns) for row in table.rows)
