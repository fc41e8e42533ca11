"""Ctrl-C and SIGTERM: the first requests a stop, the second stops at once."""

import contextlib
import signal
from collections.abc import Callable, Iterator
from types import FrameType

SIGNALS = (signal.SIGINT, signal.SIGTERM)  # preempted machines send SIGTERM


@contextlib.contextmanager
def stop_requests(say: Callable[[str], None]) -> Iterator[Callable[[], bool]]:
    """Yields a function that returns True once a stop is requested, and then says so once."""
    asked = said = False

    def handle(number: int, frame: FrameType | None) -> None:
        nonlocal asked
        if asked:
            raise KeyboardInterrupt
        asked = True  # do not print here: the signal may have interrupted a print

    def should_stop() -> bool:
        nonlocal said
        if asked and not said:
            said = True
            say("saving everything, then stopping; press Ctrl-C again to stop at once")
        return asked

    before = {number: signal.signal(number, handle) for number in SIGNALS}
    try:
        yield should_stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
