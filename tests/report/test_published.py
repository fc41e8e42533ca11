"""What is published follows from the published rows, and from whole cells alone."""

import re
from pathlib import Path

import pytest

from qneurons.study.spec import load_study

pl = pytest.importorskip("polars")
pytest.importorskip("scipy")

ROOT = Path(__file__).parents[2]


@pytest.fixture
def findings(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    from publishing import findings

    return findings


def words(text):
    return " ".join(text.split())


@pytest.fixture
def frame():
    return pl.read_parquet(ROOT / "results" / "paper" / "rows.parquet")


def test_the_conclusion_is_computed_from_the_rows(findings, frame):
    from qneurons.report import claims
    from qneurons.report.evidence import Evidence

    study = load_study("paper")
    last = frame.filter((pl.col("epoch") == study.epochs) & ~pl.col("diverged"))
    evidence = Evidence(frame)
    *verdicts, question = claims.judge(evidence)
    said = " ".join(findings.conclusion(evidence, verdicts, question, last, study))
    for page in ("README.md", "RESULTS.md"):
        assert said in words((ROOT / page).read_text()), page
    assert findings.coverage(evidence, study) in (ROOT / "RESULTS.md").read_text()


def ends(cell):
    """Of an interval as it is printed: "+0.1 [-0.2, +0.4]"."""
    _, low, high = map(float, re.findall(r"[-+][\d.]+", cell))
    return low, high


def test_what_decided_the_default_of_evaluation(findings, frame):
    """As QActivation's docstring and docs/training-and-evaluation.md say it."""
    accuracy, loss = (
        {
            (*group, mode, at): (float(text.strip("*")), "*" in text)
            for *group, mode, at, text in (
                (*row[:3], at, text)
                for row in findings.modes_table(frame, metric).rows
                for at, text in zip(findings.MODES_AT, row[3:], strict=True)
            )
            if text
        }
        for metric in ("test_accuracy", "test_loss")
    )
    large, larger, largest = findings.MODES_AT[2:]
    for (network, activation, mode, at), (gain, is_sure) in accuracy.items():
        higher, is_higher = loss[network, activation, mode, at]
        draw_wins = (network, activation) == ("mnist-cnn", "tanh") and at[1] < 100
        if draw_wins:
            assert gain < 0 < higher
            assert is_sure
            assert is_higher
        elif mode == "limit" and at[1] == 100:
            assert abs(gain) <= 0.03
            assert higher <= 0 or not is_higher
        elif mode == "limit" and at == large and network == "mnist-mlp":
            assert 0.1 <= gain <= 0.6
            assert is_sure
        elif mode == "mean" and at in (large, larger, largest):
            of_limit, _ = accuracy[network, activation, "limit", at]
            is_ahead = (activation, at) in (("relu", larger), ("relu", largest), ("tanh", largest))
            assert (gain > of_limit) == is_ahead
    assert accuracy["mnist-cnn", "tanh", "limit", large][0] == pytest.approx(-2.4, abs=0.05)
    assert accuracy["mnist-cnn", "tanh", "limit", larger][0] == pytest.approx(-46, abs=0.5)


def test_what_decided_the_default_of_lam(findings, frame):
    table = findings.lam_table(frame.filter(pl.col("epoch") == frame["epoch"].max()))
    accuracy = {contrast: ends(cell) for contrast, cell, _ in table.rows}
    loss = {contrast: ends(cell) for contrast, _, cell in table.rows}
    for low, high in (accuracy["c0.02 − limit"], loss["c0.02 − limit"]):
        assert low < 0 < high
    assert accuracy["c0.1 − c0.02"][0] > 0 > loss["c0.1 − c0.02"][1]
    assert accuracy["a5 − c0.1"][0] > 0


def test_what_learns_nothing(findings, frame):
    from qneurons.report.evidence import Evidence

    evidence = Evidence(frame)
    found = {cell: evidence.untrained(cell) for cell in evidence.cells}
    lost = {cell: counts for cell, counts in found.items() if counts}
    assert [(cell.network, cell.activation, cell.dropout) for cell in lost] == [
        ("mnist-cnn", "tanh", False)
    ]
    assert list(lost.values()) == [{"limit": 10, "c0.02": 10, "c0.1": 10}]
    rates, ordinary = (
        ROOT / "results" / "paper" / n for n in ("rates.parquet", "naive-tanh-cnn.csv")
    )
    table = findings.rates_table(pl.read_parquet(rates), pl.read_csv(ordinary))
    for rate, *accuracies in table.rows:
        for setting, accuracy in zip(table.columns[1:], accuracies, strict=True):
            fails = rate == "0.05" and setting in ("limit", "c0.02", "c0.1", "c0.3")
            assert (float(accuracy) < 12) == fails
            assert fails or float(accuracy) > 90


def test_cells_that_are_not_whole_are_cut_where_their_slowest_run_is(findings):
    study = load_study("paper-mnist-mlp")
    whole, short, missing = (cell for cell in list(dict.fromkeys(r.cell for r in study.runs))[:3])
    rows = [
        {"run": run.id, "epoch": epoch, "diverged": False}
        for run in study.runs
        if run.cell in (whole, short, missing)
        for epoch in (1, 50, study.epochs)
    ]
    ids = {cell: [run.id for run in study.runs if run.cell == cell] for cell in (whole, short)}
    stopped, gone = ids[short][-1], next(run.id for run in study.runs if run.cell == missing)
    rows = [row for row in rows if row["run"] != gone]
    rows = [row for row in rows if (row["run"], row["epoch"]) != (stopped, study.epochs)]
    ended, begun = findings.split_cells(pl.DataFrame(rows), study)
    assert set(ended["run"]) == set(ids[whole])
    assert len(ended) == 3 * 70
    assert set(begun["run"]) == set(ids[short])
    assert set(begun["epoch"]) == {1, 50}
    diverged = [{**row, "diverged": row["run"] == stopped and row["epoch"] == 50} for row in rows]
    ended, begun = findings.split_cells(pl.DataFrame(diverged), study)
    assert set(ended["run"]) == {*ids[whole], *ids[short]}
    assert begun.is_empty()
