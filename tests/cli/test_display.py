"""Progress on a terminal and in a file."""

import dataclasses
import io

import pytest
from rich.console import Console

from qneurons.cli.display import LINE_S, Lines, display, duration, packed, summary
from qneurons.study.execution import Notice, Progress


def screen(**options):
    return Console(file=io.StringIO(), width=120, **options)


def progress(study, done=7):
    return Progress(2, 6, done, 24, study.runs, 3, rate=12.345, seconds_left=75.0)


def test_all_is_said_in_a_line(make_study):
    event = progress(make_study(activations=("elu", "tanh"), dropout=True))
    assert summary(event) == "2 of 6 runs, 7 of 24 epochs, 12.3 epochs/s, 1 min 15 s left"
    assert packed(event) == "6 of mnist-mlp on digits, dropout, elu tanh, epoch 3"
    other = [dataclasses.replace(run, momentum=0.5) for run in event.pack]
    event = dataclasses.replace(event, pack=tuple(other))
    assert packed(event) == "6 of mnist-mlp on digits, dropout, momentum 0.5, elu tanh, epoch 3"


def test_what_is_not_known_is_not_said():
    event = Progress(0, 6, 0, 24)
    assert summary(event) == "0 of 6 runs, 0 of 24 epochs"
    assert packed(event) == ""


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.4, "0 s"), (59.7, "1 min 00 s"), (61, "1 min 01 s"), (7260, "2 h 01 min")],
)
def test_durations_are_read_at_a_glance(seconds, text):
    assert duration(seconds) == text


def test_lines_come_now_and_then_and_notices_at_once(make_study):
    out, now, study = screen(), [0.0], make_study()
    show = Lines(out, clock=lambda: now[0])
    for done in range(20):
        now[0] += LINE_S / 4
        show(progress(study, done))
        if done == 10:
            show(Notice("out of memory"))
    lines = out.file.getvalue().splitlines()
    assert lines.index("out of memory") == 2
    lines.remove("out of memory")
    assert [line.split(", ")[1] for line in lines] == [
        f"{done} of 24 epochs" for done in (3, 7, 11, 15, 19)
    ]


def test_without_a_terminal_there_are_lines():
    with display(screen(force_terminal=False)) as show:
        assert isinstance(show, Lines)


def test_a_terminal_shows_a_bar_and_keeps_notices(make_study):
    out = screen(force_terminal=True)
    with display(out) as show:
        show(progress(make_study()))
        show(Notice("out of memory"))
        show(progress(make_study(), done=24))
    text = out.file.getvalue()
    for part in ("out of memory", "24 of 24 epochs", "100%", "epoch 3"):
        assert part in text


def test_packs_that_are_trained_at_once_are_counted(make_study):
    event = progress(make_study())
    assert "packs" not in packed(event)
    assert packed(dataclasses.replace(event, packs=4)).endswith("epoch 3 (one of 4 packs)")
