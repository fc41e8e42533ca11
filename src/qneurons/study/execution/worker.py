"""Trains one pack in this process, and yields messages about it.

It does not know the store, so that it can run on another machine than the process that saves.
"""

import gc
import time
from collections.abc import Generator, Iterator
from functools import partial

import torch

from qneurons.provenance import provenance
from qneurons.study.execution.executor import (
    Ended,
    Halt,
    Message,
    SaveRequest,
    Started,
    Task,
    Trained,
)
from qneurons.study.runs import Epoch

PATIENCE_S = 5.0  # an epoch shorter than this is finished when a stop is requested
SAVING_SHARE = 0.1  # the largest share of the time that is spent on saving


def run_task(task: Task, device: torch.device, halt: Halt) -> Generator[Message]:
    """Trains a pack and frees the memory of the device."""
    yield Started(provenance(device, command=""))
    out_of_memory = False
    try:
        yield from train_pack(task, device, halt)
    except (RuntimeError, MemoryError) as error:
        if not _is_out_of_memory(error):
            raise
        out_of_memory = True
    if device.type == "cuda":
        gc.collect()
        torch.cuda.empty_cache()
    yield Ended(out_of_memory=out_of_memory)


def train_pack(task: Task, device: torch.device, halt: Halt) -> Iterator[Trained | SaveRequest]:
    """Trains a pack until it is finished or halted."""
    options, runs, expected_s = task.options, task.job.runs, task.expected_s
    build = partial(
        options.pack_class,
        dataset=task.dataset,
        device=device,
        precision=options.precision,
        num_epochs=options.epochs,
    )
    pack = build(runs, state=task.load_state(), epoch=task.job.epoch)
    diverged: set[str] = set()
    unsaved: list[Epoch] = []
    saved_at, saving_s = time.monotonic(), 0.0

    def finished() -> bool:
        return pack.epoch >= options.epochs or len(diverged) == len(runs)

    while not finished() and not halt(expected_s or 0.0):
        # A pack that is stopped within an epoch cannot be used any more. So if there is something
        # to save, a short epoch is finished, and before a long one the state is copied.
        is_short = expected_s is not None and expected_s < PATIENCE_S
        before = pack.state() if unsaved and not is_short else None
        epoch, start = pack.epoch, time.monotonic()
        records = pack.train_epoch() if unsaved and is_short else pack.train_epoch(halt)
        if records is None:
            if unsaved:
                yield SaveRequest(runs, unsaved, before, epoch)
            return
        expected_s = time.monotonic() - start
        records = [record for record in records if record.run not in diverged]
        unsaved += records
        yield Trained(pack.epoch, records, expected_s)
        lost = {record.run for record in records if record.diverged}
        diverged |= lost
        is_due = time.monotonic() - saved_at >= max(options.checkpoint_s, saving_s / SAVING_SHARE)
        if (lost or is_due) and not finished():
            start = time.monotonic()
            latest = pack.state()
            yield SaveRequest(runs, unsaved, latest, pack.epoch)
            unsaved = []
            if lost and device.type == "cpu":
                # The remaining runs continue as after a resumption, so that they round alike.
                # On CUDA a pack is expensive to build, and rounding depends on the pack anyway.
                kept = [index for index, run in enumerate(runs) if run.id not in diverged]
                runs, diverged = tuple(runs[index] for index in kept), set()
                latest = {name: values[kept] for name, values in latest.items()}
                pack = build(runs, state=latest, epoch=pack.epoch)
            del latest
            saved_at = time.monotonic()
            saving_s = saved_at - start
    if unsaved:
        can_continue = len(diverged) < len(runs) and (
            pack.epoch < options.epochs or options.keep_state
        )
        yield SaveRequest(runs, unsaved, pack.state() if can_continue else None, pack.epoch)


def _is_out_of_memory(error: Exception) -> bool:
    # The CPU's allocator, cuBLAS and the capture of a CUDA graph raise a plain RuntimeError.
    signs = ("out of memory", "not enough memory", "can't allocate memory", "STATUS_ALLOC_FAILED")
    return isinstance(error, torch.OutOfMemoryError | MemoryError) or any(
        sign in str(error) for sign in signs
    )
