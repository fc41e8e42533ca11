"""What an executor does, what it says about its tasks, and when to stop."""

import enum
import math
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor

from qneurons.study.data import Dataset
from qneurons.study.execution.jobs import Job
from qneurons.study.packs import Pack
from qneurons.study.runs import Epoch, Run


class Outcome(enum.StrEnum):
    FINISHED = "finished"
    TIME_LIMIT = "time limit"
    INTERRUPTED = "interrupted"


class Halt:
    """Says whether to stop, and why. Once it returns True, it stays True.

    ``time_limit`` is in seconds from now.
    """

    def __init__(
        self, should_stop: Callable[[], bool] = lambda: False, time_limit: float | None = None
    ) -> None:
        self._should_stop = should_stop
        self._deadline = math.inf if time_limit is None else time.monotonic() + time_limit
        self.outcome: Outcome | None = None

    def __call__(self, ahead_s: float = 0.0) -> bool:
        """True if something that takes ``ahead_s`` seconds must not start any more."""
        if self.outcome is None:
            if self._should_stop():
                self.outcome = Outcome.INTERRUPTED
            elif self.left_s <= ahead_s:
                self.outcome = Outcome.TIME_LIMIT
        return self.outcome is not None

    @property
    def left_s(self) -> float:
        """Seconds until the time limit."""
        return self._deadline - time.monotonic()


@dataclass(frozen=True)
class TrainingOptions:
    """How all packs of a study are trained."""

    precision: str
    epochs: int
    keep_state: bool = False
    checkpoint_s: float = 30.0
    pack_class: type[Pack] = Pack


@dataclass(frozen=True, eq=False)
class Task:
    """A pack to train, and everything needed for that."""

    job: Job
    dataset: Dataset
    options: TrainingOptions
    load_state: Callable[[], dict[str, Tensor] | None]  # called late: many tasks may wait
    expected_s: float | None = None  # per epoch


@dataclass(frozen=True)
class Started:
    """Training begins, in a process with this provenance."""

    provenance: dict[str, Any]


@dataclass(frozen=True)
class Trained:
    """The pack has trained one more epoch, which took so many seconds."""

    epoch: int
    records: list[Epoch]
    seconds: float


@dataclass(frozen=True)
class SaveRequest:
    """Records to save together with the state of the runs after ``epoch``."""

    runs: tuple[Run, ...]
    records: list[Epoch]
    state: dict[str, Tensor] | None
    epoch: int


@dataclass(frozen=True)
class Ended:
    """The last message: the pack is finished or was stopped, unless a field says otherwise."""

    out_of_memory: bool = False
    lost: str = ""  # how the worker was lost
    error: Exception | None = None


Message = Started | Trained | SaveRequest | Ended  # about a task, in this order


class Executor(Protocol):
    """Trains packs on one kind of device until they are finished or ``halt`` says stop."""

    device: torch.device
    halt: Halt

    @property
    def has_room(self) -> bool:
        """True if another task may be submitted."""

    def pack_size(self, run: Run, num_runs: int) -> int:
        """How many runs like this one to train together, if ``num_runs`` are left."""

    def submit(self, task: Task) -> None: ...

    def poll(self) -> list[tuple[Task, Message]]:
        """Waits a while for new messages. Every task ends with ``Ended``, also at a halt."""

    def cancel(self, tasks: Collection[Task]) -> None:
        """Ends these tasks at once, without further messages."""
