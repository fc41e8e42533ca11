"""Measures q-activations beside the plain activation, the paper's snippet and a copy."""

import contextlib
import csv
import functools
import statistics
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import qneurons as qn
from qneurons.activations import Activation, resolve
from qneurons.functional import LAM
from qneurons.provenance import ORIGIN
from qneurons.study.networks import build

Row = dict[str, Any]
Call = Callable[[], object]

DTYPES = {
    "float32": torch.float32,
    "bfloat16": torch.bfloat16,
    "float16": torch.float16,
    "float64": torch.float64,
}
FORWARD, BOTH, STEP = "forward", "forward + backward", "training step"
MEASURED = (
    *("activation", "variant", "pass", "dtype", "elements"),
    *("median_us", "p20_us", "p80_us", "samples", "to_copy", "to_plain"),
    *("bytes_kept", "peak_bytes", "kernels", "error"),
)
COLUMNS = (*MEASURED, *ORIGIN)

MIN_SAMPLES = 7
SAMPLE_S = 0.002  # shorter samples measure the clock
FLUSH_BYTES = 2**28  # several times the L2 cache of any GPU


@dataclass(frozen=True)
class Case:
    """One activation in one dtype and size; its variants are measured in turns."""

    activation: str
    dtype: str
    elements: int
    compiled: bool = False

    def about(self) -> Row:
        return {"activation": self.activation, "dtype": self.dtype, "elements": self.elements}


@dataclass(frozen=True)
class Step:
    """One training step of the paper's MNIST-CNN, in ``"float32"`` or ``"tf32"``."""

    activation: str
    precision: str
    batch: int = 64

    def about(self) -> Row:
        which = f"{STEP}, MNIST-CNN, batch {self.batch}"
        return {"activation": self.activation, "pass": which, "dtype": self.precision}


def run(job: Case | Step, device: torch.device, *, seconds: float) -> list[Row]:
    """Measures a job in about that many seconds; what fails becomes a row with its error."""
    failure: Row = {}
    with _noting_failure(failure, "error"):
        if isinstance(job, Case):
            return measure_activation(job, device, seconds=seconds)
        return measure_step(job, device, seconds=seconds)
    return [job.about() | failure]


def paper_snippet(
    f: Callable[[Tensor], Tensor], lam: float = LAM, phi: float = 1e-3
) -> Callable[[Tensor], Tensor]:
    """The paper's three lines, in torch."""

    def qactivate(x: Tensor) -> Tensor:
        q = torch.randn_like(x)
        q = (2 * (q >= 0) - 1) * (lam * torch.abs(q) + phi)
        return (f(x * (1 + q)) - f(x)) / q

    return qactivate


def plain(row: Activation) -> Callable[[Tensor], Tensor]:
    """PyTorch's own function for a row, as a user calls it."""
    if not row.functions:
        return row
    return functools.partial(row.functions[0], **row.options, **row.parameters)


def variants(case: Case, device: torch.device) -> dict[str, Callable[[Tensor], Tensor]]:
    f = plain(resolve(case.activation))
    ours = qn.QActivation(case.activation).to(device)
    functions: dict[str, Any] = {"plain": f, "snippet": paper_snippet(f), "qneurons": ours}
    if case.compiled:
        torch.compiler.reset()  # every snippet shares one code object, whose recompiles are limited
        for name in ("snippet", "qneurons"):
            functions[f"{name}, compiled"] = torch.compile(functions[name], dynamic=False)
    return functions


def measure_activation(case: Case, device: torch.device, *, seconds: float) -> list[Row]:
    """Measures every variant of a case, forward and forward + backward, and a copy of the tensor.

    Forward is what training pays: x requires grad, and the graph is built and dropped.
    """
    x = torch.randn(case.elements, device=device).to(DTYPES[case.dtype]).requires_grad_()
    gradient = torch.randn_like(x)
    source, target = x.detach(), torch.empty_like(x)
    functions = variants(case, device)

    def forward_backward(function: Callable[[Tensor], Tensor]) -> None:
        x.grad = None
        function(x).backward(gradient)

    calls: dict[Any, Call] = {("copy", FORWARD): lambda: target.copy_(source)}
    for name, function in functions.items():
        calls[name, FORWARD] = functools.partial(function, x)
        calls[name, BOTH] = functools.partial(forward_backward, function)
    errors = warm_up(calls)
    # A GPU's cache is flushed before every sample, so that there a sample is one call.
    shortest = 0 if _is_cuda(device) else SAMPLE_S
    timings = measure(calls, device, seconds=seconds, min_sample_s=shortest)

    rows = []
    for key, call in calls.items():
        variant, which = key
        row = case.about() | {"variant": variant, "pass": which} | timings[key]
        row["to_copy"] = _ratio(timings, key, ("copy", FORWARD))
        with _noting_failure(row, "error"):
            if variant != "copy":
                row["to_plain"] = _ratio(timings, key, ("plain", which))
            if which == FORWARD:
                row["kernels"] = count_kernels(call, device)
            else:
                row["bytes_kept"] = bytes_kept(functions[variant], x)
                x.grad = None
                row["peak_bytes"] = peak_bytes(call, device)
        rows.append(row)
    for (variant, which), error in errors.items():
        rows.append(case.about() | {"variant": variant, "pass": which, "error": error})
    return rows


# --- one training step of the paper's network -----------------------------------------------------


def measure_step(job: Step, device: torch.device, *, seconds: float) -> list[Row]:
    """Measures a training step with the plain activation and with ours.

    On CUDA the model is compiled and the whole step (forward, loss, backward, update) is one CUDA
    graph; on the CPU it runs eagerly.
    """
    images = torch.rand(job.batch, 1, 28, 28, device=device)
    labels = torch.randint(10, (job.batch,), device=device)
    models: dict[str, nn.Module] = {
        variant: build("mnist-cnn", images.shape[1:], resolve(job.activation), kind).to(device)
        for variant, kind in {"plain": "base", "qneurons": "q"}.items()
    }
    if _is_cuda(device):
        torch.compiler.reset()
    calls: dict[Any, Call] = {}
    errors: dict[Any, str] = {}
    rows = []
    with _matmul_precision(job.precision):
        for variant, model in models.items():
            with _noting_failure(errors, variant):
                calls[variant] = training_step(model, images, labels)
        errors |= warm_up(calls)
        timings = measure(calls, device, seconds=seconds)
        for variant in calls:
            row = job.about() | {"variant": variant} | timings[variant]
            row["to_plain"] = _ratio(timings, variant, "plain")
            rows.append(row)
    rows += [job.about() | {"variant": name, "error": error} for name, error in errors.items()]
    return rows


def training_step(model: nn.Module, images: Tensor, labels: Tensor) -> Call:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, foreach=True)

    def loss(images: Tensor, labels: Tensor) -> Tensor:
        return F.cross_entropy(model(images), labels)

    on_cuda = _is_cuda(images.device)
    compute_loss = torch.compile(loss, dynamic=False) if on_cuda else loss

    def step() -> None:
        optimizer.zero_grad()
        compute_loss(images, labels).backward()
        optimizer.step()

    if not on_cuda:
        return step
    side = torch.cuda.Stream()  # what is captured must have run before, on another stream
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(side)
    optimizer.zero_grad()  # so that the gradients of the capture lie in the graph's own memory
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    return graph.replay


@contextlib.contextmanager
def _matmul_precision(name: str) -> Iterator[None]:
    before = torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32
    torch.set_float32_matmul_precision("high" if name == "tf32" else "highest")
    torch.backends.cudnn.allow_tf32 = name == "tf32"
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before[0])
        torch.backends.cudnn.allow_tf32 = before[1]


# --- time, memory, kernels ------------------------------------------------------------------------


@contextlib.contextmanager
def _noting_failure(notes: dict[Any, Any], key: Any) -> Iterator[None]:
    try:
        yield
    except Exception as error:  # whatever one variant does, the others are to be measured
        notes[key] = f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"


def warm_up(calls: dict[Any, Call]) -> dict[Any, str]:
    """Runs every call twice; takes out those that fail and returns their errors."""
    errors: dict[Any, str] = {}
    for key, call in calls.items():
        with _noting_failure(errors, key):
            for _ in range(2):
                call()
    for key in errors:
        del calls[key]
    return errors


def measure(
    calls: Mapping[Any, Call],
    device: torch.device,
    *,
    seconds: float,
    min_sample_s: float = SAMPLE_S,
) -> dict[Any, Row]:
    """Times the calls in turns; a sample repeats its call until it lasts ``min_sample_s``.

    Returns:
        of every call the median and the percentiles 20 and 80 of a call's microseconds.
    """
    timer = _cuda_timer(device) if _is_cuda(device) else _time_on_cpu
    repeats = {key: max(1, int(min_sample_s / timer(call, 1)())) for key, call in calls.items()}
    samples: dict[Any, list[float]] = {key: [] for key in calls}
    end, rounds = time.perf_counter() + seconds, 0
    while calls and (time.perf_counter() < end or rounds < MIN_SAMPLES):
        readings = {key: timer(call, repeats[key]) for key, call in calls.items()}
        for key, read in readings.items():
            samples[key].append(read())
        rounds += 1
    return {key: summary(times) for key, times in samples.items()}


def summary(times_s: Sequence[float]) -> Row:
    deciles = statistics.quantiles((t * 1e6 for t in times_s), n=10, method="inclusive")
    p20, median, p80 = deciles[1], deciles[4], deciles[7]
    return {"median_us": median, "p20_us": p20, "p80_us": p80, "samples": len(times_s)}


def _ratio(timings: Mapping[Any, Row], key: Any, base: Any) -> float | str:
    return timings[key]["median_us"] / timings[base]["median_us"] if base in timings else ""


# A timer starts a sample and returns what reads it, so that a GPU is waited for once a round.
Timer = Callable[[Call, int], Callable[[], float]]


def _time_on_cpu(call: Call, repeats: int) -> Callable[[], float]:
    call()  # else the first of a few calls pays for the memory that the variant before gave back
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
    """What autograd keeps between forward and backward beyond x, each storage once."""
    storages: dict[int, int] = {}

    def pack(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        storages[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        result = function(x)  # held until the sum is made: a freed address would be used again
    storages.pop(x.untyped_storage().data_ptr(), None)
    kept = sum(storages.values())
    del result
    return kept


def peak_bytes(call: Call, device: torch.device) -> int | str:
    """The most that a call has allocated at one time, on CUDA."""
    if not _is_cuda(device):
        return ""
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    call()
    return torch.cuda.max_memory_allocated() - before


def count_kernels(call: Call, device: torch.device) -> int | str:
    """What a call makes the device run: kernels, copies and fills; empty where nothing is seen."""
    if not _is_cuda(device):
        return ""
    from torch.profiler import ProfilerActivity, profile

    torch.cuda.synchronize()
    activities = [ProfilerActivity.CPU, ProfilerActivity.CUDA]
    with profile(activities=activities, acc_events=True) as profiler:
        call()
        torch.cuda.synchronize()
    ran = [
        event
        for event in profiler.events() or ()
        if event.device_type.name == "CUDA" and "Sync" not in event.name
    ]
    return len(ran) or ""


def _is_cuda(device: torch.device) -> bool:
    return device.type == "cuda"


# --- where the numbers go -------------------------------------------------------------------------


class Store:
    """A CSV file to which rows are appended; one with other columns is refused when opened."""

    def __init__(self, folder: Path, device: torch.device) -> None:
        self.path = folder / f"activation-{device.type}.csv"
        folder.mkdir(parents=True, exist_ok=True)
        if self.path.exists():
            with self.path.open(newline="") as file:
                header = next(csv.reader(file), [])
            if header != list(COLUMNS):
                raise ValueError(
                    f"{self.path} has other columns than this version writes; move it away, or "
                    f"choose another folder with --out"
                )

    def append(self, rows: Sequence[Row], origin: Row) -> None:
        append_rows(self.path, COLUMNS, (row | origin for row in rows))


def append_rows(path: Path, columns: Sequence[str], rows: Iterable[Row]) -> None:
    new = not path.exists()
    with path.open("a", newline="") as file:
        writer = csv.DictWriter(file, columns)
        if new:
            writer.writeheader()
        writer.writerows(rows)
