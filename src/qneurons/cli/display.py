"""Shows the progress of a study: as a bar on a terminal, else as lines."""

import contextlib
import time
from collections.abc import Callable, Iterator

from rich.console import Console
from rich.progress import BarColumn, Progress as Bar, TaskProgressColumn, TextColumn

from qneurons.study.execution import Event, Notice, Progress

LINE_S = 5.0  # the least time between two lines of progress


@contextlib.contextmanager
def display(screen: Console) -> Iterator[Callable[[Event], None]]:
    """Yields a function that shows events."""
    if not screen.is_terminal:
        yield Lines(screen)
        return
    columns = (BarColumn(), TaskProgressColumn(), TextColumn("{task.fields[line]}", markup=False))
    with Bar(*columns, console=screen) as bar:
        task = bar.add_task("", line="", total=None)

        def show(event: Event) -> None:
            if isinstance(event, Notice):
                bar.console.print(event.text)
            else:
                line = f"{summary(event)}\n{packed(event)}".rstrip()
                bar.update(task, completed=event.epochs_done, total=event.epochs, line=line)

        yield show


class Lines:
    """One line for every notice, and one for progress every few seconds."""

    def __init__(self, screen: Console, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._screen, self._clock = screen, clock
        self._due = clock() + LINE_S

    def __call__(self, event: Event) -> None:
        if isinstance(event, Notice):
            self._screen.print(event.text)
        elif self._clock() >= self._due:
            self._due = self._clock() + LINE_S
            self._screen.print(", ".join(filter(None, (summary(event), packed(event)))))


def summary(event: Progress) -> str:
    parts = [
        f"{event.runs_done} of {event.runs} runs",
        f"{event.epochs_done} of {event.epochs} epochs",
    ]
    if event.rate:
        parts.append(f"{event.rate:.3g} epochs/s")
    if event.seconds_left:
        parts.append(f"{duration(event.seconds_left)} left")
    return ", ".join(parts)


def packed(event: Progress) -> str:
    """What is being trained now."""
    if not event.pack:
        return ""
    first = event.pack[0]
    about = f"{first.network} on {first.dataset}", "dropout" * first.dropout, first.protocol
    activations = " ".join(dict.fromkeys(run.activation for run in event.pack))
    beside = f" (one of {event.packs} packs)" if event.packs > 1 else ""
    name = ", ".join(filter(None, about))
    return f"{len(event.pack)} of {name}, {activations}, epoch {event.pack_epoch}{beside}"


def duration(seconds: float) -> str:
    minutes, seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours} h {minutes:02} min"
    return f"{minutes} min {seconds:02} s" if minutes else f"{seconds} s"
