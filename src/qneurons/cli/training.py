"""Runs a study for a user at a terminal: device, precision, progress, stopping, exit codes."""

import contextlib
import os
import shlex
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import torch
import typer

from qneurons.cli.display import display
from qneurons.cli.stopping import stop_requests
from qneurons.cli.terminal import console
from qneurons.study.errors import StudyError, unknown
from qneurons.study.execution import Executor, Halt, LocalExecutor, Notice, Outcome, run_study
from qneurons.study.packs import PRECISIONS
from qneurons.study.runs import Study
from qneurons.study.store import Store

EXECUTORS = ("local", "ray")
EXIT_CODES = {Outcome.FINISHED: 0, Outcome.TIME_LIMIT: 3, Outcome.INTERRUPTED: 130}


@contextlib.contextmanager
def ray_cluster(
    address: str, num_cpus: float, num_gpus: float | None
) -> Iterator[Callable[..., Executor | None]]:
    """Connects to a Ray cluster; yields a function that makes an executor on it."""
    from qneurons.study.execution.ray_cluster import connected
    from qneurons.study.execution.ray_executor import ray_executor

    with (
        # When a node is lost, Ray prints pages from its logs; ours is one line.
        Path(os.devnull).open("w") as nowhere,
        contextlib.redirect_stdout(nowhere),
        connected(address),
    ):
        yield partial(ray_executor, num_cpus=num_cpus, num_gpus=num_gpus)


def local_executor(device: str | None, halt: Halt, notify: object) -> Executor:
    return LocalExecutor(chosen_device(device), halt)


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
    executor: str = "local",
    address: str | None = None,
    cpus_per_pack: float | None = None,
    gpus_per_pack: float | None = None,
) -> None:
    """Trains what the store in ``folder`` lacks; raises ``typer.Exit`` if it was stopped before.

    The first Ctrl-C or SIGTERM saves and stops. The second stops at once, and epochs since the last
    checkpoint are lost; on a cluster the first one does so.
    """
    if executor not in EXECUTORS:
        raise unknown("executor", executor, EXECUTORS)
    is_remote = executor == "ray"
    given = {"address": address, "cpus-per-pack": cpus_per_pack, "gpus-per-pack": gpus_per_pack}
    for option, value in given.items():
        if value is not None and not is_remote:
            raise StudyError(f"--{option} is only for a Ray cluster", "add --executor ray")
    num_cpus = 1.0 if cpus_per_pack is None else cpus_per_pack
    cluster = ray_cluster(address or "auto", num_cpus, gpus_per_pack)
    screen = console(stderr=True)
    try:
        with (
            # First, because Ray takes over SIGTERM.
            cluster if is_remote else contextlib.nullcontext(local_executor) as make_executor,
            display(screen) as on_event,
            stop_requests(
                lambda text: on_event(Notice("cancelling the tasks" if is_remote else text))
            ) as should_stop,
        ):
            halt = Halt(should_stop, time_limit)
            trainer = make_executor(
                device=device, halt=halt, notify=lambda text: on_event(Notice(text))
            )
            if trainer is None:  # halted before a worker was found
                assert halt.outcome is not None
                screen.print(f"{halt.outcome} before there was a worker")
                raise typer.Exit(EXIT_CODES[halt.outcome])
            outcome = run_study(
                study,
                Store.open(folder, create=True),
                trainer,
                precision=chosen_precision(precision, trainer.device),
                data_dir=data_dir,
                pack=pack,
                command=shlex.join(["qneurons", *sys.argv[1:]]),
                keep_state=keep_state,
                download_bar=screen.is_terminal,
                on_event=on_event,
            )
    except KeyboardInterrupt:
        screen.print("stopped at once; everything saved before is kept")
        raise typer.Exit(EXIT_CODES[Outcome.INTERRUPTED]) from None
    if outcome is not Outcome.FINISHED:
        # On a cluster, what was not saved yet is lost.
        kept = "everything that was saved is" if is_remote else "everything is saved"
        screen.print(f"{outcome}: {kept} in {folder}; the same command continues")
        raise typer.Exit(EXIT_CODES[outcome])


def chosen_device(name: str | None) -> torch.device:
    """The device of that name, like cuda, cuda:1 or cpu; by default cuda if there is one."""
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    text = name or ("cuda" if count else "cpu")
    kind, _, index = text.partition(":")
    if text != "cpu" and (kind != "cuda" or (":" in text and not index.isdecimal())):
        raise StudyError(f"--device must be cpu, cuda or cuda:<number>, got {name!r}")
    if text != "cpu" and int(index or 0) >= count:
        if not count:
            raise StudyError("torch finds no CUDA device", "use --device cpu")
        found = f"torch finds cuda:0 to cuda:{count - 1}"
        raise StudyError(f"there is no {text}, {found}", "use --device cpu or one of these")
    return torch.device(text)


def chosen_precision(name: str | None, device: torch.device) -> str:
    """By default tf32 on cuda and fp32 elsewhere."""
    if name is None:
        return "tf32" if device.type == "cuda" else "fp32"
    if name not in PRECISIONS:
        raise unknown("precision", name, PRECISIONS)
    if name == "tf32" and device.type != "cuda":
        raise StudyError(f"tf32 needs a CUDA device, not {device}", "use --precision fp32")
    return name
