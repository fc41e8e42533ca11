"""Ctrl-C and SIGTERM: the first asks to stop, the second stops at once."""

import contextlib
import signal
from collections.abc import Callable, Iterator
from types import FrameType

SIGNALS = (signal.SIGINT, signal.SIGTERM)  # machines that are taken away send the second


@contextlib.contextmanager
def stop_requests(say: Callable[[str], None]) -> Iterator[Callable[[], bool]]:
    """Gives a function that answers whether a stop was asked for, and says so the first time."""
    asked = said = False

    def handle(number: int, frame: FrameType | None) -> None:
        nonlocal asked
        if asked:
            raise KeyboardInterrupt
        asked = True  # and nothing is printed here: the signal may have interrupted a print

    def should_stop() -> bool:
        nonlocal said
        if asked and not said:
            said = True
            say("stopping when everything is saved; Ctrl-C once more stops at once")
        return asked

    before = {number: signal.signal(number, handle) for number in SIGNALS}
    try:
        yield should_stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
