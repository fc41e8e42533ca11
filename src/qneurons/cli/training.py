"""Runs a study in front of the user: device and precision, progress, stopping, exit codes."""

import contextlib
import os
import shlex
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import torch
import typer

from qneurons.cli.display import display
from qneurons.cli.stopping import stop_requests
from qneurons.cli.terminal import console
from qneurons.study.errors import StudyError, unknown
from qneurons.study.execution.executor import Executor, Halt, Outcome
from qneurons.study.execution.local_executor import LocalExecutor
from qneurons.study.execution.progress import Notice
from qneurons.study.execution.session import run_study
from qneurons.study.packs.pack import PRECISIONS
from qneurons.study.runs import Study
from qneurons.study.store import Store

EXECUTORS = ("local", "ray")
EXIT_CODES = {Outcome.FINISHED: 0, Outcome.TIME_LIMIT: 3, Outcome.INTERRUPTED: 130}


@dataclass(frozen=True)
class Place:
    """Where packs are trained, as the options say: in this process, or on a Ray cluster."""

    executor: str = "local"
    address: str | None = None
    cpus_per_pack: float | None = None
    gpus_per_pack: float | None = None

    def __post_init__(self) -> None:
        if self.executor not in EXECUTORS:
            raise unknown("executor", self.executor, EXECUTORS)
        if self.executor != "ray":
            for name in ("address", "cpus_per_pack", "gpus_per_pack"):
                if getattr(self, name) is not None:
                    option = f"--{name.replace('_', '-')}"
                    raise StudyError(f"{option} goes with --executor ray alone; add that")

    @contextlib.contextmanager
    def connected(self) -> Iterator[None]:
        if self.executor == "local":
            yield
            return
        from qneurons.study.execution.ray_cluster import connected

        with (
            # Ray prints pages from its logs when a node is lost: a line from the runner will do.
            Path(os.devnull).open("w") as nowhere,
            contextlib.redirect_stdout(nowhere),
            connected(self.address or "auto"),
        ):
            yield

    def find(
        self, device: str | None, halt: Halt, say: Callable[[str], None]
    ) -> tuple[Executor, torch.device] | None:
        """Once connected; None if halted before there was a worker."""
        if self.executor == "local":
            where = chosen_device(device)
            return LocalExecutor(where), where
        from qneurons.study.execution.ray_executor import ray_executor

        executor = ray_executor(
            self.address or "auto",
            halt=halt,
            device=device,
            num_cpus=1.0 if self.cpus_per_pack is None else self.cpus_per_pack,
            num_gpus=self.gpus_per_pack,
            say=say,
        )
        return None if executor is None else (executor, executor.device)


HERE = Place()


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
    place: Place = HERE,
) -> None:
    """Trains what the store in ``folder`` lacks; leaves with the exit code unless it is all there.

    A first Ctrl-C or SIGTERM saves and stops. A second stops at once, at the cost of what was
    trained since the last time it was saved; on a cluster the first does.
    """
    is_remote = place.executor != "local"
    screen = console(stderr=True)
    try:
        with (
            place.connected(),  # first: Ray takes SIGTERM for itself
            display(screen) as on_event,
            stop_requests(
                lambda text: on_event(Notice("cancelling the tasks" if is_remote else text))
            ) as should_stop,
        ):
            halt = Halt(should_stop, time_limit)
            found = place.find(device, halt, lambda text: on_event(Notice(text)))
            if found is None:
                assert halt.outcome is not None
                typer.echo(f"{halt.outcome} before there was a worker", err=True)
                raise typer.Exit(EXIT_CODES[halt.outcome])
            executor, where = found
            kind = chosen_precision(precision, where)
            outcome = run_study(
                study,
                Store.open(folder, create=True),
                executor=executor,
                device=where,
                precision=kind,
                data_dir=data_dir,
                pack=pack,
                time_limit=None if time_limit is None else halt.left_s,  # a worker took its time
                command=shlex.join(["qneurons", *sys.argv[1:]]),
                keep_state=keep_state,
                download_bar=screen.is_terminal,
                on_event=on_event,
                should_stop=should_stop,
            )
    except KeyboardInterrupt:
        typer.echo("stopped at once; everything that was saved before is kept", err=True)
        raise typer.Exit(EXIT_CODES[Outcome.INTERRUPTED]) from None
    if outcome is not Outcome.FINISHED:
        # A cluster may have been cut off while it trained.
        kept = "everything that was saved is" if is_remote else "everything is saved"
        typer.echo(f"{outcome}: {kept} in {folder}; the same command goes on", err=True)
        raise typer.Exit(EXIT_CODES[outcome])


def chosen_device(name: str | None) -> torch.device:
    """cuda, cuda:1 or cpu; without a name cuda where there is one."""
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    text = name or ("cuda" if count else "cpu")
    kind, _, index = text.partition(":")
    if text != "cpu" and (kind != "cuda" or (":" in text and not index.isdecimal())):
        raise StudyError(f"--device must be cuda, cuda:0 or cpu, say; got {name!r}")
    if text != "cpu" and int(index or 0) >= count:
        there = f"cuda:0 to cuda:{count - 1}, and not {text}" if count else "no CUDA device"
        raise StudyError(f"torch sees {there}; use --device cpu{', or another' if count else ''}")
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
