"""What is published follows from the published rows, and from whole cells alone."""

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


def test_the_conclusion_is_computed_from_the_rows(findings):
    from qneurons.report import claims
    from qneurons.report.evidence import Evidence

    study = load_study("paper")
    frame = pl.read_parquet(ROOT / "results" / "paper" / "rows.parquet")
    last = frame.filter((pl.col("epoch") == study.epochs) & ~pl.col("diverged"))
    evidence = Evidence(frame)
    *verdicts, question = claims.judge(evidence)
    said = " ".join(findings.conclusion(evidence, verdicts, question, last, study))
    for page in ("README.md", "RESULTS.md"):
        assert said in words((ROOT / page).read_text()), page
    assert findings.coverage(evidence, study) in (ROOT / "RESULTS.md").read_text()


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
