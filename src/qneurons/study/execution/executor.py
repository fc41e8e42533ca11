"""Trains packs, one after another in this process, and says what is to be saved, and when."""

import enum
import math
import time
from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor

from qneurons.study.data import Dataset
from qneurons.study.execution.plan import Job
from qneurons.study.packs.pack import Pack
from qneurons.study.runs import Epoch, Run


class Outcome(enum.StrEnum):
    FINISHED = "finished"
    TIME_LIMIT = "time limit"
    INTERRUPTED = "interrupted"


def never() -> bool:
    return False


class Halt:
    """Whether to stop now, and why: it once said so, it says so for good."""

    def __init__(self, should_stop: Callable[[], bool], time_limit: float | None) -> None:
        self._should_stop = should_stop
        self._deadline = math.inf if time_limit is None else time.monotonic() + time_limit
        self.outcome: Outcome | None = None

    def __call__(self, ahead_s: float = 0.0) -> bool:
        """With ``ahead_s``: whether what takes so long would end too late."""
        if self.outcome is None:
            if self._should_stop():
                self.outcome = Outcome.INTERRUPTED
            elif time.monotonic() + ahead_s >= self._deadline:
                self.outcome = Outcome.TIME_LIMIT
        return self.outcome is not None

    @property
    def left_s(self) -> float:
        """How long until the time limit."""
        return self._deadline - time.monotonic()


# --- what is to be done, and what is told of it ---------------------------------------------------


@dataclass(frozen=True)
class Terms:
    """Under which every pack is trained."""

    device: torch.device
    precision: str
    epochs: int
    keep_state: bool = False
    checkpoint_s: float = 30.0
    pack_class: type[Pack] = Pack


@dataclass(frozen=True, eq=False)
class Task:
    """A pack to be trained, and all that it takes."""

    job: Job
    dataset: Dataset
    load_state: Callable[[], dict[str, Tensor] | None]  # when it begins: many may wait
    expected_s: float | None = None  # that an epoch will take


@dataclass(frozen=True)
class Began:
    """A pack is being trained now, by a process of which this is the provenance."""

    provenance: dict[str, Any]


@dataclass(frozen=True)
class Trained:
    """An epoch of a pack, its new records and the seconds that it took."""

    epoch: int
    records: list[Epoch]
    seconds: float


@dataclass(frozen=True)
class Saving:
    """What is to be saved at once: records, and the state of the runs after that epoch."""

    runs: tuple[Run, ...]
    records: list[Epoch]
    state: dict[str, Tensor] | None
    epoch: int


@dataclass(frozen=True)
class Ended:
    """A pack is trained no longer: it is finished or halted, or one of these happened."""

    out_of_memory: bool = False
    lost: str = ""  # how its process ended, if that was before the pack's end


Told = Began | Trained | Saving | Ended


class Executor(Protocol):
    """Where and in which order packs are trained."""

    def pack_size(self, run: Run, num_runs: int) -> int:
        """How many runs like this one a pack should have, if so many runs are to be trained."""

    def train(
        self, take: Callable[[], Task | None], terms: Terms, halt: Halt
    ) -> Generator[tuple[Task, Told]]:
        """Trains what ``take`` gives until that is nothing or it is halted, and tells of it.

        ``take`` is asked again whenever there is room for more. Of every task is told that it
        began, what was trained and what is to be saved, and at last that it ended. Closed early,
        it leaves nothing running.
        """
