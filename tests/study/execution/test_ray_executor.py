"""A study on a real cluster of several nodes, of which some are lost, and so are its processes."""

import dataclasses
import os
import re
import shutil
import signal
import tempfile
import types
from pathlib import Path

import numpy as np
import pytest
import torch

pytest.importorskip("ray")
import ray.exceptions as errors

from qneurons.comparison.store import TrialStore
from qneurons.study.data import Dataset
from qneurons.study.execution import Halt, Notice, Outcome
from qneurons.study.execution.executor import (
    Ended,
    SaveRequest,
    Started,
    Task,
    Trained,
    TrainingOptions,
)
from qneurons.study.execution.jobs import Job
from qneurons.study.execution.ray_cluster import Workers
from qneurons.study.execution.ray_executor import MARGIN_S, RayExecutor, _next_message, _Pool
from qneurons.study.packs.memory import SHARE, bytes_per_run
from qneurons.study.runs import Run, Study
from qneurons.study.store import Store
from tests.study import cluster, watched
from tests.study.watched import Narrow, Watched, at_work, is_alive, wait_for

CPU = torch.device("cpu")
ROOT = Path(__file__).parents[3]


def small(num_seeds=12, epochs=4, **fields):
    about = {
        "dataset": "digits",
        "network": "mnist-mlp",
        "dropout": True,
        "activation": "elu",
        "setting": "c0.1",
        "batch_size": 64,
        "learning_rate": 0.05,
    }
    runs = tuple(Run(**(about | fields), seed=seed) for seed in range(num_seeds))
    return Study("small", "A small study", epochs, runs)


def results(folder):
    """All that is recorded but the times."""
    store = Store.open(folder, readonly=True)
    return {
        id: [str(dataclasses.replace(epoch, seconds=0.0)) for epoch in store.epochs(id)]
        for id in store.runs()
    }


def losses_of_tests(folder):
    store = Store.open(folder, readonly=True)
    return {id: [epoch.test_loss for epoch in store.epochs(id)] for id in store.runs()}


def notices(events):
    return [event.text for event in events if isinstance(event, Notice)]


# --- on a cluster ---------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def environment():
    pytest.importorskip("sklearn")
    folder = Path(tempfile.mkdtemp(prefix="qn"))  # the paths of sockets must be short
    (folder / "watched").mkdir()
    yield {
        watched.VARIABLE: str(folder / "watched"),
        "RAY_TMPDIR": str(folder),
        "PYTHONPATH": os.pathsep.join([*filter(None, [os.environ.get("PYTHONPATH")]), str(ROOT)]),
        # Everything stays on loopback, which Ray else avoids.
        "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",
        # Else the process that serves Ray's client may crash in its fork.
        "GRPC_ENABLE_FORK_SUPPORT": "0",
    }
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="module")
def nodes(environment):
    started = cluster.Nodes(environment)
    yield started
    started.shutdown()


@pytest.fixture(scope="module")
def undisturbed(environment, tmp_path_factory):
    """The same study, trained here."""
    folder = tmp_path_factory.mktemp("local") / "store"
    process = cluster.start(environment, cluster.run_here, small(), folder)
    yield lambda read=results: process.join() or read(folder)
    process.kill()


@pytest.fixture(scope="module")
def drama(nodes, environment, tmp_path_factory):
    """A study whose driver, then a worker and a node are killed, and others after it.

    Only what holds of the whole is looked at: every process here costs seconds.
    """
    seen = types.SimpleNamespace()
    seen.folder = tmp_path_factory.mktemp("drama")
    study = small(), seen.folder / "disturbed", None, {"pack_class": Watched}

    def drive(*studies):
        receiving, sending = cluster.CONTEXT.Pipe(duplex=False)
        arguments = (sending, nodes.address, studies)
        process = cluster.start(environment, cluster.run_there, *arguments)
        sending.close()
        return process, receiving

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(watched.VARIABLE, environment[watched.VARIABLE])
        hold = watched.folder() / "hold"
        hold.touch()
        driver, _ = drive(study)
        wait_for(lambda: at_work() and results(study[1]))
        driver.kill()
        driver.join()
        seen.before = results(study[1])
        wait_for(lambda: not cluster.tasks(environment))

        watched.forget()
        hold.touch()
        others = [  # the time limit is for workers that start slowly on a busy machine
            (small(4, 2), seen.folder / "narrow", None, {"pack_class": Narrow, "pack": 4}),
            (small(3, 3, learning_rate=1e5), seen.folder / "diverging", None, {}),
            (small(8, 10**6), seen.folder / "limited", 13.0, {"checkpoint_s": 1e9}),
        ]
        driver, told = drive(study, *others)
        first, second = nodes.others
        wait_for(lambda: len(at_work()) == 3)
        os.kill(at_work()[first], signal.SIGKILL)
        nodes.kill(second)
        third = nodes.add()
        wait_for(lambda: third in at_work())  # a pack that waited for a place
        hold.unlink()
        seen.outcome, events = told.recv()
        seen.notices = notices(events)
        seen.others = [told.recv() for _ in others]
        driver.join()
    return seen


def test_a_study_survives_the_loss_of_its_driver_a_worker_and_a_node(undisturbed, drama):
    assert drama.outcome is Outcome.FINISHED
    after = results(drama.folder / "disturbed")
    assert after == undisturbed()
    assert drama.before
    assert all(after[id][: len(epochs)] == epochs for id, epochs in drama.before.items())
    for loss in ("a worker died", "a node was lost"):
        assert any(f"{loss}: 2 runs" in text for text in drama.notices)
    assert list((drama.folder / "disturbed" / "claims").iterdir()) == []


def test_where_a_run_was_trained_is_told_by_its_worker(drama):
    study = small()
    origin = Store.open(drama.folder / "disturbed").origin(study.runs[-1].id)
    assert origin["threads"] == 1
    assert origin["fingerprint"]


def test_out_of_memory_in_a_worker_halves_the_pack(drama):
    outcome, events = drama.others[0]
    assert outcome is Outcome.FINISHED
    first, second = notices(events)
    assert re.search("out of memory.* 4 runs.* 2$", first)
    assert re.search("out of memory.* 2 runs.* 1$", second)
    assert {len(epochs) for epochs in results(drama.folder / "narrow").values()} == {2}


def test_divergence_is_recorded(drama):
    outcome, events = drama.others[1]
    assert outcome is Outcome.FINISHED
    assert len(Store.open(drama.folder / "diverging").diverged()) == 3
    assert all(text.startswith("diverged in epoch") for text in notices(events))


def test_a_time_limit_saves_what_the_workers_have(drama):
    outcome, events = drama.others[2]
    assert outcome is Outcome.TIME_LIMIT
    assert notices(events) == []  # that anything was lost
    store = Store.open(drama.folder / "limited")
    assert len(store.runs()) >= 2
    assert store.resumable() == store.progress()


def test_a_comparison_uses_the_cluster_too(nodes, environment, tmp_path):
    """Here, because a cluster costs seconds."""
    for package in ("cloudpickle", "jinja2", "matplotlib", "polars", "scipy"):
        pytest.importorskip(package)
    folder = tmp_path / "mine"
    cluster.start(environment, cluster.compare_there, nodes.address, folder).join()
    trials = TrialStore.open(folder / "store", readonly=True).finished.values()
    assert {str(trial.spec) for trial in trials} == {
        *("seed 0, base", "seed 0, c0.1", "seed 0, a1", "seed 1, base", "seed 1, a1")
    }
    for trial in trials:
        assert trial.measured.metrics["threads"] == [1, 1]
        assert trial.setting == ("a1/2" if trial.spec.arm == "a1" else trial.spec.arm)
    losses = {trial.spec.seed: trial.measured.metrics["test_loss"] for trial in trials}
    assert losses[0] != losses[1]
    assert "ZeroDivisionError: by chance" in (folder / "report" / "report.html").read_text()


SPEC = """\
title = "A small study"
epochs = 20
seeds = 12

[[grid]]
dataset = "digits"
network = "mnist-mlp"
dropout = true
activation = "elu"
setting = "c0.1"
batch_size = 64
learning_rate = 0.05
"""


def test_a_client_streams_too_and_ctrl_c_cancels_its_tasks(
    nodes, environment, undisturbed, tmp_path
):
    pytest.importorskip("grpc")
    spec, store, said = tmp_path / "small.toml", tmp_path / "store", tmp_path / "said"
    spec.write_text(SPEC)
    where = ("--executor", "ray", "--address", nodes.client_address)
    arguments = ("study", "run", spec, "--store", store, "--pack", 2, *where)
    process = cluster.start(environment, cluster.command, said, *arguments)
    header = store / "store.json"
    wait_for(lambda: process.exitcode is not None or (header.exists() and results(store)))
    tasks = cluster.tasks(environment)
    os.kill(process.pid, signal.SIGINT)
    process.join()
    text = said.read_text()
    assert process.exitcode == 130, text
    assert "cancelling" in text
    assert re.search(f"interrupted: .*saved .*{re.escape(str(store))}", text)
    assert tasks
    wait_for(lambda: not any(map(is_alive, tasks)))
    # Nothing else is evaluated after every epoch of twenty.
    found, expected = losses_of_tests(store), undisturbed(losses_of_tests)
    assert 2 <= len(found) < 12
    assert all(epochs[:4] == expected[id] for id, epochs in found.items())


# --- without one ----------------------------------------------------------------------------------


class FakePool:
    """Has prepared messages for each task, and gives them one by one."""

    def __init__(self, *prepared):
        self.prepared = iter(prepared)
        self.running, self.shared, self.submitted, self.cancelled = {}, [], [], []

    def share(self, name, arrays):
        self.shared.append((name, type(arrays["x_train"]), arrays["fingerprint"]))

    def submit(self, number, name, *work):
        self.submitted.append((name, *work))
        self.running[number] = iter(next(self.prepared))

    def listen(self, timeout_s):
        messages = [
            (number, message)
            for number, stream in self.running.items()
            if (message := next(stream, None)) is not None
        ]
        for number, message in messages:
            if isinstance(message, Ended):
                del self.running[number]
        return messages

    def cancel(self, numbers):
        self.cancelled += [number for number in numbers if number in self.running]


def workers(*, num_packs=1, free=10**12):
    return Workers(CPU, num_packs, free, {"num_cpus": 1.0})


def fake_tasks(count):
    tensors = dict.fromkeys(("x_train", "y_train", "x_test", "y_test"), torch.zeros(2))
    dataset = Dataset("digits", **tensors, fingerprint="f")
    state, options = {"weight": torch.ones(1, 3)}, TrainingOptions("fp32", 4)
    return [Task(Job((run,), 2), dataset, options, lambda: state) for run in small(count).runs]


def submitted(pool, tasks, halt=None):
    executor = RayExecutor(workers(), pool, halt or Halt())
    for task in tasks:
        assert executor.has_room
        executor.submit(task)
    return executor


def test_all_packs_are_submitted_at_once_and_the_data_only_once():
    pool = FakePool(*[[Started({}), Ended()]] * 3)
    tasks = fake_tasks(3)
    executor = submitted(pool, tasks)
    assert executor.poll() == [(task, Started({})) for task in tasks]
    assert executor.poll() == [(task, Ended()) for task in tasks]
    assert pool.shared == [("digits", np.ndarray, "f")]
    assert [type(state["weight"]) for _, _, state, *_ in pool.submitted] == [np.ndarray] * 3
    assert pool.cancelled == []


def test_states_arrive_as_tensors_of_their_own():
    array = np.ones((1, 3))
    array.flags.writeable = False  # as in the object store
    (task,) = fake_tasks(1)
    pool = FakePool([SaveRequest(task.job.runs, [], {"weight": array}, 3)])
    ((_, saving),) = submitted(pool, [task]).poll()
    saving.state["weight"] += 1
    assert array.sum() == 3


def test_a_stop_cancels_everything():
    pool, tasks = FakePool([Started({})], []), fake_tasks(2)
    first, second = tasks
    messages = submitted(pool, tasks, Halt(lambda: True)).poll()
    assert messages == [(first, Started({})), (first, Ended()), (second, Ended())]
    assert pool.cancelled == [0, 1]


def test_what_is_cancelled_is_not_heard_of_again():
    pool, tasks = FakePool([Started({})], [Ended()], []), fake_tasks(3)
    executor = submitted(pool, tasks)
    executor.poll()
    executor.cancel(tasks)  # of which one has ended
    assert pool.cancelled == [0, 2]
    executor.cancel(tasks)
    assert pool.cancelled == [0, 2]


def test_at_the_time_limit_those_at_work_are_waited_for_and_the_others_cancelled(monkeypatch):
    now = [1000.0]
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    monkeypatch.setattr("time.time", lambda: 5000.0)

    def late():
        yield Started({})
        now[0] += 96.0  # past 100 less the margin, and short of 100
        yield Trained(3, [], 1.0)
        yield Ended()

    halt, tasks = Halt(time_limit=100.0), fake_tasks(2)
    pool = FakePool(late(), [])
    executor = submitted(pool, tasks, halt)
    first, second = tasks
    assert executor.poll() == [(first, Started({}))]
    assert executor.poll() == [(first, Trained(3, [], 1.0)), (second, Ended())]
    assert halt.outcome is Outcome.TIME_LIMIT
    assert executor.poll() == [(first, Ended())]
    assert pool.cancelled == [1]
    assert [deadline for *_, deadline in pool.submitted] == [5000.0 + 100 - MARGIN_S] * 2

    def too_late():
        yield Started({})
        now[0] += 101.0
        yield Trained(1, [], 1.0)
        yield Ended()

    pool = FakePool(too_late())
    executor = submitted(pool, tasks[:1], Halt(time_limit=100.0))
    executor.poll()
    assert executor.poll() == [(first, Trained(1, [], 1.0)), (first, Ended())]
    assert pool.cancelled == [0]


def test_a_short_time_limit_has_a_short_margin(monkeypatch):
    monkeypatch.setattr("time.monotonic", lambda: 1000.0)
    monkeypatch.setattr("time.time", lambda: 5000.0)
    pool = FakePool([], [])
    submitted(pool, fake_tasks(1), Halt(time_limit=10.0))
    submitted(pool, fake_tasks(1))
    assert [deadline for *_, deadline in pool.submitted] == [5009.0, None]


def test_packs_are_small_enough_for_all_slots_and_fit_a_worker():
    run = small().runs[0]
    need = bytes_per_run(run, (1, 28, 28))
    some = int(4.01 * need / SHARE)
    for num, free, size in [(4, 10**12, 5), (1, 10**12, 10), (1, some, 4), (10**3, None, 1)]:
        offered = workers(num_packs=num, free=free)
        assert RayExecutor(offered, None, Halt()).pack_size(run, 60) == size


class Failing:
    def __init__(self, error):
        self.error = error

    def __next__(self):
        raise self.error


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (errors.NodeDiedError("n"), Ended(lost="a node was lost")),
        (errors.WorkerCrashedError(), Ended(lost="a worker died")),
        (StopIteration(), Ended(lost="a task was lost (StopIteration)")),
        (errors.OutOfMemoryError("m"), Ended(out_of_memory=True)),
    ],
)
def test_what_becomes_of_a_task(error, message):
    assert _next_message(Failing(error)) == message


def test_an_error_of_a_task_is_its_own_unless_the_device_is_bad():
    cause = ValueError("shapes do not fit")
    ended = _next_message(Failing(errors.RayTaskError("f", "a traceback", cause)))
    assert ended == Ended(error=cause)
    cause = RuntimeError("CUDA error: uncorrectable ECC error\nCompile with ...")
    ended = _next_message(Failing(errors.RayTaskError("f", "a traceback", cause)))
    assert ended == Ended(lost="a worker failed (CUDA error: uncorrectable ECC error)")


def test_an_error_of_a_task_comes_after_the_other_messages(monkeypatch):
    streams = {0: Failing(errors.RayTaskError("f", "a traceback", ValueError())), 1: iter("a")}
    pool = _Pool.__new__(_Pool)
    pool._streams = dict(streams)
    monkeypatch.setattr("ray.wait", lambda all, **options: (all, []))
    monkeypatch.setattr("ray.get", lambda item: Trained(1, [], 1.0))
    (_, first), (number, second) = pool.listen(0.0)
    assert isinstance(first, Trained)
    assert (number, type(second.error)) == (0, ValueError)
    assert list(pool._streams) == [1]
