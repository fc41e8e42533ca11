"""Progress on a terminal and in a file."""

import dataclasses
import io
import re
import threading

import pytest
from rich.console import Console

from qneurons.cli.display import LINE_S, Frame, Lines, details, display, duration, times
from qneurons.study.execution import Notice, Progress


def screen(width=120, **options):
    return Console(file=io.StringIO(), width=width, **options)


def progress(study, done=7, **fields):
    return Progress(2, 6, done, 24, study.runs, 3, rate=12.345, seconds_left=75.0, **fields)


def test_all_is_said(make_study):
    means = {"elu": {"base": 0.97, "c0.1": 0.98123}, "tanh": {}}
    study = make_study(activations=("elu", "tanh"), dropout=True)
    event = progress(study, accuracies=means)
    assert times(event, 12.0) == "29 %, 12 s elapsed, 1 min 15 s left"
    assert details(event) == [
        "2 of 6 runs, 7 of 24 epochs, 12.3 epochs/s",
        "training 6 runs: mnist-mlp on digits, dropout, elu tanh, 3 of 4 epochs",
        "test accuracy of elu in %: base=97.00, c0.1=98.12",
    ]
    other = [dataclasses.replace(run, momentum=0.5) for run in event.pack]
    event = dataclasses.replace(event, pack=tuple(other))
    assert "dropout, momentum 0.5, elu tanh" in details(event)[1]
    event = dataclasses.replace(event, pack=(*event.pack, *study.runs))
    assert "dropout, several protocols, elu tanh" in details(event)[1]


def test_what_is_not_known_is_not_said():
    event = Progress(0, 6, 0, 24)
    assert times(event, 0.0) == "0 %, 0 s elapsed"
    assert details(event) == ["0 of 6 runs, 0 of 24 epochs"]


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.4, "0 s"), (59.7, "1 min 00 s"), (61, "1 min 01 s"), (7260, "2 h 01 min")],
)
def test_durations_are_read_at_a_glance(seconds, text):
    assert duration(seconds) == text


def test_lines_come_now_and_then_and_notices_at_once(make_study):
    out, now, study = screen(width=200), [0.0], make_study()
    show = Lines(out, clock=lambda: now[0])
    for done in range(20):
        now[0] += LINE_S / 4
        show(progress(study, done))
        if done == 10:
            show(Notice("out of memory"))
    lines = out.file.getvalue().splitlines()
    assert lines.index("out of memory") == 2
    lines.remove("out of memory")
    assert [re.search(r"(\d+) of 24 epochs", line)[1] for line in lines] == [
        str(done) for done in (3, 7, 11, 15, 19)
    ]


def test_without_a_terminal_there_are_lines():
    with display(screen(force_terminal=False)) as show:
        assert isinstance(show, Lines)


def test_a_terminal_shows_a_frame_and_keeps_notices(make_study):
    out = screen(force_terminal=True)
    with display(out) as show:
        show(Progress(0, 6, 0, 24))
        assert out.file.getvalue() == ""  # a download may be drawing its own bar
        show(progress(make_study()))
        show(Notice("out of memory"))
        show(progress(make_study(), done=24))
    text = out.file.getvalue()
    for part in ("out of memory", "24 of 24 epochs", "100 %", "3 of 4 epochs"):
        assert part in text


def rendered(frame, width=80):
    out = screen(width)
    out.print(frame)
    return out.file.getvalue().splitlines()


def test_a_frame_moves_while_an_epoch_is_trained(make_study):
    now = [0.0]
    frame = Frame(clock=lambda: now[0])
    frame.show(dataclasses.replace(progress(make_study()), rate=1.0))
    before = rendered(frame)
    now[0] = 2.0
    after = rendered(frame)
    assert before[0] != after[0]  # the bar
    assert before[1] == "29 %, 0 s elapsed, 1 min 15 s left"
    assert after[1] == "29 %, 2 s elapsed, 1 min 13 s left"
    assert before[2:] == after[2:]
    now[0] = 50.0
    much_later = rendered(frame)
    now[0] = 60.0
    assert rendered(frame)[0] == much_later[0]  # not beyond the epoch that is being trained


@pytest.mark.parametrize("columns", [80, 120])
def test_a_bar_has_its_own_line_and_no_word_is_split(make_study, columns):
    means = {f"a{number}": 0.9 + 0.001 * number for number in range(20)}
    frame = Frame(clock=lambda: 0.0)
    frame.show(progress(make_study(), accuracies={"elu": means, "softplus": means}))
    bar, *lines = rendered(frame, columns)
    assert set(bar) <= set("━╸╺")
    assert all(len(line) <= columns for line in lines)
    assert " ".join(lines).split() == " ".join(rendered(frame, 1000)[1:]).split()


class CountingFile(io.StringIO):
    """Notes when a frame was written for the third time."""

    def __init__(self):
        super().__init__()
        self.num_frames, self.is_moving = 0, threading.Event()

    def write(self, text):
        self.num_frames += "elapsed" in text
        if self.num_frames == 3:
            self.is_moving.set()
        return super().write(text)


def test_a_frame_is_drawn_again_without_an_event(make_study):
    file = CountingFile()
    with display(Console(file=file, width=80, force_terminal=True)) as show:
        show(progress(make_study()))
        assert file.is_moving.wait(timeout=60)


def test_a_stop_leaves_a_clean_terminal(make_study):
    out = screen(force_terminal=True)

    def stop():
        with display(out) as show:
            show(progress(make_study()))
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        stop()
    hidden, shown = "\x1b[?25l", "\x1b[?25h"  # the cursor
    text = out.file.getvalue()
    assert text.rindex(shown) > text.rindex(hidden)


def test_packs_that_are_trained_at_once_are_counted(make_study):
    event = progress(make_study())
    assert "packs" not in details(event)[1]
    event = dataclasses.replace(event, packs=4)
    assert details(event)[1].startswith("training 3 runs (one of 4 packs): ")
