"""When training stops."""

import pytest

from qneurons.study.execution import Halt, Outcome


@pytest.fixture
def clock(monkeypatch):
    """A list with the time, which passes only when told."""
    now = [1000.0]
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    return now


def test_what_halted_stays_halted():
    answers = iter([False, True])
    halt = Halt(lambda: next(answers))
    assert [halt(), halt(), halt()] == [False, True, True]
    assert halt.outcome is Outcome.INTERRUPTED


def test_a_time_limit_halts_at_its_end_and_before_what_would_end_later(clock):
    halt = Halt(time_limit=60.0)
    clock[0] += 59.0
    assert not halt()
    assert halt.outcome is None
    clock[0] += 1.0
    assert halt()
    assert halt.outcome is Outcome.TIME_LIMIT
    assert not Halt(time_limit=60.0)(ahead_s=59.0)
    assert Halt(time_limit=60.0)(ahead_s=60.0)


def test_how_long_is_left(clock):
    assert Halt().left_s == float("inf")
    halt = Halt(time_limit=60.0)
    clock[0] += 20.0
    assert halt.left_s == 40.0
