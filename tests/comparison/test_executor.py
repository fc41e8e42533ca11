"""What is said about a trial, and which errors end everything."""

import traceback

import pytest
import torch

from qneurons.comparison import executor
from qneurons.comparison.executor import Done, Failed, LocalExecutor, Reported
from qneurons.comparison.store import Spec
from qneurons.study.errors import StudyError
from qneurons.study.execution import Ended
from tests.comparison.conftest import make_train

SPEC = Spec("c0.1", 3, (("lr", 0.5),))


def run(train, listener=lambda spec, message: None):
    """The messages of a trial in this process."""
    found = []

    def listen(spec, message):
        assert spec == SPEC
        found.append(message)
        listener(spec, message)

    local = LocalExecutor(train, "a command")
    local.submit(SPEC, "c0.1")
    local.poll(listen)
    local.close()
    return found


def test_a_trial_reports_every_epoch_and_then_what_was_measured():
    *epochs, done, end = run(make_train())
    assert [message.epoch for message in epochs] == [1, 2, 3]
    assert all(isinstance(message, Reported) for message in epochs)
    assert isinstance(done, Done)
    assert done.measured.metrics["test_accuracy"] == [m.metrics["test_accuracy"] for m in epochs]
    assert done.diverged == ""
    assert done.origin["command"] == "a command"
    assert "date" not in done.origin
    assert end == Ended()


def test_the_device_is_the_one_that_was_used(monkeypatch):
    asked = []
    monkeypatch.setattr(executor, "provenance", lambda device, command: asked.append(device) or {})
    monkeypatch.setattr(executor, "run_trial", lambda train, trial: (None, ""))
    executor.origin.cache_clear()
    run(None)
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    run(None)
    executor.origin.cache_clear()
    assert asked == [torch.device("cpu"), torch.device("cuda")]


def raising(error):
    def train(trial):
        raise error

    return train


def test_an_exception_comes_with_its_traceback():
    failed, end = run(raising(ZeroDivisionError("in\ntwo lines")))
    assert isinstance(failed, Failed)
    assert failed.why == "ZeroDivisionError: in two lines"
    assert "in train\n    raise error" in failed.traceback
    assert end == Ended()


def test_an_exception_without_a_text_loses_the_trial_alone():
    class Mute(Exception):
        def __str__(self):
            raise RuntimeError

    failed, end = run(raising(Mute()))
    assert failed.why == "Mute: <exception str() failed>"
    assert end == Ended()


@pytest.mark.parametrize("error", [SystemExit(3), SystemExit()])
def test_sys_exit_loses_the_trial_alone(error):
    failed, end = run(raising(error))
    assert failed.why == f"SystemExit: {error}".removesuffix(": ")
    assert end == Ended()


def test_ctrl_c_stops_everything():
    with pytest.raises(KeyboardInterrupt):
        run(raising(KeyboardInterrupt()))


def test_wrong_use_is_raised_with_the_name_of_the_trial():
    with pytest.raises(StudyError, match=r"^seed 3, lr=0\.5, c0\.1: the training has reported"):
        run(lambda trial: None)


def test_an_error_is_shown_once_with_the_line_of_the_training():
    """It had two tracebacks, each with the whole message."""

    def misuse(trial):
        trial.report(loss=1.0)

    with pytest.raises(StudyError) as error:
        run(misuse)
    shown = "".join(traceback.format_exception(error.value))
    assert shown.count("Traceback") == shown.count("before it has converted") == 1
    assert "in misuse\n    trial.report(loss=1.0)" in shown


def test_an_error_of_the_listener_too():
    def listener(spec, message):
        raise StudyError("an unknown metric")

    with pytest.raises(StudyError, match=r"^seed 3, lr=0\.5, c0\.1: an unknown metric$"):
        run(make_train(), listener)


def test_after_a_cuda_error_nothing_else_is_tried_in_this_process():
    seen = []
    with pytest.raises(StudyError, match=r"CUDA error.*processes=1"):
        run(
            raising(RuntimeError("CUDA error: an illegal memory access")),
            lambda spec, message: seen.append(message),
        )
    (failed,) = seen
    assert isinstance(failed, Failed)
