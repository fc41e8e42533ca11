"""Runs a study for a user at a terminal: device, precision, progress, stopping, exit codes."""

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
from qneurons.study.execution import Executor, Halt, LocalExecutor, Notice, Outcome, run_study
from qneurons.study.packs import PRECISIONS
from qneurons.study.runs import Study
from qneurons.study.store import Store

EXECUTORS = ("local", "ray")
EXIT_CODES = {Outcome.FINISHED: 0, Outcome.TIME_LIMIT: 3, Outcome.INTERRUPTED: 130}


@dataclass(frozen=True)
class ExecutorOptions:
    """Where packs are trained: in this process or on a Ray cluster."""

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
                    raise StudyError(f"{option} is only for a Ray cluster; add --executor ray")

    @contextlib.contextmanager
    def connected(self) -> Iterator[None]:
        if self.executor == "local":
            yield
            return
        from qneurons.study.execution.ray_cluster import connected

        with (
            # When a node is lost, Ray prints pages from its logs; ours is one line.
            Path(os.devnull).open("w") as nowhere,
            contextlib.redirect_stdout(nowhere),
            connected(self.address or "auto"),
        ):
            yield

    def build(
        self, device: str | None, halt: Halt, notify: Callable[[str], None]
    ) -> Executor | None:
        """The executor, inside ``connected``; None if halted before a worker was found."""
        if self.executor == "local":
            return LocalExecutor(chosen_device(device), halt)
        from qneurons.study.execution.ray_executor import ray_executor

        return ray_executor(
            self.address or "auto",
            halt=halt,
            device=device,
            num_cpus=1.0 if self.cpus_per_pack is None else self.cpus_per_pack,
            num_gpus=self.gpus_per_pack,
            notify=notify,
        )


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
    executor_options: ExecutorOptions = ExecutorOptions(),  # noqa: B008  it is frozen
) -> None:
    """Trains what the store in ``folder`` lacks; raises ``typer.Exit`` if it was stopped before.

    The first Ctrl-C or SIGTERM saves and stops. The second stops at once, and epochs since the last
    checkpoint are lost; on a cluster the first one does so.
    """
    is_remote = executor_options.executor != "local"
    screen = console(stderr=True)
    try:
        with (
            executor_options.connected(),  # first, because Ray takes over SIGTERM
            display(screen) as on_event,
            stop_requests(
                lambda text: on_event(Notice("cancelling the tasks" if is_remote else text))
            ) as should_stop,
        ):
            halt = Halt(should_stop, time_limit)
            executor = executor_options.build(device, halt, lambda text: on_event(Notice(text)))
            if executor is None:
                assert halt.outcome is not None
                typer.echo(f"{halt.outcome} before there was a worker", err=True)
                raise typer.Exit(EXIT_CODES[halt.outcome])
            outcome = run_study(
                study,
                Store.open(folder, create=True),
                executor,
                precision=chosen_precision(precision, executor.device),
                data_dir=data_dir,
                pack=pack,
                command=shlex.join(["qneurons", *sys.argv[1:]]),
                keep_state=keep_state,
                download_bar=screen.is_terminal,
                on_event=on_event,
            )
    except KeyboardInterrupt:
        typer.echo("stopped at once; everything saved before is kept", err=True)
        raise typer.Exit(EXIT_CODES[Outcome.INTERRUPTED]) from None
    if outcome is not Outcome.FINISHED:
        # On a cluster, what was not saved yet is lost.
        kept = "everything that was saved is" if is_remote else "everything is saved"
        typer.echo(f"{outcome}: {kept} in {folder}; the same command continues", err=True)
        raise typer.Exit(EXIT_CODES[outcome])


def chosen_device(name: str | None) -> torch.device:
    """The device of that name, like cuda, cuda:1 or cpu; by default cuda if there is one."""
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    text = name or ("cuda" if count else "cpu")
    kind, _, index = text.partition(":")
    if text != "cpu" and (kind != "cuda" or (":" in text and not index.isdecimal())):
        raise StudyError(f"--device must be cpu, cuda or cuda:<number>; got {name!r}")
    if text != "cpu" and int(index or 0) >= count:
        found = f"cuda:0 to cuda:{count - 1}" if count else "no CUDA device"
        or_these = " or one of these" if count else ""
        raise StudyError(f"torch finds {found} and not {text}; use --device cpu{or_these}")
    return torch.device(text)


def chosen_precision(name: str | None, device: torch.device) -> str:
    """By default tf32 on cuda and fp32 elsewhere."""
    if name is None:
        return "tf32" if device.type == "cuda" else "fp32"
    if name not in PRECISIONS:
        raise unknown("precision", name, PRECISIONS)
    if name == "tf32" and device.type != "cuda":
        raise StudyError(f"tf32 needs a CUDA device, not {device}; use --precision fp32")
    return name
