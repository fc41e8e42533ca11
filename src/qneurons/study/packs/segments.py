"""The activations of a pack: one call for each segment of similar runs, without copies."""

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import torch
from torch import Tensor

from qneurons import kernels
from qneurons.activations import Activation, resolve
from qneurons.study.runs import Run, parse_setting


@dataclass(frozen=True)
class Segment:
    """Neighbouring runs of a pack with the same activation and kind of setting."""

    activation: Activation
    kind: str
    runs: slice


def segments(runs: Sequence[Run]) -> list[Segment]:
    def key(run: Run) -> tuple[str, str]:
        kind = parse_setting(run.setting).kind
        return run.activation, "base" if kind == "gradient-noise" else kind

    found, start = [], 0
    for (activation, kind), members in itertools.groupby(runs, key):
        stop = start + len(list(members))
        found.append(Segment(resolve(activation), kind, slice(start, stop)))
        start = stop
    return found


@dataclass(frozen=True)
class ByAutograd:
    """Any function: f itself, the mean, or a q-activation without a kernel."""

    function: Callable[[Tensor], Tensor]

    def forward(self, x: Tensor, out: Tensor) -> None:
        out.copy_(self.function(x))

    def backward(self, grad: Tensor, x: Tensor, out: Tensor) -> None:
        with torch.enable_grad():
            x = x.detach().requires_grad_()
            (grad_x,) = torch.autograd.grad(self.function(x), x, grad)
        out.copy_(grad_x)


@dataclass(frozen=True)
class ByKernel:
    """A q-activation with a seed and a λ for every run; the limit if λ and φ are zero."""

    activation: Activation
    seed: Tensor
    lam: Tensor
    phi: Tensor

    def forward(self, x: Tensor, out: Tensor) -> None:
        backend, law = self._law(x)
        backend.forward(x, *law, out=out)

    def backward(self, grad: Tensor, x: Tensor, out: Tensor) -> None:
        backend, law = self._law(x)
        backend.backward(grad, x, *law, out=out)

    def _law(self, x: Tensor) -> tuple[ModuleType, tuple[Any, ...]]:
        # A kernel checks nothing, and would read past the end.
        assert len(x) == len(self.seed) == len(self.lam), "one seed and one λ for each run"
        name, parameters = kernels.kernel_row(self.activation)
        backend = kernels.find(x.device.type, x.dtype, name)
        return backend, (self.seed, self.lam, self.phi, x[0].numel(), name, parameters)


Parts = Sequence[tuple[slice, ByAutograd | ByKernel]]


def activate(x: Tensor, parts: Parts) -> Tensor:
    """Applies each function to its runs; the first dimension of x is the run."""
    return _Activate.apply(x.contiguous(), parts)


class _Activate(torch.autograd.Function):
    """Avoids ``split`` and ``cat``, which would copy x and its gradient."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, parts: Parts) -> Tensor:
        ctx.save_for_backward(x)
        ctx.parts = parts
        out = torch.empty_like(x)
        for runs, part in parts:
            part.forward(x[runs], out[runs])
        return out

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        (x,), grad = ctx.saved_tensors, grads[0].contiguous()
        out = torch.empty_like(x)
        for runs, part in ctx.parts:
            part.backward(grad[runs], x[runs], out[runs])
        return out, None
