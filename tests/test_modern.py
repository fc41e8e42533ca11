"""The benchmark of modern networks: which trials it plans, that it goes on, what it publishes."""

import dataclasses
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from torch import nn

ROOT = Path(__file__).parents[1]


def train(trial):
    """Trains nothing: the limit gains, smaller rates are better, the largest diverges."""
    trial.convert(nn.Sequential(nn.Linear(2, 2), nn.ELU()))
    value = 0.8 + 0.05 * (trial.setting == "limit") - 0.1 * trial.params["lr"] + 1e-3 * trial.seed
    value += 1e-4 * (hash_of(trial) % 7)
    for _ in range(2):
        trial.report(
            val_accuracy=float("nan") if trial.params["lr"] > 3 else value % 1,
            test_accuracy=value % 1,
        )


def hash_of(trial):
    return sum(map(ord, f"{trial.setting}{trial.params['activation']}")) * (trial.seed + 1)


@pytest.fixture
def modern(monkeypatch):
    for folder in ("benchmarks", "examples"):
        monkeypatch.syspath_prepend(ROOT / folder)
    import modern

    task = dataclasses.replace(
        modern.TASKS["cifar"], train=train, activations=("relu", "elu"), epochs=2, rates=(1, 2, 4)
    )
    monkeypatch.setattr(modern, "TASKS", {"cifar": task})
    monkeypatch.setattr(
        modern, "SEEDS", {"cost": (20,), "search": (10, 11), "final": (0, 1, 2, 3, 4, 5)}
    )
    monkeypatch.setattr(modern, "provenance", lambda *_: {"device": "none", "date": ""})
    return modern


def finished(modern, store):
    return modern.TrialStore.open(store / "cifar" / "store", readonly=True).finished


def test_the_limit_of_relu_is_not_trained_and_its_rivals_are(modern):
    for task in modern.TASKS.values():
        assert task.settings("relu") == ["base", "a5/2", "rrelu", "relu2"]
        assert task.settings("elu") == ["base", "limit", "c0.1", "a5/2"]
        assert [setting for _, setting in task.cells[:2]] == ["base", "base"]


def test_a_stage_goes_on_where_it_stopped(modern, tmp_path, capsys):
    assert modern.train_stage("search", "cifar", tmp_path, seconds=-1) == 0
    assert "0 of 48 trials" in capsys.readouterr().out
    modern.train_stage("search", "cifar", tmp_path, seconds=60)
    lines = capsys.readouterr().out.splitlines()
    assert "48 of 48 trials are done" in lines[-1]
    assert sum("val_accuracy is nan" in line for line in lines) == 16
    modern.train_stage("search", "cifar", tmp_path, seconds=60)
    assert capsys.readouterr().out == "search of cifar: 48 of 48 trials are done\n"


def test_the_final_stage_waits_for_the_search(modern, tmp_path):
    with pytest.raises(SystemExit, match=r"lacks 2 trials, as seed 10.*finish it"):
        modern.train_stage("final", "cifar", tmp_path, seconds=60)


@pytest.mark.parametrize("higher", [True, False])
def test_the_rate_is_chosen_by_validation_on_seeds_of_the_search(modern, tmp_path, higher):
    task = dataclasses.replace(modern.TASKS["cifar"], higher=higher)
    modern.TASKS["cifar"] = task
    modern.train_stage("search", "cifar", tmp_path, seconds=60)
    specs = modern.plan(task, "final", finished(modern, tmp_path))
    best = 1 if higher else 2  # at 4 it diverges
    assert {dict(spec.params)["lr"] for spec in specs} == {best}
    assert {spec.seed for spec in specs} == {0, 1, 2, 3, 4, 5}
    assert len({spec.id for spec in specs}) == len(specs) == 48
    assert [spec.seed for spec in specs] == sorted(spec.seed for spec in specs)


def test_a_trial_that_fails_is_counted_and_the_others_go_on(modern, tmp_path, capsys):
    def fails_once(trial):
        if (trial.setting, trial.seed) == ("limit", 20):
            raise RuntimeError("no luck")
        train(trial)

    modern.TASKS["cifar"] = dataclasses.replace(modern.TASKS["cifar"], train=fails_once)
    assert modern.train_stage("cost", "cifar", tmp_path, seconds=60) == 1
    output = capsys.readouterr()
    assert "7 of 8 trials" in output.out
    assert "no luck" in output.err


def test_what_is_published(modern, tmp_path, monkeypatch):
    pl = pytest.importorskip("polars")
    pytest.importorskip("matplotlib")
    import publish_modern

    for name in ("SEEDS", "TASKS"):
        monkeypatch.setattr(publish_modern, name, getattr(modern, name))
    monkeypatch.setattr(publish_modern, "ROOT", tmp_path)
    monkeypatch.setattr(publish_modern, "MODERN", tmp_path / "modern")
    monkeypatch.setattr(
        publish_modern.argparse.ArgumentParser,
        "parse_args",
        lambda _: SimpleNamespace(store=tmp_path / "store"),
    )
    (tmp_path / "RESULTS.md").write_text("before\n<!-- modern -->\n<!-- /modern -->\nafter\n")
    for stage in ("search", "cost"):
        modern.train_stage(stage, "cifar", tmp_path / "store", seconds=60)
    with pytest.raises(SystemExit, match="48 trials are missing"):
        publish_modern.main()
    modern.train_stage("final", "cifar", tmp_path / "store", seconds=60)
    publish_modern.main()

    lines = (tmp_path / "RESULTS.md").read_text().splitlines()
    (elu,) = [line for line in lines if line.startswith("| elu | 7") and line.count("|") == 6]
    base, limit, *noisy = elu.split(" | ")[1:]
    assert base.startswith("70.2")  # 80 % - 10 % for the rate, and the mean of the seeds
    assert limit.startswith("**+5.0")
    assert not any("**" in text for text in noisy)
    (relu,) = [line for line in lines if line.startswith("| relu |") and line.count("|") == 6]
    assert relu.count("is base") == 2
    assert sum("the best plain one" in line for line in lines) == 1
    assert lines[0] == "before"
    assert lines[-1] == "after"
    rows = pl.read_parquet(tmp_path / "modern" / "cifar" / "rows.parquet")
    assert rows.group_by("stage").len().sort("stage").rows() == [
        ("cost", 16),
        ("final", 96),
        ("search", 64),  # diverged trials have no epoch
    ]
    page = (tmp_path / "modern" / "cifar" / "report.md").read_text()
    assert "plain activation in 1 of 4 comparisons of test accuracy and lose in 0" in page
    assert "a5/2 is the model with the q-activation with λ annealed from 5 over 2 epochs" in page
    assert "8 of the 8 chosen rates are at an end of the range" in page
    assert "(2 diverged)" in page
    assert (tmp_path / "modern" / "cifar" / "gains.png").exists()


def test_training_needs_no_package_of_the_study():
    script = """
import sys
for name in ("polars", "scipy", "matplotlib", "jinja2", "rich", "typer", "sklearn", "pooch"):
    sys.modules[name] = None
import modern
task = modern.TASKS["gpt"]
assert modern.plan(task, "search", {})
import gpt
gpt.SIZES["full"] = gpt.SIZES["tiny"]
print(modern.run_trial(task.train, modern.Trial("c0.1", 0, {})))
"""
    path = ":".join(str(ROOT / folder) for folder in ("benchmarks", "src"))
    run = subprocess.run(
        [sys.executable, "-c", script],
        env=os.environ | {"PYTHONPATH": path},
        capture_output=True,
        text=True,
    )
    assert "test_loss" in run.stdout, run.stderr
