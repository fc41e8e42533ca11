"""``qneurons study run`` in processes that can be killed and that report what they have saved."""

import contextlib
import functools
import io
import math
import os
import re
import select
import signal
import subprocess
import sys
import time
import traceback
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import torch
import torch._dynamo  # training imports it; a fork has it already

import qneurons.cli.training
import qneurons.study.spec
from qneurons.study.data import load_dataset
from qneurons.study.execution import session, worker
from qneurons.study.store import Store

PHASES = STARTING, TRAINING, SAVING = "starting", "training", "saving"
LIVING: set[int] = set()

SPEC = """
title = "What the fault campaign trains"
epochs = {epochs}
seeds = {seeds}

[[grid]]
dataset = "digits"
network = "mnist-mlp"
dropout = true
activation = {activations}
setting = "c0.1"
batch_size = 64
learning_rate = 0.05
held_out = 1000  # of 1200 images: short epochs have more saves

[[grid]]  # diverges
dataset = "digits"
network = "mnist-mlp"
dropout = false
activation = "relu"
setting = "c1"
batch_size = 64
learning_rate = 1e30
"""


@dataclass(frozen=True)
class Command:
    """``study run`` of a file, in packs of two."""

    file: Path
    options: tuple[str, ...] = ()

    @classmethod
    def write(cls, file: Path, *, epochs: int, seeds: int, activations: list[str]) -> "Command":
        file.write_text(SPEC.format(epochs=epochs, seeds=seeds, activations=activations))
        return cls(file)

    def arguments(self, store: Path) -> list[str]:
        options = ["--store", str(store), "--pack", "2", "--device", "cpu"]
        return ["study", "run", str(self.file), *options, *self.options]


@dataclass
class Process:
    """A ``study run``, and what it has reported so far."""

    pid: int
    pipe: int
    output: int  # another pipe: with a limit on files not even a log can be written
    started: float
    phase: str = STARTING
    since: float = 0.0  # when the phase began
    savings: list[float] = field(default_factory=list)  # when they were begun
    saving_s: list[float] = field(default_factory=list)
    reported: dict[str, int] = field(default_factory=dict)  # runs and their last saved epoch
    code: int | None = None
    said: str = ""  # at its end, on standard output and error
    _rest: bytes = b""

    def listen(self, seconds: float) -> None:
        """Waits for reports for at most this long, and reads them."""
        if not select.select([self.pipe], [], [], max(0.0, seconds))[0]:
            return
        data = os.read(self.pipe, 65536)
        if not data:
            self._end()
            return
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            self._hear(*line.decode().split())

    def _hear(self, moment: str, phase: str, *saved: str) -> None:
        if self.phase == SAVING:
            self.saving_s.append(float(moment) - self.since)
        self.phase, self.since = phase, float(moment)
        if phase == SAVING:
            self.savings.append(self.since)
        for pair in saved:
            run, _, epoch = pair.partition(":")
            self.reported[run] = int(epoch)

    def kill(self) -> None:
        os.kill(self.pid, signal.SIGKILL)  # it is not reaped yet, so the number is still its own
        self.wait()

    def wait(self) -> None:
        while self.code is None:
            self.listen(60.0)

    def _end(self) -> None:
        with open(self.output, errors="replace") as output:
            self.said = output.read()
        os.close(self.pipe)
        self.code = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        LIVING.discard(self.pid)

    @property
    def killed(self) -> bool:
        return self.code == -signal.SIGKILL

    @property
    def error(self) -> str | None:
        """The line of the error and that of its hint, if the process ended with them."""
        ending = re.search(r"^error: (?!unexpected).*\nhint: .*\n\Z", self.said, re.MULTILINE)
        is_alone = self.said.count("error: ") == 1 and "Traceback" not in self.said
        return ending[0] if ending and is_alone and self.code == 1 else None


def start(command: Command, store: Path, *, first: Callable[[], object] = lambda: None) -> Process:
    """Runs the command in a fork of this process, which has everything imported.

    ``first`` is called there before anything else.
    """
    _prepare()
    reading, writing = os.pipe()
    output, standard = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # torch works with one thread here
        pid = os.fork()
    if not pid:
        _become(command.arguments(store), standard, writing, first)
    os.close(writing)
    os.close(standard)
    LIVING.add(pid)
    return Process(pid, reading, output, time.monotonic())


@functools.cache
def _prepare() -> None:
    """Does once what every process would do when it starts: imports and reading the data."""
    with contextlib.redirect_stdout(io.StringIO()):
        qneurons.cli.app(["study", "list"], standalone_mode=False)
    data = load_dataset("digits")
    session.load_dataset = lambda name, **options: data


def finish(command: Command, store: Path, *, first: Callable[[], object] = lambda: None) -> Process:
    """Runs the command to its end."""
    process = start(command, store, first=first)
    process.wait()
    return process


def undisturbed(command: Command, store: Path) -> None:
    """Runs the command in a new process, which saves as often as a user's does."""
    code = "from qneurons.cli import main; main()"
    subprocess.run(
        [sys.executable, "-c", code, *command.arguments(store)],
        env=os.environ | {"OMP_NUM_THREADS": "1"},  # as the forks: threads round otherwise
        stdout=subprocess.DEVNULL,
        check=True,
    )


def kill_the_living() -> None:
    """Ends all processes when the campaign is interrupted."""
    for pid in tuple(LIVING):
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        LIVING.discard(pid)


def _become(arguments: list[str], output: int, pipe: int, first: Callable[[], object]) -> None:
    code = 70
    try:
        os.dup2(output, 1)
        os.dup2(output, 2)
        os.close(output)
        _save_often_and_tell(pipe)
        first()
        sys.argv = ["qneurons", *arguments]
        qneurons.cli.main()
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 1 if end.code else 0
    except BaseException:
        traceback.print_exc()
    finally:
        with contextlib.suppress(BaseException):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)


def _save_often_and_tell(pipe: int) -> None:
    """Saves every epoch, instead of twice a minute, and reports when a save has returned."""
    torch.set_num_threads(1)
    worker.SAVING_SHARE = math.inf
    defaults = session.run_study.__kwdefaults__
    assert "checkpoint_s" in defaults
    defaults["checkpoint_s"] = 0.0
    begin, commit = Store.begin, Store.commit

    def tell(*words: str) -> None:
        os.write(pipe, f"{time.monotonic()} {' '.join(words)}\n".encode())

    def told_begin(self, provenance):
        origin = begin(self, provenance)
        tell(TRAINING)
        return origin

    def told_commit(self, runs, epochs, **options):
        tell(SAVING)
        commit(self, runs, epochs, **options)
        last = {epoch.run: epoch.epoch for epoch in epochs}
        tell(TRAINING, *(f"{run}:{epoch}" for run, epoch in last.items()))

    Store.begin, Store.commit = told_begin, told_commit
