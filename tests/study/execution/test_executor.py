"""One pack: what is saved of it, and when."""

import pytest

from qneurons.study.execution import executor
from qneurons.study.execution.executor import (
    Halt,
    Outcome,
    never,
)


class Clock:
    """Time that passes only when told."""

    def __init__(self, monkeypatch):
        self.now = 1000.0
        monkeypatch.setattr(executor.time, "monotonic", lambda: self.now)

    def takes(self, seconds):
        """For a fake pack: every epoch takes so long."""

        def on_step(pack):
            self.now += seconds / 3

        return on_step


@pytest.fixture
def clock(monkeypatch):
    return Clock(monkeypatch)


def test_what_halted_stays_halted():
    answers = iter([False, True])
    halt = Halt(lambda: next(answers), None)
    assert [halt(), halt(), halt()] == [False, True, True]
    assert halt.outcome is Outcome.INTERRUPTED
    assert Halt(never, 0.0)()
    assert Halt(never, 60.0)(ahead_s=61.0)
    assert not Halt(never, 60.0)()


def test_how_long_is_left(clock):
    assert Halt(never, None).left_s == float("inf")
    halt = Halt(never, 60.0)
    clock.now += 20.0
    assert halt.left_s == 40.0
