"""A study on a real cluster of several nodes, of which some are lost, and so are its processes."""

import dataclasses
import os
import shutil
import signal
import tempfile
import types
from pathlib import Path

import numpy as np
import pytest
import torch

from qneurons.study.data import Dataset
from qneurons.study.execution.executor import (
    Began,
    Ended,
    Halt,
    Outcome,
    Saving,
    Task,
    Terms,
    Trained,
    never,
)
from qneurons.study.execution.plan import Job
from qneurons.study.execution.progress import Notice
from qneurons.study.execution.ray_cluster import Offer
from qneurons.study.execution.ray_executor import MARGIN_S, RayExecutor, _hear
from qneurons.study.packs.memory import bytes_per_run
from qneurons.study.runs import Run, Study
from qneurons.study.store import Store
from tests.study import cluster, watched
from tests.study.watched import Narrow, Watched, at_work, is_alive, wait_for

CPU = torch.device("cpu")
ROOT = Path(__file__).parent.parent.parent


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


def notices(events):
    return [event.text for event in events if isinstance(event, Notice)]


# --- on a cluster ---------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def environment():
    pytest.importorskip("ray")
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
    yield lambda: process.join() or results(folder)
    process.kill()


@pytest.fixture(scope="module")
def drama(nodes, environment, tmp_path_factory):
    """A study whose driver, then a worker and a node are killed, and others after it.

    Only what holds of the whole is looked at: every process here costs seconds.
    """
    seen = types.SimpleNamespace()
    seen.folder = tmp_path_factory.mktemp("drama")
    study = small(), seen.folder / "disturbed", {"pack_class": Watched}

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
        workers = [process for processes in at_work().values() for process in processes]
        wait_for(lambda: not any(map(is_alive, workers)))

        watched.forget()
        hold.touch()
        others = [
            (small(4, 2), seen.folder / "narrow", {"pack_class": Narrow, "pack": 4}),
            (small(3, 3, learning_rate=1e5), seen.folder / "diverging", {}),
            (small(8, 10**6), seen.folder / "limited", {"time_limit": 8.0, "checkpoint_s": 1e9}),
        ]
        driver, told = drive(study, *others)
        first, second = nodes.others
        worker = wait_for(lambda: len(at_work()) == 3 and at_work()[first][0])
        os.kill(worker, signal.SIGKILL)
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
        assert any(f"{loss}: 2 runs are trained again" in text for text in drama.notices)
    assert list((drama.folder / "disturbed" / "claims").iterdir()) == []


def test_where_a_run_was_trained_is_told_by_its_worker(drama):
    study = small()
    origin = Store.open(drama.folder / "disturbed").origin(study.runs[-1].id)
    assert origin["threads"] == 1
    assert origin["fingerprint"]


def test_out_of_memory_in_a_worker_halves_the_pack(drama):
    outcome, events = drama.others[0]
    assert outcome is Outcome.FINISHED
    assert notices(events) == [
        "out of memory with 4 runs in a pack: going on with 2",
        "out of memory with 2 runs in a pack: going on with 1",
    ]
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
    assert "cancelling the tasks" in text
    assert f"interrupted: everything that was saved is in {store}" in text
    assert tasks
    wait_for(lambda: not any(map(is_alive, tasks)))
    found, expected = results(store), undisturbed()
    assert 2 <= len(found) < 12
    assert all(epochs[:4] == expected[id] for id, epochs in found.items())


# --- without one ----------------------------------------------------------------------------------


class FakePool:
    """Tells what is prepared for each task, one thing at a time."""

    def __init__(self, *prepared):
        self.prepared = iter(prepared)
        self.running, self.held, self.submitted, self.cancelled = {}, [], [], []

    def hold(self, name, arrays):
        self.held.append((name, type(arrays["x_train"])))

    def submit(self, number, name, work):
        self.submitted.append((name, *work))
        self.running[number] = iter(next(self.prepared))

    def listen(self, timeout_s):
        heard = [
            (number, told)
            for number, stream in self.running.items()
            if (told := next(stream, None)) is not None
        ]
        for number, told in heard:
            if isinstance(told, Ended):
                del self.running[number]
        return heard

    def cancel(self, numbers):
        self.cancelled += [number for number in numbers if number in self.running]


def offer(*, slots=1, free=10**12):
    return Offer(CPU, slots, free)


def fake_tasks(count):
    tensors = dict.fromkeys(("x_train", "y_train", "x_test", "y_test"), torch.zeros(2))
    dataset = Dataset("digits", **tensors, fingerprint="f")
    state = {"weight": torch.ones(1, 3)}
    return [Task(Job((run,), 2), dataset, lambda: state) for run in small(count).runs]


def trained(pool, tasks, halt=None):
    waiting = iter(tasks)
    executor, terms = RayExecutor(offer(), pool), Terms(CPU, "fp32", 4)
    return executor.train(lambda: next(waiting, None), terms, halt or Halt(never, None))


def test_all_packs_are_submitted_at_once_and_the_data_only_once():
    pool = FakePool(*[[Began({}), Ended()]] * 3)
    tasks = fake_tasks(3)
    told = list(trained(pool, tasks))
    assert told == [(task, Began({})) for task in tasks] + [(task, Ended()) for task in tasks]
    assert pool.held == [("digits", np.ndarray)]
    assert [type(state["weight"]) for _, _, state, *_ in pool.submitted] == [np.ndarray] * 3
    assert pool.cancelled == []


def test_states_arrive_as_tensors_of_their_own():
    array = np.ones((1, 3))
    array.flags.writeable = False  # as in the object store
    (task,) = fake_tasks(1)
    pool = FakePool([Began({}), Saving(task.job.runs, [], {"weight": array}, 3), Ended()])
    _, (_, saving), _ = trained(pool, [task])
    saving.state["weight"] += 1
    assert array.sum() == 3


def test_a_stop_cancels_everything():
    pool = FakePool([Began({})], [])
    told = list(trained(pool, fake_tasks(2), Halt(lambda: True, None)))
    assert len(told) == 1
    assert pool.cancelled == [0, 1]


def test_closed_early_it_leaves_nothing_running():
    pool = FakePool([Began({})], [])
    telling = trained(pool, fake_tasks(2))
    next(telling)
    telling.close()
    assert pool.cancelled == [0, 1]


def test_an_error_of_who_listens_is_not_hidden_by_tasks_that_just_ended():
    pool = FakePool([Trained(1, [], 1.0)], [Ended()], [])
    telling = trained(pool, fake_tasks(3))
    next(telling)
    with pytest.raises(OSError, match="full"):
        telling.throw(OSError("full"))
    assert pool.cancelled == [0, 2]


def test_an_error_of_a_task_is_raised_after_what_else_was_told():
    pool = FakePool([Trained(1, [], 1.0)], [ValueError("shapes do not fit")])
    telling = trained(pool, fake_tasks(2))
    assert isinstance(next(telling)[1], Trained)
    with pytest.raises(ValueError, match="shapes do not fit"):
        next(telling)
    assert pool.cancelled == [0, 1]


def test_at_the_time_limit_those_at_work_are_waited_for_and_the_others_cancelled(monkeypatch):
    now = [1000.0]
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    monkeypatch.setattr("time.time", lambda: 5000.0)

    def late():
        yield Began({})
        now[0] += 96.0  # past 100 less the margin, and short of 100
        yield Ended()

    pool = FakePool(late(), [])
    halt = Halt(never, 100.0)
    tasks = fake_tasks(2)
    assert list(trained(pool, tasks, halt)) == [(tasks[0], Began({})), (tasks[0], Ended())]
    assert halt.outcome is Outcome.TIME_LIMIT
    assert pool.cancelled == [1]
    assert [deadline for *_, deadline in pool.submitted] == [5000.0 + 100 - MARGIN_S] * 2

    def too_late():
        yield Began({})
        now[0] += 101.0
        yield Trained(1, [], 1.0)
        yield Ended()

    pool = FakePool(too_late())
    assert len(list(trained(pool, tasks[:1], Halt(never, 100.0)))) == 2
    assert pool.cancelled == [0]


def test_packs_are_small_enough_for_all_slots_and_fit_a_worker():
    run = small().runs[0]
    need = bytes_per_run(run, (1, 28, 28))
    for slots, free, size in [(4, 10**12, 5), (1, 10**12, 10), (1, 5 * need, 4), (10**3, None, 1)]:
        assert RayExecutor(offer(slots=slots, free=free), None).pack_size(run, 60) == size


def test_what_becomes_of_a_task():
    errors = pytest.importorskip("ray.exceptions")

    class Failing:
        def __init__(self, error):
            self.error = error

        def __next__(self):
            raise self.error

    assert _hear(Failing(errors.NodeDiedError("n"))) == Ended(lost="a node was lost")
    assert _hear(Failing(errors.WorkerCrashedError())) == Ended(lost="a worker died")
    assert _hear(Failing(StopIteration())) == Ended(lost="a task was lost (StopIteration)")
    assert _hear(Failing(errors.OutOfMemoryError("m"))) == Ended(out_of_memory=True)
    cause = ValueError("shapes do not fit")
    assert _hear(Failing(errors.RayTaskError("f", "a traceback", cause))) is cause
    cause = RuntimeError("CUDA error: uncorrectable ECC error\nCompile with ...")
    lost = "a worker failed (CUDA error: uncorrectable ECC error)"
    assert _hear(Failing(errors.RayTaskError("f", "a traceback", cause))) == Ended(lost=lost)
