"""Trains one pack, and says what is to be saved, and when."""

import gc
import time
from collections.abc import Iterator

import torch
from torch import Tensor

from qneurons.provenance import provenance
from qneurons.study.execution.executor import (
    Began,
    Ended,
    Halt,
    Saving,
    Task,
    Terms,
    Told,
    Trained,
    never,
)
from qneurons.study.packs.pack import Pack
from qneurons.study.runs import Epoch, Run

PATIENCE_S = 5.0  # an epoch shorter than this is finished when a stop is asked for
SAVING_SHARE = 0.1  # of the time at most is spent on saving


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
