"""The benchmark: q-activations and limits beside plain activations, the snippet and a copy."""

import csv
import functools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import qneurons as qn
from qneurons import measuring
from qneurons.activations import Activation, resolve
from qneurons.functional import LAM
from qneurons.kernels import kernel_row
from qneurons.measuring import Call, Row, failure_noted, measure, ratio
from qneurons.provenance import ORIGIN
from qneurons.study.errors import StudyError

DTYPES = ("float32", "bfloat16", "float16", "float64")
FORWARD, BOTH, EVALUATION = "forward", "forward + backward", "evaluation"
CHAIN, CHAIN_BOTH = "compiled chain, evaluation", "compiled chain, forward + backward"
COLUMNS = (
    *("activation", "variant", "pass", "dtype", "elements"),
    *("median_us", "p20_us", "p80_us", "samples", "to_copy", "to_plain"),
    *("bytes_kept", "peak_bytes", "kernels", "error"),
    *ORIGIN,
)


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


class _OneOperation(torch.autograd.Function):
    """The limit as the kernel that serves eager mode, which a compiler cannot fuse."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, name: str, parameters: list[float]) -> Tensor:
        ctx.save_for_backward(x)
        ctx.row = name, parameters
        return torch.ops.qneurons.limit(x, name, parameters)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        return torch.ops.qneurons.limit_backward(grads[0], *ctx.saved_tensors, *ctx.row), None, None


@dataclass(frozen=True)
class ActivationCase:
    """One activation in one dtype and size."""

    activation: str
    dtype: str
    elements: int
    compiled: bool = False

    def about(self) -> Row:
        return {"activation": self.activation, "dtype": self.dtype, "elements": self.elements}

    def variants(self, device: torch.device) -> dict[str, Callable[[Tensor], Tensor]]:
        f = plain(resolve(self.activation))
        ours = qn.QActivation(self.activation).to(device)
        functions: dict[str, Any] = {"plain": f, "snippet": paper_snippet(f), "qneurons": ours}
        functions["limit"] = qn.QLimit(self.activation)
        if self.compiled:
            torch.compiler.reset()  # all snippets share a code object, whose recompiles are limited
            for name in ("snippet", "qneurons", "limit"):
                functions[f"{name}, compiled"] = torch.compile(functions[name], dynamic=False)
        return functions

    def chains(self) -> dict[str, Callable[[Tensor], Tensor]]:
        """Compiled: the plain activation or the limit between neighbours that may be fused."""
        row = resolve(self.activation)

        def chain(function: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
            return torch.compile(lambda x: 0.7 * function(1.5 * x + 0.25) - 0.1, dynamic=False)

        return {
            "plain": chain(plain(row)),
            "limit": chain(qn.QLimit(row)),
            "limit, one operation": chain(lambda x: _OneOperation.apply(x, *kernel_row(row))),
        }

    def measure(self, device: torch.device, *, seconds: float) -> list[Row]:
        """Measures every variant, forward and forward + backward, and a copy of the tensor.

        Forward is timed as in training: x requires grad, and the graph is built and dropped. The
        plain activation and ours, in the limit and in the mean, are also timed in evaluation, in
        inference mode, and so are compiled chains.
        """
        dtype = getattr(torch, self.dtype)
        x = torch.randn(self.elements, device=device).to(dtype).requires_grad_()
        source, target, gradient = x.detach(), torch.empty_like(x), torch.randn_like(x)
        functions = self.variants(device)

        def forward_backward(function: Callable[[Tensor], Tensor]) -> None:
            x.grad = None
            function(x).backward(gradient)

        @torch.inference_mode()
        def evaluate(function: Callable[[Tensor], Tensor]) -> Tensor:
            return function(source)

        calls: dict[Any, Call] = {("copy", FORWARD): lambda: target.copy_(source)}
        evaluated: dict[str, Any] = {"plain": functions["plain"]}
        for name, mode in {"qneurons": "limit", "mean": "mean"}.items():
            module = qn.QActivation(self.activation, eval_mode=mode)  # type: ignore[arg-type]
            evaluated[name] = module.to(device).eval()
        for name, function in evaluated.items():
            calls[name, EVALUATION] = functools.partial(evaluate, function)
        for name, function in functions.items():
            calls[name, FORWARD] = functools.partial(function, x)
            calls[name, BOTH] = functools.partial(forward_backward, function)
        for name, function in self.chains().items() if self.compiled else ():
            calls[name, CHAIN] = functools.partial(evaluate, function)
            calls[name, CHAIN_BOTH] = functools.partial(forward_backward, function)
        on_cuda = device.type == "cuda"
        # A GPU's cache is flushed before every sample, so a sample is one call there.
        shortest = 0 if on_cuda else measuring.SAMPLE_S
        timings = measure(calls, device, seconds=seconds, min_sample_s=shortest)

        rows = []
        for (variant, which), call in calls.items():
            timing = timings[variant, which]
            row = self.about() | {"variant": variant, "pass": which} | timing
            rows.append(row)
            if "error" in timing:
                continue
            row["to_copy"] = ratio(row, timings["copy", FORWARD])
            if variant != "copy":
                row["to_plain"] = ratio(row, timings["plain", which])
            with failure_noted(row):
                if which == BOTH:
                    row["bytes_kept"] = measuring.bytes_kept(functions[variant], x)
                    x.grad = None
                    row["peak_bytes"] = measuring.peak_bytes(call) if on_cuda else ""
                elif on_cuda:
                    row["kernels"] = measuring.count_kernels(call)
        return rows


def run(case: ActivationCase, device: torch.device, *, seconds: float) -> list[Row]:
    """Measures a case for about ``seconds``; a failure becomes a row with its error."""
    failed = case.about()
    with failure_noted(failed):
        return case.measure(device, seconds=seconds)
    return [failed]


def results_file(folder: Path, device: torch.device) -> Path:
    """The CSV file for this kind of device. A file with other columns is refused."""
    path = folder / f"activation-{device.type}.csv"
    folder.mkdir(parents=True, exist_ok=True)
    path.open("a").close()  # fails before anything is measured
    with path.open(newline="") as file:
        header = next(csv.reader(file), list(COLUMNS))
    if header != list(COLUMNS):
        raise StudyError(
            f"{path} has other columns than this version writes",
            "move it away, or choose another folder with --out",
        )
    return path


def append_rows(path: Path, columns: Sequence[str], rows: Iterable[Row]) -> None:
    with path.open("a", newline="") as file:
        writer = csv.DictWriter(file, columns)
        if not file.tell():
            writer.writeheader()
        writer.writerows(rows)
