"""Trains one pack to its end, epoch by epoch, and says what is to be saved, and when."""

import enum
import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from qneurons.study.data import Dataset
from qneurons.study.planning import Job
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


@dataclass(frozen=True)
class Saving:
    """What is to be saved at once: records, and the state of the runs after that epoch."""

    runs: tuple[Run, ...]
    records: list[Epoch]
    state: dict[str, Tensor] | None
    epoch: int


@dataclass(frozen=True)
class Terms:
    """Under which every pack is trained."""

    device: torch.device
    precision: str
    epochs: int
    keep_state: bool = False
    checkpoint_s: float = 30.0
    pack_class: type[Pack] = Pack


def train(
    job: Job,
    dataset: Dataset,
    state: dict[str, Tensor] | None,
    terms: Terms,
    *,
    halt: Halt,
    expected_s: float | None = None,
    on_epoch: Callable[[int, list[Epoch], float], None],
) -> Iterator[Saving]:
    """Trains a pack to its end or until halted, and yields what is to be saved, when it is time.

    It knows nothing of the store, so that it can run in another process than the one that saves.
    ``expected_s`` is how long an epoch will take, ``on_epoch`` hears the epoch, its new records
    and the seconds it took.
    """

    def build(runs: tuple[Run, ...], state: dict[str, Tensor] | None, epoch: int) -> Pack:
        device, precision = terms.device, terms.precision
        return terms.pack_class(
            runs, dataset, device=device, precision=precision, state=state, epoch=epoch
        )

    runs = job.runs
    pack = build(runs, state, job.epoch)
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
        on_epoch(pack.epoch, records, expected_s)
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
