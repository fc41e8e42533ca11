"""Runs a study in front of the user: device and precision, progress, stopping, exit codes."""

import shlex
import sys
from pathlib import Path

import torch
import typer

from qneurons.cli.display import display
from qneurons.cli.stopping import stop_requests
from qneurons.cli.terminal import console
from qneurons.study import StudyError
from qneurons.study.data import unknown
from qneurons.study.executor import Outcome
from qneurons.study.progress import Notice
from qneurons.study.runner import run_study
from qneurons.study.spec import Study
from qneurons.study.store import Store
from qneurons.study.training import PRECISIONS

EXIT_CODES = {Outcome.FINISHED: 0, Outcome.TIME_LIMIT: 3, Outcome.INTERRUPTED: 130}


def train_here(
    study: Study,
    folder: Path,
    *,
    device: str | None = None,
    precision: str | None = None,
    data_dir: Path | None = None,
    pack: int | None = None,
    time_limit: float | None = None,
    keep_state: bool = False,
) -> None:
    """Trains what the store in ``folder`` lacks; leaves with the exit code unless it is all there.

    A first Ctrl-C or SIGTERM saves and stops. A second stops at once, at the cost of what was
    trained since the last time it was saved.
    """
    place = chosen_device(device)
    kind = chosen_precision(precision, place)
    store = Store.open(folder, create=True)
    screen = console(stderr=True)
    try:
        with (
            display(screen) as on_event,
            stop_requests(lambda text: on_event(Notice(text))) as should_stop,
        ):
            outcome = run_study(
                study,
                store,
                device=place,
                precision=kind,
                data_dir=data_dir,
                pack=pack,
                time_limit=time_limit,
                command=shlex.join(["qneurons", *sys.argv[1:]]),
                keep_state=keep_state,
                download_bar=screen.is_terminal,
                on_event=on_event,
                should_stop=should_stop,
            )
    except KeyboardInterrupt:
        typer.echo(f"stopped at once; {folder} has everything that was saved before", err=True)
        raise typer.Exit(EXIT_CODES[Outcome.INTERRUPTED]) from None
    if outcome is not Outcome.FINISHED:
        typer.echo(
            f"{outcome}: everything is saved in {folder}; the same command goes on", err=True
        )
        raise typer.Exit(EXIT_CODES[outcome])


def chosen_device(name: str | None) -> torch.device:
    """cuda, cuda:1 or cpu; without a name cuda where there is one."""
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    text = name or ("cuda" if count else "cpu")
    kind, _, index = text.partition(":")
    if text != "cpu" and (kind != "cuda" or (":" in text and not index.isdecimal())):
        raise StudyError(f"--device must be cuda, cuda:0 or cpu, say; got {name!r}")
    if text != "cpu" and int(index or 0) >= count:
        there = f"only cuda:0 to cuda:{count - 1}" if count else "no CUDA device"
        raise StudyError(f"torch sees {there}, and not {text}; use --device cpu, or another")
    return torch.device(text)


def chosen_precision(name: str | None, device: torch.device) -> str:
    """Without a name tf32 on cuda and fp32 elsewhere."""
    if name is None:
        return "tf32" if device.type == "cuda" else "fp32"
    if name not in PRECISIONS:
        raise unknown("precision", name, PRECISIONS)
    if name == "tf32" and device.type != "cuda":
        raise StudyError("tf32 is a precision of CUDA devices; use --precision fp32 here")
    return name
