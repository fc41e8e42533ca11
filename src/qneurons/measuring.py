"""What a call costs: its time, its memory and its kernels."""

import contextlib
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

Row = dict[str, Any]
Call = Callable[[], object]

MIN_SAMPLES = 7
SAMPLE_S = 0.002  # shorter samples measure the clock
FLUSH_BYTES = 2**28  # several times the L2 cache of any GPU


@contextlib.contextmanager
def failure_noted(row: Row) -> Iterator[None]:
    """Writes an exception into ``row["error"]``, so that everything else is still measured."""
    try:
        yield
    except Exception as error:
        row["error"] = f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"


def measure(
    calls: Mapping[Any, Call],
    device: torch.device,
    *,
    seconds: float,
    min_sample_s: float = SAMPLE_S,
) -> dict[Any, Row]:
    """Times the calls in turns. A sample repeats its call until it lasts ``min_sample_s``.

    Returns:
        for every call the median, the 20th and the 80th percentile in microseconds, or its error.
    """
    found: dict[Any, Row] = {key: {} for key in calls}
    for key, call in calls.items():
        with failure_noted(found[key]):
            for _ in range(2):  # to warm up
                call()
    calls = {key: call for key, call in calls.items() if not found[key]}
    timer = _cuda_timer(device) if device.type == "cuda" else _time_on_cpu
    repeats = {key: max(1, int(min_sample_s / timer(call, 1)())) for key, call in calls.items()}
    samples: dict[Any, list[float]] = {key: [] for key in calls}
    end, rounds = time.perf_counter() + seconds, 0
    while calls and (time.perf_counter() < end or rounds < MIN_SAMPLES):
        readings = {key: timer(call, repeats[key]) for key, call in calls.items()}
        for key, read in readings.items():
            samples[key].append(read())
        rounds += 1
    return found | {key: summary(times) for key, times in samples.items()}


def summary(times_s: Sequence[float]) -> Row:
    deciles = statistics.quantiles((t * 1e6 for t in times_s), n=10, method="inclusive")
    p20, median, p80 = deciles[1], deciles[4], deciles[7]
    return {"median_us": median, "p20_us": p20, "p80_us": p80, "samples": len(times_s)}


def ratio(row: Row, base: Row) -> float | str:
    return row["median_us"] / base["median_us"] if "median_us" in base else ""


# A timer starts a sample and returns a function that reads it: on a GPU one wait serves a round.
Timer = Callable[[Call, int], Callable[[], float]]


def _time_on_cpu(call: Call, repeats: int) -> Callable[[], float]:
    call()  # not timed: it pays for memory that the variant before has released
    start = time.perf_counter()
    for _ in range(repeats):
        call()
    elapsed = time.perf_counter() - start
    return lambda: elapsed / repeats


def _cuda_timer(device: torch.device) -> Timer:
    flush = torch.empty(FLUSH_BYTES, dtype=torch.uint8, device=device)

    def time_on_cuda(call: Call, repeats: int) -> Callable[[], float]:
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        flush.zero_()  # empties the L2 cache, and keeps the device busy while the call is enqueued
        start.record()
        for _ in range(repeats):
            call()
        end.record()

        def read() -> float:
            end.synchronize()
            return start.elapsed_time(end) / 1e3 / repeats

        return read

    return time_on_cuda


def bytes_kept(function: Callable[[Tensor], Tensor], x: Tensor) -> int:
    """What autograd keeps between forward and backward beyond x; each storage counts once."""
    storages: dict[int, int] = {}

    def pack(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        storages[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        result = function(x)  # kept alive until the sum: a freed address would be used again
    storages.pop(x.untyped_storage().data_ptr(), None)
    kept = sum(storages.values())
    del result
    return kept


def peak_bytes(call: Call) -> int:
    """The most memory that a call has allocated on CUDA at one time."""
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    call()
    return torch.cuda.max_memory_allocated() - before


def count_kernels(call: Call) -> int | str:
    """The kernels, copies and fills that a call runs on CUDA; "" if the profiler sees none."""
    from torch.profiler import ProfilerActivity, profile

    torch.cuda.synchronize()
    activities = [ProfilerActivity.CPU, ProfilerActivity.CUDA]
    with profile(activities=activities, acc_events=True) as profiler:
        call()
        torch.cuda.synchronize()
    events = [event for event in profiler.events() or () if event.device_type.name == "CUDA"]
    return sum("Sync" not in event.name for event in events) or ""
