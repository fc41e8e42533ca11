"""A study in front of the user: where it trains, how it stops, what the exit code says."""

import contextlib
import re
import signal

import pytest
import torch

from qneurons.cli import training
from qneurons.cli.training import chosen_device, chosen_precision
from qneurons.study.errors import StudyError
from qneurons.study.store import Store

CPU, CUDA = torch.device("cpu"), torch.device("cuda")


@pytest.fixture
def run(invoke, write_spec):
    spec = write_spec()
    return lambda *options: invoke(
        "study", "run", spec, "--device", "cpu", "--store", "s", *options
    )


def done(folder="s"):
    return sum(Store.open(folder).progress().values())


def test_a_finished_study_exits_with_0(run, train_with, fake_pack):
    train_with(fake_pack())
    result = run()
    assert (result.exit_code, done()) == (0, 12 * 4)
    assert result.stdout.splitlines() == [
        "finished: 12 runs of 4 epochs in s",
        "next: qneurons report s",
    ]


def test_one_run_of_one_epoch_is_not_told_in_the_plural(run, invoke, train_with, fake_pack):
    train_with(fake_pack())
    one = ("--only", "activation=elu,setting=base", "--seeds", 0, "--epochs", 1)
    assert run(*one).stdout.splitlines()[0] == "finished: 1 run of 1 epoch in s"
    assert invoke("study", "status", "s").stdout.startswith("s: 1 of 1 run, 1 of 1 epoch\n")


def test_a_time_limit_exits_with_3_and_the_same_command_goes_on(run, train_with, fake_pack):
    train_with(fake_pack())
    result = run("--time-limit", 0)
    assert result.exit_code == 3
    assert "same command" in result.stderr
    assert run("--time-limit", 600).exit_code == 0


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_exits_with_130_and_everything_saved(run, train_with, fake_pack, number):
    sent = []

    def once(pack):
        if pack.epoch == 2 and not sent:
            sent.append(number)
            signal.raise_signal(number)

    train_with(fake_pack(on_step=once))
    result = run("--pack", 12)
    assert result.exit_code == 130
    assert "interrupted: everything is saved in s" in result.stderr
    assert done() in (12 * 2, 12 * 3)
    resumed = train_with(fake_pack())
    assert run("--pack", 12).exit_code == 0
    assert resumed.built[0][1] in (2, 3)


def test_a_second_signal_stops_at_once_with_a_sound_store(run, train_with, fake_pack):
    def on_step(pack):
        if pack.epoch == 2:
            signal.raise_signal(signal.SIGINT)
            signal.raise_signal(signal.SIGINT)

    train_with(fake_pack(on_step=on_step))
    result = run("--pack", 12)
    assert result.exit_code == 130
    assert "stopped at once" in result.stderr
    assert done() in (12, 24)
    train_with(fake_pack())
    assert run("--pack", 12).exit_code == 0


def test_options_reach_the_runner(run, monkeypatch, tmp_path):
    caught = {}

    def fake(study, store, executor, **options):
        caught.update(options, study=study, executor=executor)
        return training.Outcome.FINISHED

    monkeypatch.setattr(training, "run_study", fake)
    common = ("--only", "activation=elu", "--seeds", "3-4", "--data-dir", tmp_path)
    options = ("--pack", 5, "--time-limit", 540, "--precision", "bf16")
    assert run(*common, *options, "--epochs", 4).exit_code == 0
    assert {run.seed for run in caught["study"].runs} == {3, 4}
    assert {run.activation for run in caught["study"].runs} == {"elu"}
    expected = {
        "pack": 5,
        "precision": "bf16",
        "data_dir": tmp_path,
        "keep_state": False,
    }
    assert expected.items() <= caught.items()
    assert caught["executor"].device == CPU
    assert 500 < caught["executor"].halt.left_s <= 540
    assert caught["command"].startswith("qneurons")
    run("--epochs", 3)
    assert caught["keep_state"]  # the rest of the four may follow
    assert caught["precision"] == "fp32"


class FakeCluster:
    device = CPU


@pytest.fixture
def fake_cluster(monkeypatch):
    """Takes the place of a cluster; gives what it was asked for."""
    asked = {}

    @contextlib.contextmanager
    def connected(address):
        asked["address"] = address
        yield

    def find(**options):
        asked.update(options)
        if asked.get("busy"):
            return None if options["halt"]() else pytest.fail("there is no more time")
        return FakeCluster()

    monkeypatch.setattr("qneurons.study.execution.ray_cluster.connected", connected)
    monkeypatch.setattr("qneurons.study.execution.ray_executor.ray_executor", find)
    return asked


def test_options_reach_the_cluster(run, monkeypatch, fake_cluster):
    caught = {}

    def fake(study, store, executor, **options):
        print("from Ray's logs")
        caught.update(options, executor=executor)
        return training.Outcome.INTERRUPTED

    monkeypatch.setattr(training, "run_study", fake)
    assert run("--executor", "ray").exit_code == 130
    assert fake_cluster["address"] == "auto"
    assert (fake_cluster["num_cpus"], fake_cluster["num_gpus"]) == (1.0, None)
    options = ("--address", "ray://head:10001", "--cpus-per-pack", 2, "--gpus-per-pack", 0.5)
    result = run("--executor", "ray", *options)
    assert fake_cluster["address"] == "ray://head:10001"
    assert (fake_cluster["num_cpus"], fake_cluster["num_gpus"]) == (2.0, 0.5)
    assert fake_cluster["device"] == "cpu"
    assert isinstance(caught["executor"], FakeCluster)
    assert fake_cluster["halt"].left_s == float("inf")
    run("--executor", "ray", "--time-limit", 100)
    assert 50 < fake_cluster["halt"].left_s < 100
    assert "from Ray's logs" not in result.output
    # Not that everything is: what was being trained is cancelled.
    assert "interrupted: everything that was saved" in result.stderr


def test_a_time_limit_holds_while_all_workers_are_busy(run, fake_cluster):
    fake_cluster["busy"] = True
    result = run("--executor", "ray", "--time-limit", 0)
    assert result.exit_code == 3
    assert "time limit before" in result.stderr


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--executor", "rya"), "'rya'.* 'ray'"),
        (("--address", "auto"), "--address .*--executor ray"),
        (("--gpus-per-pack", 1), "--gpus-per-pack .*--executor ray"),
    ],
)
def test_executors_and_options_that_do_not_go_together(run, options, message):
    result = run(*options)
    assert result.exit_code == 1
    assert re.search(message, result.stderr.replace("\n", " "))


def test_devices(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert chosen_device(None) == CPU
    with pytest.raises(StudyError, match=r"no CUDA device.* --device cpu$"):
        chosen_device("cuda")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert chosen_device(None) == CUDA
    assert chosen_device("cuda:1") == torch.device("cuda:1")
    assert chosen_device("cpu") == CPU
    with pytest.raises(StudyError, match=r"no cuda:2, torch finds cuda:0 to cuda:1;"):
        chosen_device("cuda:2")
    for name in ("tpu", "mps", "cuda:", "cuda:x", "cpu:0", "cudax"):
        with pytest.raises(StudyError, match=f"--device .*cpu.* {name!r}"):
            chosen_device(name)


def test_precisions():
    assert chosen_precision(None, CPU) == "fp32"
    assert chosen_precision(None, CUDA) == "tf32"
    assert chosen_precision("bf16", CPU) == "bf16"
    with pytest.raises(StudyError, match="did you mean 'bf16'"):
        chosen_precision("bf61", CPU)
    with pytest.raises(StudyError, match="--precision fp32"):
        chosen_precision("tf32", CPU)
