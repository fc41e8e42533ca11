"""Trials in other processes: what a kill costs, which GPU each sees, how a training gets there."""

import atexit
import itertools
import os
import pickle
import signal
import threading
from multiprocessing.connection import Pipe
from types import SimpleNamespace

import pytest
import torch

cloudpickle = pytest.importorskip("cloudpickle")

from qneurons.comparison import process_executor
from qneurons.comparison.arms import parse_arms
from qneurons.comparison.executor import Failed, Reported
from qneurons.comparison.process_executor import ProcessExecutor, pack, worker_variables
from qneurons.comparison.session import Session, make_specs
from qneurons.comparison.store import Spec, TrialStore
from qneurons.study.errors import StudyError
from qneurons.study.execution import Ended
from tests.comparison.conftest import make_train


def test_a_killed_process_loses_its_trial_alone_and_is_replaced(tmp_path):
    flag, pids = tmp_path / "killed", tmp_path / "pids"

    def before(trial, epoch):
        with pids.open("a") as file:
            print(os.getpid(), file=file)
        if epoch == 0:
            atexit.register((tmp_path / "ended").touch)
        if (trial.seed, trial.setting, epoch) == (1, "c0.1", 1) and not flag.exists():
            flag.touch()
            os.kill(os.getpid(), signal.SIGKILL)

    arms, lines, seeds_done = parse_arms(["base", "c0.1", "a1"]), [], []
    specs = make_specs(arms, [0, 1], [()])
    store = TrialStore.open(tmp_path / "store", create=True)
    executor = ProcessExecutor(make_train(before=before), "a command", 2)
    by_name = {arm.name: arm for arm in arms}
    session = Session(executor, store, by_name, "3.11-a", lines.append)
    session.run(specs, lambda: seeds_done.append(len(store.finished)))
    assert session.failed == {}
    assert {trial.spec for trial in store.finished.values()} == {*specs}
    assert [trial.setting for trial in store.finished.values() if trial.spec.arm == "a1"] == [
        *("a1/3", "a1/3")
    ]
    (lost,) = [line for line in lines if "SIGKILL" in line]
    assert lost == "seed 1, c0.1: its process ended with signal SIGKILL; it begins again"
    assert seeds_done[-1] == 6
    used = {int(line) for line in pids.read_text().split()}
    assert len(used) >= 2
    assert (tmp_path / "ended").exists()
    assert os.getpid() not in used
    for pid in used:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)
    assert not list((tmp_path / "store" / "claims").glob("*.json"))


class FakeWorker:
    def __init__(self, variables, command, training):
        self.variables, self.sent, self.usable, self.calls = variables, [], True, []
        self.connection = None

    def is_usable(self):
        return self.usable

    def send(self, trial):
        self.sent.append(trial)

    def messages(self):
        return [Ended() if self.usable else Ended(lost="it died")]

    def end(self, *, at_once):
        self.calls.append(f"end, {at_once=}")

    def join(self, patience_s=0.0):
        self.calls.append(patience_s)


@pytest.fixture
def workers(monkeypatch):
    """Those that were made."""
    made = []

    def make(*arguments):
        made.append(FakeWorker(*arguments))
        return made[-1]

    monkeypatch.setattr(process_executor, "_Worker", make)
    monkeypatch.setattr(process_executor, "wait", lambda connections, timeout: None)
    return made


def test_a_process_that_cannot_be_used_any_more_is_replaced(workers):
    executor = ProcessExecutor(make_train(), "a command", 1)
    heard = []
    for usable in (True, False, True):
        executor.submit(Spec("base", 0), "base")
        workers[-1].usable = usable
        executor.poll(lambda spec, message: heard.append((spec.arm, message)))
    assert heard == [("base", end) for end in (Ended(), Ended(lost="it died"), Ended())]
    assert [len(worker.sent) for worker in workers] == [2, 1]
    assert [worker.calls for worker in workers] == [["end, at_once=True", 0.0], []]


def test_at_the_end_all_workers_are_told_first_and_share_one_deadline(workers, monkeypatch):
    executor = ProcessExecutor(make_train(), "a command", 3)
    for arm in ("base", "limit", "a1"):
        executor.submit(Spec(arm, 0), arm)
    executor.poll(lambda spec, message: None)
    executor.submit(Spec("base", 1), "base")
    calls, now = [], itertools.count()
    monkeypatch.setattr(process_executor.time, "monotonic", lambda: next(now))
    for worker in workers:
        worker.calls = calls
    executor.close()
    patience = process_executor.PATIENCE_S
    assert calls == [
        *("end, at_once=True", "end, at_once=False", "end, at_once=False"),
        *(patience - 1, patience - 2, patience - 3),
    ]


def test_a_worker_that_does_not_end_in_time_is_killed():
    worker = process_executor._Worker({}, "a command", b"")
    os.kill(worker._process.pid, signal.SIGSTOP)
    worker.end(at_once=False)
    worker.join()
    assert worker._process.returncode == -signal.SIGKILL


def test_every_slot_has_its_worker_and_errors_name_the_trial(workers):
    executor = ProcessExecutor(make_train(), "a command", 2)
    executor.submit(Spec("base", 0), "base")
    executor.submit(Spec("a1", 0, (("lr", 1),)), "a1/3")
    assert [worker.sent for worker in workers] == [[("base", 0, {})], [("a1/3", 0, {"lr": 1})]]

    def listener(spec, message):
        if spec.arm == "a1":
            raise StudyError("no")

    with pytest.raises(StudyError, match=r"^seed 0, lr=1, a1: no$"):
        executor.poll(listener)


def worker_with(status, *sent):
    """A worker whose process has that status, and has sent these messages."""
    worker = process_executor._Worker.__new__(process_executor._Worker)
    worker.connection, other = Pipe()
    worker._process, worker._has_failed = SimpleNamespace(poll=lambda: status), False
    for message in sent:
        other.send(message)
    other.close()
    return worker


def test_a_worker_is_not_used_again_after_a_failure():
    failed = Failed("CUDA error", "a traceback")
    worker = worker_with(None, failed, Ended())
    assert worker.is_usable()
    assert list(worker.messages()) == [failed, Ended()]
    assert not worker.is_usable()
    worker.connection.close()


@pytest.mark.parametrize(("status", "how"), [(-9, "signal SIGKILL"), (3, "status 3")])
def test_what_a_worker_has_sent_before_it_ended_is_heard(status, how):
    worker = worker_with(status, Reported(1, {}))
    assert list(worker.messages()) == [
        Reported(1, {}),
        Ended(lost=f"its process ended with {how}"),
    ]
    assert not worker.is_usable()
    worker.connection.close()


def test_every_worker_sees_a_gpu_of_its_own(monkeypatch):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert "CUDA_VISIBLE_DEVICES" not in worker_variables(0, 2)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)

    def seen():
        return [worker_variables(slot, 3)["CUDA_VISIBLE_DEVICES"] for slot in range(3)]

    assert seen() == ["0", "1", "0"]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "5,GPU-4f")
    assert seen() == ["5", "GPU-4f", "5"]


def test_the_threads_of_the_cpu_are_shared_unless_the_user_has_set_them(monkeypatch):
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 8)
    threads = [worker_variables(0, num)["OMP_NUM_THREADS"] for num in (1, 3, 20)]
    assert threads == ["8", "2", "1"]
    monkeypatch.setenv("OMP_NUM_THREADS", "6")
    assert worker_variables(0, 3)["OMP_NUM_THREADS"] == "6"


def test_a_training_goes_by_name_if_it_can_be_imported_and_else_by_value():
    assert pickle.loads(pack(make_train, cloudpickle)) is make_train
    assert pickle.loads(pack(lambda trial: trial + 1, cloudpickle))(2) == 3


def test_a_training_that_cannot_be_sent():
    lock = threading.Lock()
    with pytest.raises(StudyError, match=r"cannot pickle '_thread\.lock'.*processes=0") as error:
        pack(lambda trial: lock, cloudpickle)
    assert "\n" not in str(error.value)
