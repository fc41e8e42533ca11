"""qn.compare from the first call to the page: kills, changed code, every wrong input."""

import importlib.util
import inspect
import io
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import nn

for package in ("jinja2", "matplotlib", "polars", "scipy"):
    pytest.importorskip(package)

import qneurons as qn
from qneurons.comparison.store import TrialStore
from qneurons.study.errors import StudyError
from tests.comparison.conftest import make_train


@pytest.fixture
def compare_to_page(tmp_path):
    """qn.compare with two settings in a folder of its own."""

    def run(train, settings=("base", "c0.1"), seeds=3, **options):
        run.lines.clear()
        return qn.compare(
            train, settings, seeds, tmp_path / "my-model", say=run.lines.append, **options
        )

    run.lines = []
    return run


@pytest.fixture
def compare(compare_to_page, monkeypatch):
    """The same without the page, which takes half a second."""
    write = lambda folder, *arguments: folder / "report.html"  # noqa: E731
    monkeypatch.setattr("qneurons.comparison.page.write_comparison", write)
    return compare_to_page


def test_one_call_gives_answer_table_and_page(compare_to_page, tmp_path):
    train = make_train({"c0.1": 0.1}, noise=0.001)
    found = compare_to_page(train, ["base", "limit", "c0.1", "a1", "silu"], seeds=8)
    assert found.answer.startswith("c0.1 helps")
    assert [row[0] for row in found.table.rows] == ["base", "limit", "c0.1", "a1", "silu"]
    assert found.page == tmp_path / "my-model" / "report" / "report.html"
    assert "c0.1 helps" in found.page.read_text()
    assert "a1/3" in found.page.read_text()
    assert str(found.page) in str(found)
    assert compare_to_page.lines[-1] == str(found)
    assert re.search(r"^ *silu\b", str(found), re.MULTILINE)  # a row, or a paragraph if it is long
    assert sum("so far" in line for line in compare_to_page.lines) == 8


def test_the_same_call_does_nothing_again(compare):
    train = make_train()
    first = compare(train)
    second = compare(train)
    assert second == first
    assert compare.lines[0] == "decided by test_accuracy (larger is better)"
    assert "6 of 6 trials are in" in compare.lines[1]
    assert compare.lines[2:] == [str(first)]


@pytest.mark.parametrize("encoding", ["ascii", "cp1252", "utf-8", None])
def test_letters_that_a_stream_cannot_show_are_replaced(monkeypatch, encoding):
    """In an ASCII terminal the call ended in a UnicodeEncodeError, and returned nothing."""
    stream = io.TextIOWrapper(io.BytesIO(), encoding) if encoding else io.StringIO()
    monkeypatch.setattr("sys.stdout", stream)
    inspect.signature(qn.compare).parameters["say"].default("± 1 ─")
    stream.seek(0)
    shown = {"ascii": "? 1 ?\n", "cp1252": "± 1 ?\n"}
    assert stream.read() == shown.get(encoding, "± 1 ─\n")


def test_a_training_that_seeds_itself_shows_nothing(compare):
    def train(trial):
        torch.manual_seed(0)
        model = trial.convert(nn.Sequential(nn.Linear(2, 2), nn.ELU()))
        trial.report(test_loss=model(torch.ones(5, 2)).sum())

    found = compare(train, seeds=6)
    assert found.answer.startswith("All seeds trained exactly the same")
    assert "trial.seed" in found.answer
    warnings = [line for line in compare.lines if line.startswith("warning: All seeds")]
    assert len(warnings) == 5  # from the second seed on


def test_a_training_that_seeds_torch_alone_is_warned(compare):
    def train(trial):
        torch.manual_seed(0)
        model = trial.convert(nn.Sequential(nn.Linear(2, 2), nn.ELU()))
        order = torch.Generator().manual_seed(trial.seed)
        trial.report(test_loss=model(torch.randn(5, 2, generator=order)).sum())

    compare(train, seeds=4)
    (warning,) = (line for line in compare.lines if line.startswith("warning"))
    assert "seeds torch itself, with 0 for the seeds 0 and 1" in warning


def test_a_training_may_derive_a_seed_of_its_own(compare):
    def train(trial):
        torch.manual_seed(1000 + trial.seed)
        model = trial.convert(nn.Sequential(nn.Linear(2, 2), nn.ELU()))
        torch.manual_seed(0)  # for an evaluation, say
        trial.report(test_loss=model(torch.ones(5, 2)).sum())

    compare(train, seeds=3)
    assert not [line for line in compare.lines if line.startswith("warning")]


KILLED = """
import os, pathlib, signal
from torch import nn
import qneurons as qn

HERE = pathlib.Path(__file__).parent

def train(trial):
    trial.convert(nn.Sequential(nn.Linear(2, 2), nn.ELU()))
    with (HERE / "trained").open("a") as file:
        print(trial.seed, trial.setting, file=file)
    for epoch in range(3):
        if (trial.seed, trial.setting, epoch) == (1, "c0.1", 1) and not (HERE / "spared").exists():
            os.kill(os.getpid(), signal.SIGKILL)
        trial.report(score=trial.seed + epoch)

if __name__ == "__main__":
    qn.compare(train, ["base", "c0.1"], 3, HERE / "store")
"""


def test_a_kill_loses_the_running_trial_alone(tmp_path):
    script = tmp_path / "killed.py"
    script.write_text(KILLED)
    run = subprocess.run([sys.executable, script], capture_output=True, text=True)
    assert run.returncode == -signal.SIGKILL
    assert "seed 1, base: score 3" in run.stdout  # shown at once, also into a pipe
    spec = importlib.util.spec_from_file_location("killed", script)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    (tmp_path / "spared").touch()
    found = qn.compare(module.train, ["base", "c0.1"], 3, tmp_path / "store", say=lambda text: None)
    assert [row[1] for row in found.table.rows] == ["3", "3"]
    trained = (tmp_path / "trained").read_text().splitlines()
    assert trained == ["0 base", "0 c0.1", "1 base", "1 c0.1", "1 c0.1", "2 base", "2 c0.1"]


def test_ctrl_c_says_how_to_go_on(compare):
    def interrupt(trial, epoch):
        if trial.seed == 1:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        compare(make_train(before=interrupt))
    assert compare.lines[-1].startswith("stopped: 2 of 6 trials are in")


def test_failed_trials_are_named_and_reported(compare):
    def fail(trial, epoch):
        if (trial.seed, trial.setting) == (1, "c0.1"):
            raise ZeroDivisionError("by chance")

    found = compare(make_train(before=fail))
    assert found.failed == {"seed 1, c0.1": "ZeroDivisionError: by chance"}
    assert "1 of 6 trials failed; the same call tries them again" in compare.lines


def test_annealing_over_another_number_of_epochs_is_said_once(compare):
    def train(trial):
        stops_early = trial.setting == "base" and trial.seed == 0
        make_train(epochs=3 if stops_early else 5)(trial)

    compare(train, ["base", "c0.1", "a1", "cos1/3"], seeds=2)
    (line,) = [line for line in compare.lines if "warning" in line]
    assert line.startswith("warning: 2 of 2 annealed trials are longer or shorter than")
    assert "as seed 0, a1 (a1/3 in 5 epochs)" in line
    compare(train, ["base", "c0.1", "a1/3"], seeds=2)
    assert not [line for line in compare.lines if "warning" in line]


def test_a_training_that_always_diverges(compare):
    def train(trial):
        trial.convert(nn.Sequential(nn.ELU()))
        trial.report(loss=float("nan"))

    with pytest.raises(StudyError, match=r"all of the 6 trials failed or diverged"):
        compare(train)
    assert len(compare.lines) == 6


def test_changed_code_is_noticed(compare):
    def first(trial):
        trial.convert(nn.Sequential(nn.ELU()))
        trial.report(loss=1.0)

    def second(trial):
        trial.convert(nn.Sequential(nn.ELU()))
        trial.report(loss=2.0)

    second.__qualname__ = first.__qualname__
    compare(first)
    with pytest.raises(StudyError, match=r"code of .* has changed since 6 of the 6 trials"):
        compare(second)
    assert "6 of 6 trials" in (compare(second, keep=True) and compare.lines[1])


def test_another_training_in_the_same_store(compare):
    compare(make_train())
    with pytest.raises(StudyError, match=r"trials of the training.*another store"):
        compare(test_another_training_in_the_same_store)


def test_a_training_that_failed_may_be_corrected_and_renamed(compare):
    def first(trial):
        raise ZeroDivisionError("always")

    with pytest.raises(StudyError, match="no trial has finished yet"):
        compare(first)
    assert compare(make_train()).failed == {}


def test_other_names_than_last_time(compare):
    names = {"score": 1.0}

    def train(trial):
        trial.convert(nn.Sequential(nn.ELU()))
        trial.report(**names)

    compare(train, seeds=2)
    names["points"] = names.pop("score")
    with pytest.raises(StudyError, match=r"seed 2, base.*reports points.*reported score;.*store"):
        compare(train, seeds=3, keep=True)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"settings": ["base", "c0,1"]}, r"unknown setting 'c0,1'; did you mean 'c0\.1'"),
        ({"settings": ["base"]}, r"nothing to compare"),
        ({"seeds": 0}, r"seeds is 0; give their number"),
        ({"seeds": [-1]}, r"seeds is \[-1\]"),
        ({"seeds": 2.5}, r"seeds is 2\.5; give their number"),
        ({"seeds": [[1]]}, r"seeds is \[\[1\]\]; give their number"),
        ({"params": {"lr": []}}, r"the parameter 'lr'"),
        ({"params": "lr=1"}, r"params is 'lr=1'; give a list of values for each name"),
        ({"params": {1: [2]}}, r"params is \{1: \[2\]\}"),
        ({"settings": None}, r"settings is None; give a list of names"),
        ({"settings": [1]}, r"settings is \[1\]"),
        ({"smaller": 3}, r"smaller is 3"),
        ({"smaller": "score", "larger": "loss, score"}, r"'score' is in smaller and in larger"),
    ],
)
def test_arguments_that_cannot_be_used_make_no_store(compare, tmp_path, options, message):
    with pytest.raises(StudyError, match=message) as error:
        compare(make_train(), **options)
    assert "\n" not in str(error.value)
    assert not (tmp_path / "my-model").exists()


def test_what_is_no_function_or_no_folder(compare):
    with pytest.raises(StudyError, match="must be a function of a trial, got 3"):
        compare(3)
    with pytest.raises(StudyError, match="store is None; give a folder"):
        qn.compare(make_train(), store=None)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"metric": "test_acc"}, r"seed 0, base: unknown metric 'test_acc'.*'test_accuracy'"),
        ({"params": {"lr": [1, 2]}}, r"validation set.*val_accuracy"),
    ],
)
def test_metrics_are_checked_at_the_first_report(compare, tmp_path, options, message):
    with pytest.raises(StudyError, match=message):
        compare(make_train(), **options)
    assert not TrialStore.open(tmp_path / "my-model" / "store", readonly=True).finished


def test_parameters_reach_the_training(compare):
    def train(trial):
        trial.convert(nn.Sequential(nn.ELU()))
        trial.report(val_score=-abs(trial.params["lr"] - 2), test_score=trial.seed)

    found = compare(train, params={"lr": [1, 2, 3]}, seeds=2)
    assert {row[1] for row in found.table.rows} == {"lr=2"}
    decision = ["decided by test_score (larger is better)"]
    decision += ["parameters are chosen by val_score (larger is better)"]
    assert compare.lines[:2] == decision
    assert not {*decision} & {*compare.lines[2:]}


def test_a_name_in_smaller_leaves_the_other_names_their_meaning(compare):
    """It made val_loss a metric of which larger is better, so that the worst rate was chosen."""

    def train(trial):
        trial.convert(nn.Sequential(nn.ELU()))
        trial.report(val_loss=abs(trial.params["lr"] - 2), test_latency=1.0, test_speed=1.0)

    options = {"params": {"lr": [1, 2, 3]}, "seeds": 2}
    found = compare(train, smaller=["test_latency"], **options)
    assert {row[1] for row in found.table.rows} == {"lr=2"}
    found = compare(train, larger=["val_loss"], **options)
    assert {row[1] for row in found.table.rows} == {"lr=1"}


def test_a_missing_package_is_named_before_anything_is_trained(compare, monkeypatch):
    monkeypatch.setitem(sys.modules, "polars", None)
    with pytest.raises(StudyError, match=r"needs polars.*pip install 'qneurons\[study\]'"):
        compare(make_train())


def test_a_real_training(compare):
    """q-activations draw, backward works, and λ is annealed."""

    def train(trial):
        model = trial.convert(nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1)))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        x = torch.randn(64, 4)
        for _ in range(3):
            loss = (model(x) - x.sum(1, keepdim=True)).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            trial.report(test_loss=loss)

    found = compare(train, ["base", "limit", "c0.1", "a1", "prelu"], seeds=2)
    store = TrialStore.open(found.page.parents[1] / "store", readonly=True)
    assert len({tuple(t.measured.metrics["test_loss"]) for t in store.finished.values()}) == 10
    assert "Smaller is better" in found.table.note


def test_the_example_of_the_page_is_complete():
    text = (Path(__file__).parents[2] / "docs" / "compare.md").read_text()
    example = text.partition("```python\n")[2].partition("```")[0]
    compile(example, "compare.md", "exec")
    assert "qn.compare(train" in example


@pytest.mark.parametrize("name", ["nulls", "overhead"])
def test_the_numbers_of_the_page_are_those_that_were_measured(name):
    root = Path(__file__).parents[2]
    measured = (root / "benchmarks" / "results" / f"compare-{name}.md").read_text()
    page = (root / "docs" / "compare.md").read_text()
    assert f"<!-- {name} -->\n{measured}<!-- /{name} -->" in page
