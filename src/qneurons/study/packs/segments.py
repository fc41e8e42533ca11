"""The activations of a pack: one call for neighbouring runs alike, which writes where they are."""

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
    """Neighbouring runs of a pack with the same activation, in the same kind of setting."""

    activation: Activation
    kind: str
    start: int
    stop: int

    @property
    def runs(self) -> slice:
        return slice(self.start, self.stop)


def segments(runs: Sequence[Run]) -> list[Segment]:
    def kind(run: Run) -> tuple[str, str]:
        kind = parse_setting(run.setting).kind
        return run.activation, "base" if kind == "gradient-noise" else kind

    found, start = [], 0
    for (activation, name), members in itertools.groupby(runs, kind):
        stop = start + len(list(members))
        found.append(Segment(resolve(activation), name, start, stop))
        start = stop
    return found


# --- what a segment computes ----------------------------------------------------------------------


@dataclass(frozen=True)
class ByAutograd:
    """Any function: f itself, the mean, or a row without a kernel."""

    function: Callable[[Tensor], Tensor]

    def forward(self, x: Tensor, out: Tensor) -> None:
        out.copy_(self.function(x))

    def backward(self, grad: Tensor, x: Tensor, out: Tensor) -> None:
        with torch.enable_grad():
            x = x.detach().requires_grad_()
            (pulled,) = torch.autograd.grad(self.function(x), x, grad)
        out.copy_(pulled)


@dataclass(frozen=True)
class Draw:
    """A kernel's q-activation with a seed and a λ for every run; the limit if λ and φ are zero."""

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
        name, parameters = kernels.kernel_row(self.activation)
        backend = kernels.find(x.device.type, x.dtype, name)
        return backend, (self.seed, self.lam, self.phi, x[0].numel(), name, parameters)


Elementwise = ByAutograd | Draw  # forward, and the pull of a gradient; both write to out


def activate(x: Tensor, parts: Sequence[tuple[slice, Elementwise]]) -> Tensor:
    """Of x, whose first dimension is the run, every part by its own function."""
    return _Activate.apply(x.contiguous(), parts)


class _Activate(torch.autograd.Function):
    """Without ``split`` and ``cat``, which would copy x and its gradient once more."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, parts: Sequence[tuple[slice, Elementwise]]) -> Tensor:
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
