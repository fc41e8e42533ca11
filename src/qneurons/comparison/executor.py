"""Runs trials one after another in this process; what every executor does and says."""

import contextlib
import functools
import traceback
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import torch

from qneurons.comparison.params import Params
from qneurons.comparison.store import Spec
from qneurons.comparison.trial import Measured, Trial, run_trial
from qneurons.provenance import provenance
from qneurons.study.errors import StudyError
from qneurons.study.execution import Ended

Training = Callable[[Trial], object]


@dataclass(frozen=True)
class Reported:
    """The training has reported an epoch."""

    epoch: int
    metrics: dict[str, float]


@dataclass(frozen=True)
class Done:
    """The trial is finished, and ``diverged`` says how, if it has."""

    measured: Measured
    diverged: str
    origin: dict[str, Any]
    read: frozenset[str]  # the names of parameters for which the training has asked
    torch_seed: int  # when the model was converted; another than the trial's if it seeds torch


@dataclass(frozen=True)
class Failed:
    """The training has raised an exception, or has called ``sys.exit``."""

    why: str
    traceback: str


Message = Reported | Done | Failed | Ended  # about a trial, in this order
Listener = Callable[[Spec, Message], None]


class Executor(Protocol):
    """Runs trials. A ``StudyError`` of a trial or a listener comes with the name of the trial."""

    num_slots: int  # how many trials may be submitted at once; on Ray some of them wait

    def submit(self, spec: Spec, setting: str) -> None: ...

    def poll(self, listener: Listener) -> None:
        """Waits a while for messages. Every trial ends with ``Ended``."""

    def close(self) -> None:
        """Ends the trials that run."""


class LocalExecutor:
    """Runs one trial at a time; ``poll`` runs it to its end."""

    num_slots = 1

    def __init__(self, train: Training, command: str) -> None:
        self._train, self._command = train, command

    def submit(self, spec: Spec, setting: str) -> None:
        self._submitted = spec, setting

    def poll(self, listener: Listener) -> None:
        spec, setting = self._submitted

        def send(message: Message) -> None:
            listener(spec, message)
            if isinstance(message, Failed) and "CUDA error" in message.why:
                raise StudyError(
                    "after a CUDA error this process cannot use its GPU any more",
                    "make the same call with processes=1 (--processes 1), and the other trials "
                    "go on",
                )

        with naming(spec):
            trial = Trial(setting, spec.seed, dict(spec.params))
            perform(lambda: self._train, trial, self._command, send)

    def close(self) -> None:
        pass


def perform(
    load: Callable[[], Training], trial: Trial, command: str, send: Callable[[Message], None]
) -> None:
    """Runs a trial, and sends messages about it. It raises if the training is used wrongly."""

    def on_epoch(epoch: int, metrics: Mapping[str, float]) -> None:
        send(Reported(epoch, dict(metrics)))

    trial.on_epoch = on_epoch
    trial.params = params = Params(trial.params)
    try:
        measured, diverged = run_trial(load(), trial)
    except StudyError:
        raise
    except (Exception, SystemExit) as error:
        text = traceback.TracebackException.from_exception(error)  # str(error) itself may raise
        why = " ".join(f"{type(error).__name__}: {text}".split()).removesuffix(":")
        message: Message = Failed(why, traceback.format_exc().rstrip())
    else:
        device = "cuda" if torch.cuda.is_initialized() else "cpu"
        where = origin(device, command)
        message = Done(measured, diverged, where, frozenset(params.read), trial.torch_seed)
    send(message)
    send(Ended())


@functools.cache
def origin(device: str, command: str) -> dict[str, Any]:
    """Where a trial comes from; without the date, so that one entry serves all trials."""
    content = provenance(torch.device(device), command)
    return {name: value for name, value in content.items() if name != "date"}


@contextlib.contextmanager
def naming(spec: Spec) -> Iterator[None]:
    """Puts the name of a trial before a ``StudyError``."""
    try:
        yield
    except StudyError as error:
        raise error.at(spec).with_traceback(error.__traceback__) from None
