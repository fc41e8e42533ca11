"""``qneurons compare``: a file and a function in, a table and a page out."""

import inspect

import pytest

import qneurons as qn

for package in ("jinja2", "matplotlib", "polars", "scipy"):
    pytest.importorskip(package)

from qneurons.cli.compare import compare, parse_params
from qneurons.study.errors import StudyError

TRAINING = """
from dataclasses import dataclass
from torch import nn
import beside

def train(trial):
    trial.convert(nn.Sequential(nn.ELU()))
    lr = trial.params.get("lr", 1)
    trial.report(test_score=beside.NUMBER + trial.seed, val_score=lr)

def broken(trial):
    train(trial)
    if trial.seed == 1 and trial.setting == "limit":
        raise ZeroDivisionError("by chance")
"""


@pytest.fixture
def run(invoke, tmp_path, monkeypatch):
    monkeypatch.setattr("qneurons.provenance.commit", lambda: "0123456")
    monkeypatch.syspath_prepend(str(tmp_path))  # and takes away what the command adds
    (tmp_path / "my_training.py").write_text(TRAINING)
    (tmp_path / "beside.py").write_text("NUMBER = 5\n")
    return lambda *arguments: invoke("compare", *arguments)


def test_the_settings_are_those_of_the_function():
    here, there = (
        inspect.signature(called).parameters["settings"].default for called in (compare, qn.compare)
    )
    assert here == ",".join(there)


def test_a_training_is_compared(run, tmp_path, monkeypatch):
    def write_page(folder, *arguments):  # drawing it takes its time, and is tested elsewhere
        folder.mkdir(exist_ok=True)
        (folder / "report.html").touch()
        return folder / "report.html"

    opened = []
    monkeypatch.setattr("qneurons.comparison.page.write_comparison", write_page)
    monkeypatch.setattr("webbrowser.open", lambda url: opened.append(url) or True)
    options = ("--settings", "base,limit,a1", "--seeds", 2, "--param", "lr=1,2", "--open")
    result = run("my_training.py:train", *options)
    assert result.exit_code == 0, result.output
    assert "seed 1, lr=2, a1: test_score 6" in result.stdout
    assert "No setting is shown to help" in result.stdout
    page = tmp_path / "qneurons-my_training" / "report" / "report.html"
    assert page.exists()
    assert opened == [page.as_uri()]
    again = run("my_training.py:train", *options)
    assert "12 of 12 trials are in qneurons-my_training already" in again.stdout


def test_failed_trials_have_their_traceback_and_an_exit_code(run, monkeypatch):
    monkeypatch.setattr("qneurons.comparison.page.write_comparison", lambda *arguments: "page")
    result = run("my_training.py:broken", "--settings", "limit", "--seeds", 3, "--store", "x")
    assert result.exit_code == 1
    assert "ZeroDivisionError: by chance" in result.stdout
    assert "seed 2, limit: test_score 7" in result.stdout


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["my_training.py"], ["my_training.py:train"]),
        (["my_training:train"], ["my_training.py:train"]),
        (["nowhere.py:train"], ["no file nowhere.py"]),
        (["my_training.py:trian"], ["'trian'", "'train'", "ones: train, broken"]),
        (["my_training.py:train", "--settings", "base,x1"], ["'x1'", "c0.1, a1"]),
        (["my_training.py:train", "--param", "lr"], ["'lr'", "lr=0.05,0.1"]),
        (["my_training.py:train", "--metric", "score"], ["'score'", "test_score"]),
        (["my_training.py:train", "--smaller", "a, b", "--larger", "b"], ["'b' is in smaller"]),
    ],
)
def test_a_mistake_is_a_line_and_a_hint(run, arguments, words):
    result = run(*arguments)
    assert result.exit_code == 1
    error, hint = result.stderr.splitlines()
    assert (error[:7], hint[:6]) == ("error: ", "hint: ")
    for word in words:
        assert word in result.stderr


def test_a_file_that_compares_when_it_is_imported_is_refused(run, tmp_path):
    """It trained its own comparison first, with its own options."""
    (tmp_path / "bare.py").write_text(f"{TRAINING}\nimport qneurons as qn\nqn.compare(train)\n")
    result = run("bare.py:train")
    error, hint = result.stderr.splitlines()
    assert "calls qn.compare when it is imported" in error
    assert hint == "hint: put the call under if __name__ == '__main__':"
    assert not (tmp_path / "qneurons-compare").exists()
    assert "imported" not in run("my_training.py:train", "--settings", "base").stderr


@pytest.mark.parametrize(
    ("code", "why"),
    [
        ("\n1 / 0", "line 2: ZeroDivisionError: division by zero"),
        ("import nope", "line 1: ModuleNotFoundError: No module named 'nope'"),
        ("import json\njson.loads('')", "line 2: JSONDecodeError: Expecting value"),
        ("def train(:", "SyntaxError: invalid syntax (wrong.py, line 1)"),
        ("raise SystemExit(2)", "line 1: SystemExit: 2"),
    ],
)
def test_a_file_that_cannot_be_imported(run, tmp_path, code, why):
    (tmp_path / "wrong.py").write_text(code)
    error, hint = run("wrong.py:train").stderr.splitlines()
    assert error.startswith(f"error: wrong.py cannot be imported: {why}")
    assert hint == "hint: --debug shows all"


def test_ctrl_c_has_its_exit_code(run, monkeypatch):
    def interrupt(*arguments):
        raise KeyboardInterrupt

    monkeypatch.setattr("qneurons.comparison.executor.run_trial", interrupt)
    result = run("my_training.py:train")
    assert result.exit_code == 130
    assert "the same call goes on" in result.stdout


def test_values_are_numbers_or_texts():
    params = parse_params(["lr=0.05,1e-1,adam", " size = small , 3", "bias=True"])
    assert params == {"lr": [0.05, 0.1, "adam"], "size": ["small", 3], "bias": [True]}


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        *(([text], r"cannot read.*lr=0\.05") for text in ("lr", "=1", "lr=", "lr=1,,2", "lr=1,")),
        (["lr=0.1", "lr=0.2"], r"'lr' is given twice; write --param lr=0\.1,0\.2$"),
        *(([f"lr=1,{text}"], f"'lr' has the value {text};") for text in ("nan", "-inf")),
        (["name='a,b'"], "'name' has quotes in 'a,b'; leave them out"),
    ],
)
def test_parameters_that_cannot_be_read(texts, message):
    """A repeated name kept its last values only, and nan was a text."""
    with pytest.raises(StudyError, match=message):
        parse_params(texts)


def test_where_trials_run_is_handed_on(run, monkeypatch):
    def place(train, *, say, **options):
        raise StudyError(f"got {options}")

    monkeypatch.setattr("qneurons.comparison.placement.place", place)
    options = ("--executor", "ray", "--address", "auto", "--processes", 2)
    per_trial = ("--cpus-per-trial", 3, "--gpus-per-trial", 0.5)
    result = run("my_training.py:train", *options, *per_trial)
    expected = {"processes": 2, "executor": "ray", "address": "auto"}
    expected |= {"cpus_per_trial": 3.0, "gpus_per_trial": 0.5}
    assert f"got {expected}" in result.stderr
