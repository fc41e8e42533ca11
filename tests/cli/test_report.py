"""``qneurons report`` and ``qneurons figures``."""

import sys
from pathlib import Path

import pytest


def test_a_report_is_written_beside_the_store(invoke, store, write_spec, tmp_path, monkeypatch):
    for package in ("polars", "matplotlib", "scipy", "jinja2"):
        pytest.importorskip(package)
    # The densities take long, and the figures command draws them too.
    monkeypatch.setattr("qneurons.report.sections.draw_neurons", lambda results: [])
    result = invoke("report", store, "--study", write_spec())
    assert result.exit_code == 0, result.output
    page = tmp_path / "report" / "report.html"
    assert str(page) in result.stdout
    assert "A small study" in page.read_text()
    sentence = " ".join(result.stdout.split()).partition("The answer: ")[2]
    assert sentence.endswith("epoch 4.")
    assert f"**{sentence}**" in page.with_suffix(".md").read_text()


def test_two_protocols_in_a_store_are_told_apart_and_a_study_chooses_one(
    invoke, store, write_spec, train_with, fake_pack, tmp_path, monkeypatch
):
    for package in ("polars", "matplotlib", "scipy", "jinja2"):
        pytest.importorskip(package)
    monkeypatch.setattr("qneurons.report.sections.draw_neurons", lambda results: [])
    monkeypatch.setattr("qneurons.report.sections.draw_learning_curves", lambda *_: [])
    train_with(fake_pack())
    other = write_spec(("0.05", "0.1"), name="other.toml")
    assert invoke("study", "run", other, "--store", store, "--device", "cpu").exit_code == 0
    assert invoke("report", store).exit_code == 0
    text = (tmp_path / "report" / "report.md").read_text()
    assert "learning rate 0.1" in text
    assert "the paper's" in text
    assert invoke("report", store, "--study", write_spec()).exit_code == 0
    assert "learning rate 0.1" not in (tmp_path / "report" / "report.md").read_text()


def test_a_report_goes_where_it_is_told_to(invoke, store, monkeypatch):
    pytest.importorskip("polars")
    report = pytest.importorskip("qneurons.report")
    calls = []

    def write_report(frame, folder, *, study):
        calls.append((len(frame), folder, study))
        return []

    monkeypatch.setattr(report, "write_report", write_report)
    opened = []
    monkeypatch.setattr("webbrowser.open", lambda url: opened.append(url) or False)
    assert invoke("report", store, "--out", "elsewhere").exit_code == 0
    assert calls == [(48, Path("elsewhere"), None)]
    assert not opened
    result = invoke("report", store, "--out", "elsewhere", "--open")
    assert result.exit_code == 0  # also without a browser
    assert opened == [(Path.cwd() / "elsewhere" / "report.html").as_uri()]
    assert "elsewhere/report.html" in result.stderr


def test_figures_are_drawn_without_training(invoke):
    pytest.importorskip("matplotlib")
    result = invoke("figures", "--out", "here", "--activation", "elu", "--lam", 0.1)
    assert result.exit_code == 0, result.output
    written = {Path(line) for line in result.stdout.splitlines()}
    assert written == set(Path("here").iterdir())
    assert {path.suffix for path in written} == {".png", ".pdf", ".svg"}


@pytest.mark.parametrize(
    ("arguments", "missing"),
    [(("report", "store"), "polars"), (("figures", "--activation", "elu"), "matplotlib")],
)
def test_a_missing_extra_is_named(invoke, store, monkeypatch, arguments, missing):
    report = pytest.importorskip("qneurons.report")
    monkeypatch.setattr("qneurons.report", report)  # a new import replaces the attribute
    for name in list(sys.modules):
        if name.startswith("qneurons.report"):
            monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, missing, None)
    result = invoke(*arguments)
    assert result.exit_code == 1
    error, hint = result.stderr.splitlines()
    assert missing in error
    assert hint == "hint: pip install 'qneurons[study]'"


@pytest.mark.parametrize(
    ("arguments", "remedy"),
    [
        (("--activation", "elv"), "did you mean 'elu'?"),
        (("--activation", "sin"), "sin"),
        (("--lam", "-1"), "give a finite λ above 0"),
        (("--lam", "0"), "give a finite λ above 0"),
    ],
)
def test_what_cannot_be_drawn(invoke, arguments, remedy):
    result = invoke("figures", *arguments)
    assert result.exit_code == 1
    assert result.stderr.startswith("error: ")
    assert remedy in result.stderr.splitlines()[-1]


def test_a_folder_that_is_no_store(invoke, tmp_path):
    for name in ("missing", "."):
        result = invoke("report", name)
        assert result.exit_code == 1
        assert len(result.stderr.splitlines()) == 2
    assert not (tmp_path / "report").exists()
