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
    # As QActivation's docstring and docs/training-and-evaluation.md say it.
    for _, _, lam, _, *cells in findings.modes_table(frame).rows:
        _, mean_accuracy, limit_loss, mean_loss = map(ends, cells)
        assert mean_accuracy[0] <= 0 <= mean_loss[1], "the mean is nowhere measurably better"
        if float(lam) > 0.02:
            assert limit_loss[1] < 0, "the limit is better than a draw"
        if 0.02 < float(lam) < 9:
            assert mean_accuracy[1] < 0 or mean_loss[0] > 0, "the mean is worse than the limit"


def test_what_decided_the_default_of_lam(findings, frame):
    table = findings.lam_table(frame.filter(pl.col("epoch") == frame["epoch"].max()))
    accuracy = {contrast: ends(cell) for contrast, cell, _ in table.rows}
    loss = {contrast: ends(cell) for contrast, _, cell in table.rows}
    for low, high in (accuracy["c0.02 − limit"], loss["c0.02 − limit"]):
        assert low < 0 < high
    assert accuracy["c0.1 − c0.02"][0] > 0 > loss["c0.1 − c0.02"][1]
    assert accuracy["a5 − c0.1"][0] > 0


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
