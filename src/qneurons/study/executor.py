"""Trains packs, one after another in this process, and says what is to be saved, and when."""

import enum
import gc
import math
import time
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor

from qneurons.provenance import provenance
from qneurons.study.data import DATASETS, Dataset
from qneurons.study.planning import Job, default_pack
from qneurons.study.runs import Epoch, Run
from qneurons.study.training import Pack

PATIENCE_S = 5.0  # an epoch shorter than this is finished when a stop is asked for
SAVING_SHARE = 0.1  # of the time at most is spent on saving


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


class LocalExecutor:
    """Trains one pack after another in this process."""

    def __init__(self, device: torch.device) -> None:
        self._device = device

    def pack_size(self, run: Run, num_runs: int) -> int:
        return default_pack(run, DATASETS[run.dataset].shape, self._device)

    def train(
        self, take: Callable[[], Task | None], terms: Terms, halt: Halt
    ) -> Generator[tuple[Task, Told]]:
        while task := take():
            for told in work(task, terms, halt):
                yield task, told


# --- one pack -------------------------------------------------------------------------------------


def work(task: Task, terms: Terms, halt: Halt) -> Iterator[Told]:
    """Trains a pack in this process, and leaves the device's memory as it found it."""
    yield Began(provenance(terms.device, command=""))
    out_of_memory = False
    try:
        yield from train(task, terms, halt)
    except (RuntimeError, MemoryError) as error:
        if not _is_out_of_memory(error):
            raise
        out_of_memory = True
    if terms.device.type == "cuda":
        gc.collect()
        torch.cuda.empty_cache()
    yield Ended(out_of_memory=out_of_memory)


def train(task: Task, terms: Terms, halt: Halt) -> Iterator[Trained | Saving]:
    """Trains a pack to its end or until halted, and yields what is to be saved, when it is time.

    It knows nothing of the store, so that it can run in another process than the one that saves.
    """

    def build(runs: tuple[Run, ...], state: dict[str, Tensor] | None, epoch: int) -> Pack:
        device, precision = terms.device, terms.precision
        return terms.pack_class(
            runs, task.dataset, device=device, precision=precision, state=state, epoch=epoch
        )

    runs, expected_s = task.job.runs, task.expected_s
    pack = build(runs, task.load_state(), task.job.epoch)
    diverged: set[str] = set()
    unsaved: list[Epoch] = []
    saved_at, saving_s = time.monotonic(), 0.0
    while pack.epoch < terms.epochs and len(diverged) < len(runs):
        if halt(expected_s or 0.0):
            break
        # An abandoned epoch leaves the pack unusable. So a short one is finished when there is
        # something to save, and before a long one what there is to save is kept at hand.
        short = expected_s is not None and expected_s < PATIENCE_S
        before = pack.state() if unsaved and not short else None
        epoch, start = pack.epoch, time.monotonic()
        records = pack.train_epoch(never if unsaved and short else halt)
        if records is None:
            if unsaved:
                yield Saving(runs, unsaved, before, epoch)
            return
        expected_s = time.monotonic() - start
        records = [record for record in records if record.run not in diverged]
        unsaved += records
        yield Trained(pack.epoch, records, expected_s)
        lost = {record.run for record in records if record.diverged}
        diverged |= lost
        due = time.monotonic() - saved_at >= max(terms.checkpoint_s, saving_s / SAVING_SHARE)
        if (lost or due) and pack.epoch < terms.epochs and len(diverged) < len(runs):
            start = time.monotonic()
            latest = pack.state()
            yield Saving(runs, unsaved, latest, pack.epoch)
            unsaved = []
            if lost and terms.device.type == "cpu":
                # As after a resumption, so that the others round alike. Elsewhere a pack is dear
                # to build and equal rounding is not promised: there the lost are carried along.
                kept = [index for index, run in enumerate(runs) if run.id not in diverged]
                runs, diverged = tuple(runs[index] for index in kept), set()
                latest = {name: values[kept] for name, values in latest.items()}
                pack = build(runs, latest, pack.epoch)
            del latest
            saved_at = time.monotonic()
            saving_s = saved_at - start
    if unsaved:
        all_lost = len(diverged) == len(runs)
        ended = all_lost or (pack.epoch >= terms.epochs and not terms.keep_state)
        yield Saving(runs, unsaved, None if ended else pack.state(), pack.epoch)


def _is_out_of_memory(error: Exception) -> bool:
    # The CPU's allocator, cuBLAS and a graph in the making raise a plain RuntimeError.
    signs = ("out of memory", "not enough memory", "can't allocate memory", "STATUS_ALLOC_FAILED")
    return isinstance(error, torch.OutOfMemoryError | MemoryError) or any(
        sign in str(error) for sign in signs
    )
