"""``qneurons quickstart``: from nothing to a page."""

import signal
from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def extras():
    for package in ("polars", "matplotlib", "scipy", "jinja2"):
        pytest.importorskip(package)


@pytest.fixture
def written(monkeypatch):
    """What the report is made from; making it is tested elsewhere and takes its time."""
    calls = []

    def write_report(frame, folder, *, study):
        calls.append((frame, folder, study))
        return []

    monkeypatch.setattr("qneurons.report.write_report", write_report)
    return calls


def test_it_trains_reports_and_says_what_is_next(
    invoke, train_with, fake_pack, written, monkeypatch
):
    from qneurons.report import Results, answer

    pack_class = train_with(fake_pack())
    result = invoke("quickstart", "--device", "cpu")
    assert result.exit_code == 0, result.output
    assert sum(len(seeds) for seeds, _ in pack_class.built) == 50
    ((frame, folder, study),) = written
    answered = f"The answer: {answer(Results(frame), study)}"
    assert "all 50 runs are trained" in answered
    lines = result.stdout.splitlines()
    for line in (
        answered,
        "The page with figures: qneurons-quickstart/report/report.html",
        "  qneurons study export qneurons-quickstart/store rows.csv",
    ):
        assert line in lines
    assert len(frame) == 50 * study.epochs
    assert (folder, study.name) == (Path("qneurons-quickstart/report"), "quickstart")
    again = train_with(fake_pack())
    opened = []
    monkeypatch.setattr("webbrowser.open", lambda url: opened.append(url) or True)
    second = invoke("quickstart", "--device", "cpu", "--open")
    assert opened == [Path("qneurons-quickstart/report/report.html").absolute().as_uri()]
    assert (second.exit_code, second.stdout, again.built) == (0, result.stdout, [])


def test_its_end_is_seen_on_a_small_terminal(invoke, train_with, fake_pack, written, monkeypatch):
    train_with(fake_pack())
    monkeypatch.setenv("TTY_COMPATIBLE", "1")  # rich takes any file for a terminal
    monkeypatch.setenv("COLUMNS", "80")
    shown = invoke("quickstart", "--device", "cpu").stdout
    last = shown.splitlines()[-23:]  # of 24 lines the prompt takes one
    for text in ("gain over base in points", "base, %", "The answer: ", "report.html"):
        assert any(text in line for line in last)
    assert "  qneurons study export qneurons-quickstart/store rows.csv" in last


def test_other_runs_in_its_store_are_not_in_its_table(
    invoke, train_with, fake_pack, written, write_spec
):
    train_with(fake_pack())
    invoke("quickstart", "--device", "cpu", "--out", "alone")
    other = write_spec(("0.05", "0.07"))
    invoke("study", "run", other, "--store", "mixed/store", "--device", "cpu")
    result = invoke("quickstart", "--device", "cpu", "--out", "mixed")
    assert result.exit_code == 0, result.output
    alone, mixed = (frame.drop("seconds", "command") for frame, *_ in written)
    assert mixed.equals(alone)


def test_stopped_it_reports_nothing_and_goes_on(invoke, train_with, fake_pack, written):
    def on_step(pack):
        if pack.epoch == 1:
            signal.raise_signal(signal.SIGINT)
            signal.raise_signal(signal.SIGINT)

    train_with(fake_pack(on_step=on_step))
    result = invoke("quickstart", "--device", "cpu", "--out", "mine")
    assert (result.exit_code, written) == (130, [])
    rest = train_with(fake_pack())
    assert invoke("quickstart", "--device", "cpu", "--out", "mine").exit_code == 0
    assert rest.built[0][1] == 1
    assert [folder for _, folder, _ in written] == [Path("mine/report")]
