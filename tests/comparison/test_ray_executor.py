"""Trials as Ray tasks; a fake pool runs them. On a cluster: tests/study/execution."""

import functools
import importlib
import pickle
import sys

import pytest
import torch

from qneurons.study.errors import StudyError


def test_without_ray_the_remedy_is_said(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    for name in ("comparison.ray_executor", "study.execution.ray_cluster"):
        monkeypatch.delitem(sys.modules, f"qneurons.{name}", raising=False)
    with pytest.raises(StudyError, match=r"--executor ray.* pip install 'qneurons\[ray\]'"):
        importlib.import_module("qneurons.comparison.ray_executor")


pytest.importorskip("ray")

from qneurons.comparison.executor import Done, Failed, Reported
from qneurons.comparison.ray_executor import RayExecutor, _train, pack_with_module
from qneurons.comparison.store import Spec
from qneurons.study.execution import Ended
from tests.comparison.conftest import make_train


class FakePool:
    def __init__(self):
        self.submitted, self.cancelled, self.messages = [], [], []

    def submit(self, *work):
        self.submitted.append(work)

    def listen(self, timeout_s):
        return self.messages

    def cancel(self, numbers):
        self.cancelled += numbers


def test_messages_belong_to_their_trials_and_what_runs_is_cancelled_at_the_end():
    pool, heard = FakePool(), []
    executor = RayExecutor(pool, "a command", num_workers=3)
    assert executor.num_slots == 6
    base, other = Spec("base", 0), Spec("a1", 0, (("lr", 1),))
    executor.submit(base, "base")
    executor.submit(other, "a1/3")
    assert pool.submitted == [
        (0, "training", ("base", 0, {}), "a command"),
        (1, "training", ("a1/3", 0, {"lr": 1}), "a command"),
    ]
    pool.messages = [(1, Reported(1, {})), (0, Ended(lost="a worker died"))]
    executor.poll(lambda *about: heard.append(about))
    assert heard == [(other, Reported(1, {})), (base, Ended(lost="a worker died"))]

    def listener(spec, message):
        raise StudyError("no")

    pool.messages = [(1, Reported(2, {}))]
    with pytest.raises(StudyError, match=r"^seed 0, lr=1, a1: no$"):
        executor.poll(listener)
    executor.close()
    assert pool.cancelled == [1]


def work(train):
    threads = torch.get_num_threads()
    try:
        return list(_train(pack_with_module(train), 1, ("c0.1", 3, {"lr": 1}), "a command"))
    finally:
        torch.set_num_threads(threads)


def test_a_task_yields_the_messages_of_its_trial():
    *epochs, done, end = work(make_train())
    assert [message.epoch for message in epochs] == [1, 2, 3]
    assert isinstance(done, Done)
    assert done.origin["threads"] == 1
    assert done.read == {"lr"}
    assert end == Ended()


def test_a_module_that_compares_when_it_is_imported_is_refused():
    training = b"cqneurons\ncompare\n(cbuiltins\nlen\ntR."
    (end,) = _train(training, torch.get_num_threads(), ("c0.1", 3, {}), "a command")
    assert "calls qn.compare when it is imported" in str(end.error)


def interrupt(trial, epoch):
    raise KeyboardInterrupt


def test_a_task_ends_however_its_training_ends():
    failed, end = work(make_train(before=lambda trial, epoch: 1 / 0))
    assert isinstance(failed, Failed)
    assert end == Ended()
    (end,) = work(lambda trial: None)
    assert isinstance(end.error, StudyError)
    failed, end = work(lambda trial: sys.exit(3))
    assert (failed.why, end) == ("SystemExit: 3", Ended())
    (end,) = work(make_train(before=interrupt))
    assert end.lost == "the training ended its process with KeyboardInterrupt()"


@pytest.mark.parametrize("train", [make_train, functools.partial(make_train, epochs=2)])
def test_a_training_is_sent_with_its_module_which_the_nodes_may_lack(train):
    sent = pickle.loads(pack_with_module(train))
    assert getattr(sent, "func", sent) is not make_train
    assert callable(sent())
