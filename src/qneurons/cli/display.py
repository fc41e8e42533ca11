"""Shows the progress of a study: as a frame that moves on a terminal, else as lines."""

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping

from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.text import Text

from qneurons.study.execution import Event, Notice, Progress
from qneurons.study.runs import counted, kind_of_pack

LINE_S = 5.0  # the least time between two lines of progress


@contextlib.contextmanager
def display(screen: Console) -> Iterator[Callable[[Event], None]]:
    """Yields a function that shows events."""
    if not screen.is_terminal:
        yield Lines(screen)
        return
    frame = Frame()
    # Live draws the frame again and again in a thread, so that it moves while an epoch is trained.
    live = Live(frame, console=screen)

    def show(event: Event) -> None:
        if isinstance(event, Notice):
            screen.print(event.text)
        else:
            frame.show(event)
            if event.pack:  # not earlier: downloads draw bars of their own
                live.start()

    try:
        yield show
    finally:
        live.stop()


class Frame:
    """The latest event, with the time since then taken into account."""

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock, self._start = clock, clock()

    def show(self, event: Progress) -> None:
        self._event, self._since = event, self._clock()

    def __rich__(self) -> Group:
        event, now = self._event, self._clock()
        elapsed, since = now - self._start, now - self._since
        # The bar moves on at the rate so far, but not beyond the epoch that is being trained.
        ahead = min(since * (event.rate or 0.0), len(event.pack))
        is_known = event.rate or event.epochs_done
        bar = ProgressBar(event.epochs if is_known else None, event.epochs_done + ahead)
        lines = "", times(event, elapsed, since), *details(event)  # the first ends that of the bar
        return Group(bar, Text("\n".join(lines)))


class Lines:
    """One line for every notice, and one for progress every few seconds."""

    def __init__(self, screen: Console, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._screen, self._clock = screen, clock
        self._start = clock()
        self._due = self._start + LINE_S

    def __call__(self, event: Event) -> None:
        now = self._clock()
        if isinstance(event, Notice):
            self._screen.print(event.text)
        elif now >= self._due:
            self._due = now + LINE_S
            self._screen.print("; ".join([times(event, now - self._start), *details(event)]))


def times(event: Progress, elapsed_s: float, since_s: float = 0.0) -> str:
    """The share that is done, and the time elapsed and left ``since_s`` seconds after an event."""
    share = event.epochs_done / event.epochs
    parts = [f"{100 * share:.0f} %", f"{duration(elapsed_s)} elapsed"]
    if event.seconds_left:
        parts.append(f"{duration(max(0.0, event.seconds_left - since_s))} left")
    return ", ".join(parts)


def details(event: Progress) -> list[str]:
    """Lines of text: what is done, what is being trained, and how well it does."""
    runs, epochs = counted(event.runs, "run"), counted(event.epochs, "epoch")
    counts = f"{event.runs_done:,} of {runs}, {event.epochs_done:,} of {epochs}"
    lines = [counts + (f", {event.rate:.3g} epochs/s" if event.rate else "")]
    if event.pack:
        activations = " ".join(dict.fromkeys(run.activation for run in event.pack))
        beside = f" (one of {event.packs} packs)" if event.packs > 1 else ""
        lines.append(
            f"training {counted(len(event.pack), 'run')}{beside}: {kind_of_pack(event.pack)}, "
            f"{activations}, {event.pack_epoch} of {counted(event.epochs // event.runs, 'epoch')}"
        )
    for activation, means in event.accuracies.items():
        if means:
            lines.append(f"test accuracy of {activation} in %: {percentages(means)}")
    return lines


def percentages(accuracies: Mapping[str, float]) -> str:
    return ", ".join(f"{name}={100 * value:.2f}" for name, value in accuracies.items())


def duration(seconds: float) -> str:
    minutes, seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours} h {minutes:02} min"
    return f"{minutes} min {seconds:02} s" if minutes else f"{seconds} s"
