"""A worker process, in a thread of this one."""

import os
import threading
from multiprocessing.connection import Pipe

import pytest

cloudpickle = pytest.importorskip("cloudpickle")

from qneurons.comparison import worker
from qneurons.comparison.executor import Done, Failed, Reported
from qneurons.study.errors import StudyError
from qneurons.study.execution import Ended
from tests.comparison.conftest import make_train


@pytest.fixture
def serve(monkeypatch):
    """Sends a training and trials; gives what the worker says until the connection is closed."""
    monkeypatch.setattr(worker, "end_with", lambda parent: None)

    def send(training, num_trials):
        here, there = Pipe()
        fd = os.dup(there.fileno())  # the worker closes it
        there.close()
        thread = threading.Thread(target=worker.serve, args=(fd, 0, "a command"))
        thread.start()
        here.send_bytes(training)
        found = []
        for _ in range(num_trials):
            here.send(("c0.1", 3, {"lr": 0.5}))
            found.append([])
            while not (found[-1] and isinstance(found[-1][-1], Ended)):
                found[-1].append(here.recv())
        here.close()
        thread.join(30)
        assert not thread.is_alive()
        return found

    return send


def test_trial_after_trial_is_run(serve):
    first, second = serve(cloudpickle.dumps(make_train()), 2)
    assert first[-2].read == {"lr"}
    assert [type(message) for message in first] == [Reported] * 3 + [Done, Ended]
    assert first[-2].origin["command"] == "a command"
    assert second[-2].measured.metrics == first[-2].measured.metrics


@pytest.mark.parametrize("error", [EOFError, BrokenPipeError, ConnectionResetError])
def test_it_ends_quietly_if_its_parent_was_killed(monkeypatch, error):
    class Closed:
        def __init__(self, fd):
            pass

        def recv_bytes(self):
            raise error

    monkeypatch.setattr(worker, "end_with", lambda parent: None)
    monkeypatch.setattr(worker, "Connection", Closed)
    assert worker.serve(0, 0, "a command") is None


def test_wrong_use_is_told(serve):
    ((end,),) = serve(cloudpickle.dumps(lambda trial: None), 1)
    assert isinstance(end.error, StudyError)
    assert "reported nothing" in str(end.error)


def test_a_training_that_cannot_be_loaded_is_a_failure_with_a_traceback(serve):
    ((failed, end),) = serve(b"cnowhere\ntrain\n.", 1)
    assert failed == Failed("ModuleNotFoundError: No module named 'nowhere'", failed.traceback)
    assert failed.traceback.startswith("Traceback")
    assert end == Ended()


def test_a_module_that_compares_when_it_is_imported_is_refused(serve):
    ((end,),) = serve(b"cqneurons\ncompare\n(cbuiltins\nlen\ntR.", 1)
    assert "calls qn.compare when it is imported" in str(end.error)


def test_it_ends_with_its_parent(monkeypatch):
    parents, waited = iter([7, 7, 1]), []
    monkeypatch.setattr(os, "getppid", lambda: next(parents))
    monkeypatch.setattr(worker.time, "sleep", waited.append)
    monkeypatch.setattr(os, "_exit", lambda status: waited.append("ended"))
    worker.end_with(7)
    assert waited == [worker.WATCH_S, worker.WATCH_S, "ended"]
