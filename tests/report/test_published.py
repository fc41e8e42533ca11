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
    from qneurons.report.claims import paper
    from qneurons.report.evidence import Evidence

    study = load_study("paper")
    last = frame.filter((pl.col("epoch") == study.epochs) & ~pl.col("diverged"))
    evidence = Evidence(frame)
    *verdicts, question = paper.judge(evidence)
    said = " ".join(findings.conclusion(evidence, verdicts, question, last, study))
    for page in ("README.md", "RESULTS.md"):
        assert said in words((ROOT / page).read_text()), page
    assert findings.coverage(evidence, study) in (ROOT / "RESULTS.md").read_text()


def test_every_table_is_computed_from_the_rows(findings, frame):
    from qneurons.report.claims import paper
    from qneurons.report.evidence import Evidence
    from qneurons.report.rendering import to_markdown

    study, evidence = load_study("paper"), Evidence(frame)
    last = frame.filter((pl.col("epoch") == study.epochs) & ~pl.col("diverged"))
    naive = pl.read_parquet(ROOT / "results" / "paper" / "naive.parquet")
    rates = pl.read_csv(ROOT / "benchmarks" / "results" / "training-cuda.csv")
    page = (ROOT / "RESULTS.md").read_text()
    for table in (
        findings.gains_table(evidence),
        findings.claims_table(paper.judge(evidence)[:-1]),
        findings.modes_table(frame),
        findings.modes_table(frame, "test_loss"),
        findings.lam_table(last),
        findings.time_table(findings.times(frame, study, rates)),
        findings.naive_table(last, naive),
    ):
        assert to_markdown(table) in page, table.title


def ends(cell):
    """Of an interval as it is printed: "+0.1 [-0.2, +0.4]"."""
    _, low, high = map(float, re.findall(r"[-+][\d.]+", cell))
    return low, high


def gains_of_modes(frame, one, other, metric="test_accuracy", by=("dropout",)):
    """By setting and epoch: λ, and one mode minus another with its interval, × 100."""
    from qneurons.report.inference import estimate

    difference = 100 * (pl.col(f"{metric}{one}") - pl.col(f"{metric}{other}"))
    for key, rows in frame.group_by("network", "activation", "setting", "epoch", *by):
        gains = rows.group_by("seed").agg(gain=difference.mean())["gain"]
        yield key, rows["lam"][0], estimate(gains)


def test_what_decided_the_default_of_evaluation(frame):
    """As QActivation's docstring and docs/training-and-evaluation.md say it."""
    from qneurons.report.evidence import GUESSING

    frame = frame.filter(pl.col("setting").str.contains("^[ca]"))
    ends = frame.filter((pl.col("epoch") == 100) & (pl.col("train_loss") < GUESSING))
    assert ends["lam"].max() < 0.18
    assert all(abs(gain.mean) < 0.0501 for *_, gain in gains_of_modes(ends, "_limit", ""))
    losses = gains_of_modes(ends, "_limit", "", "test_loss")
    assert all(gain.mean <= 0.02e-1 or gain.low <= 0 for *_, gain in losses)

    a9 = {
        (network, activation, epoch, dropout): gain.mean
        for (network, activation, setting, epoch, dropout), _, gain in gains_of_modes(
            frame, "_limit", ""
        )
        if setting == "a9"
    }
    at_20 = [gain for key, gain in a9.items() if key[::2] == ("mnist-mlp", 20)]  # λ = 0.86
    assert len(at_20) == 8
    assert 0.1 < min(at_20) < max(at_20) < 0.7
    assert a9["mnist-cnn", "tanh", 20, False] == pytest.approx(-2.4, abs=0.05)
    assert a9["mnist-cnn", "tanh", 5, False] == pytest.approx(-46, abs=0.5)

    modes = gains_of_modes(frame, "_mean", "_limit", by=())
    ahead = {
        (activation, lam)
        for (network, activation, *_), lam, gain in modes
        if gain.low > 0 and gain.mean > 0.1 and (network, activation) != ("mnist-cnn", "tanh")
    }
    assert min(lam for name, lam in ahead if name == "relu") == 1.5
    assert min(lam for name, lam in ahead if name == "tanh") == 5
    assert {name for name, _ in ahead} == {"relu", "tanh"}


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
