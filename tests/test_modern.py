"""The benchmark of modern networks: which trials it plans, that it goes on, what it publishes."""

import dataclasses
import os
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest
import torch
from torch import nn

from qneurons.study.errors import StudyError

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
def unpatched(monkeypatch):
    for folder in ("benchmarks", "examples"):
        monkeypatch.syspath_prepend(ROOT / folder)
    import modern

    return modern


@pytest.fixture
def modern(unpatched, monkeypatch):
    modern = unpatched
    task = dataclasses.replace(
        modern.TASKS["cifar"],
        train=train,
        activations=("relu", "elu"),
        epochs=2,
        rates=(1, 2, 4),
        search_seeds=(10, 11),
        final_seeds=range(6),
    )
    monkeypatch.setattr(modern, "TASKS", {"cifar": task})
    return modern


def run_stages(modern, store, *stages):
    for stage in stages:
        assert modern.train_stage(stage, "cifar", store, seconds=60) == 0


def finished(modern, store):
    return modern.TrialStore.open(store / "cifar" / "store", readonly=True).finished


def test_the_docs_say_how_many_trainings_there_are(unpatched):
    text = (ROOT / "docs/modern-networks.md").read_text()
    _, _, rows = text.partition("trainings before the fourth stage |\n")
    tasks = unpatched.TASKS
    assert f"That makes {len(tasks['cifar'].cells)}\nsettings." in text
    assert f"with {len(tasks['gpt-long'].cells)} of the settings" in text
    lines = rows.splitlines()[1 : 1 + len(tasks)]  # after the line of dashes
    for (name, task), line in zip(tasks.items(), lines, strict=True):
        counts = map(len, (task.cells, task.rates, task.search_seeds, task.final_seeds))
        settings, rates, searched, compared = counts
        trained = settings * (rates * searched + compared)
        cells = f"`{name}`", settings, rates, searched, compared, f"{trained:,}"
        assert line == f"| {' | '.join(map(str, cells))} |"


def test_the_docs_describe_the_small_networks(unpatched):
    def num_parameters(model):
        return f"{sum(part.numel() for part in model.parameters() if part.requires_grad):,}"

    text = " ".join((ROOT / "docs/modern-networks.md").read_text().split())
    gpt, tasks = unpatched.gpt, unpatched.TASKS
    size = gpt.SIZES[tasks["gpt-small"].size]
    parameters = num_parameters(gpt.GPT(size, nn.GELU))
    assert f"{size.layers} layers of width {size.width}, {parameters} parameters" in text
    steps = size.periods * size.steps
    assert f"{steps:,} steps of {size.batch} windows of {size.context} bytes" in text
    longer = gpt.SIZES[tasks["gpt-long"].size]
    assert longer == dataclasses.replace(size, periods=3 * size.periods)
    assert f"is trained for {3 * steps:,} steps" in text
    resnet = unpatched.cifar_resnet
    size = resnet.SIZES[tasks["cifar-small"].size]
    parameters = num_parameters(resnet.ResNet(size.widths, nn.GELU, torch.zeros(24, 3, 2, 2)))
    *widths, last = size.widths
    steps = size.epochs * size.num_train // size.batch
    for phrase in (
        f"widths of {', '.join(map(str, widths))} and {last}, and {parameters} parameters",
        f"trains on {size.num_train:,} images for {size.epochs} epochs, "
        f"{steps} steps of {size.batch} images",
        f"The last {resnet.NUM_VALIDATION:,} training images choose the rate, and the first "
        f"{size.num_test:,} of the test set are the test",
    ):
        assert phrase in text


def test_a_size_other_than_full_is_a_parameter_of_its_trials(unpatched):
    sizes = {
        name: {dict(spec.params).get("size") for spec in unpatched.plan(task, "cost", {})}
        for name, task in unpatched.TASKS.items()
    }
    small = {"cifar-small": {"small"}, "gpt-small": {"small"}, "gpt-long": {"long"}}
    assert sizes == {"cifar": {None}, "gpt": {None}, **small, "digits": {None}}


def test_the_limit_of_relu_is_not_trained_and_its_rivals_are(modern):
    for task in modern.TASKS.values():
        assert task.settings("relu") == ["base", "a5/2", "rrelu", "relu2"]
        assert task.settings("elu") == ["base", "limit", "c0.1", "a5/2"]
        assert [setting for _, setting in task.cells[:2]] == ["base", "base"]


def test_a_stage_goes_on_where_it_stopped(modern, tmp_path, capsys):
    run_stages(modern, tmp_path, "cost")
    assert modern.train_stage("search", "cifar", tmp_path, seconds=0) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "cost of cifar, trials left: 8"
    assert lines[-3] == "cost of cifar, trials left: 0"
    assert lines[-1].startswith("search of cifar, trials left: 40, about 0 s (alone")
    run_stages(modern, tmp_path, "search")
    lines = capsys.readouterr().out.splitlines()
    assert lines[-1] == "search of cifar, trials left: 0"
    assert sum("val_accuracy is nan" in line for line in lines) == 16
    run_stages(modern, tmp_path, "search")
    assert capsys.readouterr().out == 2 * "search of cifar, trials left: 0\n"


def test_trials_of_changed_code_count_only_if_they_are_kept(modern, tmp_path, monkeypatch):
    run_stages(modern, tmp_path, "cost")
    code = modern.fingerprint(train).partition("-")[0] + "-another"
    monkeypatch.setattr(modern, "fingerprint", lambda train: code)
    with pytest.raises(StudyError, match=r"has changed since 8 of the 8 trials .*--keep"):
        modern.train_stage("cost", "cifar", tmp_path, seconds=60)
    assert modern.train_stage("cost", "cifar", tmp_path, seconds=60, keep=True) == 0


def test_every_stage_waits_for_the_one_before(modern, tmp_path):
    with pytest.raises(SystemExit, match=r"^cost lacks 8 trials, as seed 10.*finish it first"):
        modern.train_stage("final", "cifar", tmp_path, seconds=60)
    run_stages(modern, tmp_path, "cost")
    with pytest.raises(SystemExit, match=r"^search lacks 40 trials, as seed 10.*finish it first"):
        modern.train_stage("final", "cifar", tmp_path, seconds=60)


@pytest.mark.parametrize("higher", [True, False])
def test_the_rate_is_chosen_by_validation_on_seeds_of_the_search(modern, tmp_path, higher):
    task = dataclasses.replace(modern.TASKS["cifar"], higher=higher)
    modern.TASKS["cifar"] = task
    run_stages(modern, tmp_path, "cost", "search")
    specs = modern.plan(task, "final", finished(modern, tmp_path))
    best = 1 if higher else 2  # at 4 it diverges
    assert {dict(spec.params)["lr"] for spec in specs} == {best}
    assert {spec.seed for spec in specs} == {0, 1, 2, 3, 4, 5}
    assert len({spec.id for spec in specs}) == len(specs) == 48
    assert [spec.seed for spec in specs] == sorted(spec.seed for spec in specs)


def test_a_trial_that_fails_is_counted_and_the_others_go_on(modern, tmp_path, capsys):
    def fails_once(trial):
        if trial.setting == "limit":
            raise RuntimeError("no luck")
        train(trial)

    modern.TASKS["cifar"] = dataclasses.replace(modern.TASKS["cifar"], train=fails_once)
    assert modern.train_stage("cost", "cifar", tmp_path, seconds=60) == 1
    output = capsys.readouterr().out
    assert "RuntimeError: no luck" in output
    assert "trials left: 1" in output


@pytest.fixture
def publish(modern, tmp_path, monkeypatch):
    """Publishes the store of this test; returns the lines of RESULTS.md."""
    pytest.importorskip("polars")
    pytest.importorskip("matplotlib")
    import publish_modern

    monkeypatch.setattr(publish_modern, "ROOT", tmp_path)
    monkeypatch.setattr(publish_modern, "MODERN", tmp_path / "modern")
    monkeypatch.setattr(sys, "argv", ["publish_modern.py", str(tmp_path)])
    page = tmp_path / "RESULTS.md"
    page.write_text("before\n<!-- modern -->\n<!-- /modern -->\nafter\n")

    def published():
        publish_modern.main()
        return page.read_text().splitlines()

    return published


def report(tmp_path):
    return (tmp_path / "modern" / "cifar" / "report.md").read_text()


def test_what_is_not_finished_is_published_without_a_verdict(
    modern, publish, tmp_path, monkeypatch
):
    title = f"**{modern.TASKS['cifar'].title}.**"
    command = ["modern.py", "cost", "cifar", "--store", str(tmp_path)]
    with monkeypatch.context() as here:
        here.setattr(sys, "argv", command)
        run_stages(modern, tmp_path, "cost")
    state = (
        "The search for rates has done 8 of 48 trainings of 8 settings. Nothing is compared yet."
    )
    assert publish()[2:4] == [f"{title} {state}", "<!-- /modern -->"]
    assert state in report(tmp_path)
    assert f"modern.py cost cifar --store {tmp_path.name}" in report(tmp_path)
    assert f"--store {tmp_path}" not in report(tmp_path)
    (elu,) = [line for line in report(tmp_path).splitlines() if line.startswith("| elu | limit")]
    assert elu.split(" | ")[2] == "–"

    run_stages(modern, tmp_path, "search")
    store = modern.TrialStore.open(tmp_path / "cifar" / "store")
    *specs, _ = modern.plan(modern.TASKS["cifar"], "final", store.finished)[: 3 * 8]
    executor = modern.LocalExecutor(train, "")
    code = modern.fingerprint(train)
    arms = {spec.arm: modern.Arm(spec.arm) for spec in specs}
    modern.Session(executor, store, arms, code, print).run(specs)
    page = "\n".join(publish())
    assert f"{title} All 8 settings are trained with 2 of 6 seeds. There is no verdict yet." in page
    assert "**" not in page.replace(title, "")
    assert "better" not in page.replace("is better", "")


def test_what_is_published(modern, publish, tmp_path):
    run_stages(modern, tmp_path, "cost", "search", "final")
    lines = publish()
    (elu,) = [line for line in lines if line.startswith("| elu | 7") and line.count("|") == 6]
    base, limit, *noisy = elu.split(" | ")[1:]
    assert base.startswith("70.2")  # 80 % - 10 % for the rate, and the mean of the seeds
    assert limit.startswith("**+5.0")
    assert not any("**" in text for text in noisy)
    (relu,) = [line for line in lines if line.startswith("| relu |") and line.count("|") == 6]
    assert relu.count("is base") == 2
    assert lines[0] == "before"
    assert lines[-1] == "after"
    rows = pytest.importorskip("polars").read_parquet(
        tmp_path / "modern" / "cifar" / "rows.parquet"
    )
    assert rows.group_by("stage").len().sort("stage").rows() == [
        ("cost", 16),
        ("final", 96),
        ("search", 48),  # without those of cost, and diverged trials have no epoch
    ]
    page = report(tmp_path)
    assert page.count("the best plain one") == 1
    assert "plain activation in 1 of 4 comparisons of test accuracy and lose in 0" in page
    assert "a5/2 is the model with the q-activation with λ annealed from 5 over 2 epochs" in page
    assert "8 of the 8 chosen rates are at an end of the range" in page
    assert "(2 diverged)" in page
    assert (tmp_path / "modern" / "cifar" / "gains.svg").exists()
    with tarfile.open(tmp_path / "modern" / "store.tar.xz") as archive:
        archive.extractall(tmp_path / "again", filter="data")
    assert (
        finished(modern, tmp_path / "again" / "modern").keys() == finished(modern, tmp_path).keys()
    )


def test_all_at_one_rate_may_stand_beside_each_at_its_own(modern, publish, tmp_path):
    run_stages(modern, tmp_path, "cost", "search", "final")
    assert "all at the rate" not in "\n".join(publish())
    run_stages(modern, tmp_path, "common")
    own, common = [
        line for line in publish() if line.startswith("| elu |") and line.count("|") == 6
    ]
    assert own.split(" | ")[1].startswith("70.2")  # at 1
    assert common.split(" | ")[1].startswith("60.2")  # at 2
    assert all(line.split(" | ")[2].startswith("**+5.0") for line in (own, common))
    assert "all at the rate 2: test accuracy" in report(tmp_path)


def test_what_is_published_is_not_lost(modern, publish, tmp_path, monkeypatch, capsys):
    def refused(folder):
        monkeypatch.setattr(sys, "argv", ["publish_modern.py", str(folder)])
        with pytest.raises(SystemExit):
            publish()
        return capsys.readouterr().err

    assert "typo has no trials; give the --store of modern.py" in refused(tmp_path / "typo")
    modern.TASKS["other"] = modern.TASKS["cifar"]
    for name in ("cifar", "other"):
        assert modern.train_stage("cost", name, tmp_path, seconds=60) == 0
    monkeypatch.setattr(sys, "argv", ["publish_modern.py", str(tmp_path)])
    publish()
    (tmp_path / "half").mkdir()
    (tmp_path / "cifar").rename(tmp_path / "half" / "cifar")
    modern.train_stage("cost", "other", tmp_path / "half", seconds=0)
    assert "has no trials of other, which is published; unpack" in refused(tmp_path / "half")
    (tmp_path / "half" / "other" / "store" / "store.json").write_text("{}")
    assert "store.json" in refused(tmp_path / "half")


def test_what_is_not_trained_is_said(modern, publish, tmp_path):
    run_stages(modern, tmp_path, "cost")
    modern.TASKS["other"] = dataclasses.replace(modern.TASKS["cifar"], title="Another")
    assert "**Another.** Nothing is trained yet." in publish()


def test_a_mistake_is_one_line(modern, tmp_path, monkeypatch):
    (tmp_path / "store").write_text("no folder")
    given = ["modern.py", "cost", "cifar", "--store", str(tmp_path / "store")]
    monkeypatch.setattr(sys, "argv", given)
    with pytest.raises(SystemExit, match=r"^error: .*store"):
        modern.main()


def test_training_needs_no_package_of_the_study(tmp_path):
    script = """
import dataclasses, sys
absent = "polars scipy matplotlib jinja2 rich typer sklearn pooch ray cloudpickle"
sys.modules.update(dict.fromkeys(absent.split()))
import modern
modern.gpt.SIZES["full"] = modern.gpt.SIZES["tiny"]
modern.TASKS["gpt"] = dataclasses.replace(modern.TASKS["gpt"], activations=("elu",))
sys.argv[1:] = ["cost", "gpt", "--store", "store"]
modern.main()
"""
    path = ":".join(str(ROOT / folder) for folder in ("benchmarks", "src"))
    run = subprocess.run(
        [sys.executable, "-c", script],
        env=os.environ | {"PYTHONPATH": path},
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    first, *_, last = run.stdout.splitlines() or [run.stderr]
    assert first == "cost of gpt, trials left: 4"
    assert last == "cost of gpt, trials left: 0"
