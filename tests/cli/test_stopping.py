"""Ctrl-C and SIGTERM."""

import signal

import pytest

from qneurons.cli.stopping import stop_requests


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_first_asks_and_the_second_stops_at_once(number):
    before, said = signal.getsignal(number), []
    with stop_requests(said.append) as should_stop:
        assert not should_stop()
        signal.raise_signal(number)
        assert said == []  # not in the middle of whatever else is printed
        assert should_stop()
        assert should_stop()
        assert len(said) == 1
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(number)
    assert signal.getsignal(number) is before
