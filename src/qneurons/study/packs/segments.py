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
from qneurons.study.networks import POOL
from qneurons.study.packs.layers import pool
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

    def pool(self, x: Tensor, out: Tensor, choice: Tensor, backend: Any) -> None:
        backend.pool(self.function(x).to(x.dtype).contiguous(), out, choice)

    def pool_backward(
        self, grad: Tensor, x: Tensor, choice: Tensor, out: Tensor, backend: Any
    ) -> None:
        of_activation = torch.empty_like(x)
        backend.pool_backward(grad, x, choice, of_activation)
        self.backward(of_activation, x, out)


@dataclass(frozen=True)
class ByKernel:
    """A q-activation with a seed and a λ for every run; the limit if λ and φ are zero.

    ``row`` is a name and parameters in the kernels. That of f itself does not depend on the others.
    """

    row: tuple[str, list[float]]
    seed: Tensor
    lam: Tensor
    phi: Tensor

    def forward(self, x: Tensor, out: Tensor) -> None:
        self._backend(x).forward(x, *self._law(x), out=out)

    def backward(self, grad: Tensor, x: Tensor, out: Tensor) -> None:
        self._backend(x).backward(grad, x, *self._law(x), out=out)

    def pool(self, x: Tensor, out: Tensor, choice: Tensor, backend: Any) -> None:
        backend.pool(x, out, choice, self._law(x))

    def pool_backward(
        self, grad: Tensor, x: Tensor, choice: Tensor, out: Tensor, backend: Any
    ) -> None:
        backend.pool_backward(grad, x, choice, out, self._law(x))

    def _backend(self, x: Tensor) -> ModuleType:
        return kernels.find(x.device.type, x.dtype, self.row[0])

    def _law(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor, int, str, list[float]]:
        # A kernel checks nothing, and would read past the end.
        assert len(x) == len(self.seed) == len(self.lam), "one seed and one λ for each run"
        return self.seed, self.lam, self.phi, x[0].numel(), *self.row


Parts = Sequence[tuple[slice, ByAutograd | ByKernel]]


def activate(x: Tensor, parts: Parts) -> Tensor:
    """Applies each function to its runs; the first dimension of x is the run."""
    return _Activate.apply(x.contiguous(), parts)


def activate_and_pool(x: Tensor, parts: Parts) -> Tensor:
    """The same, and max pooling after it."""
    backend = kernels.load(x.device.type)
    if hasattr(backend, "pool") and x.dtype != torch.float64:
        return _ActivateAndPool.apply(x.contiguous(), parts, backend)
    return pool(activate(x, parts))


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


class _ActivateAndPool(torch.autograd.Function):
    """Keeps x and which element of a window is the first maximum, and not the activation."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, parts: Parts, backend: ModuleType) -> Tensor:
        height, width = x.shape[-2:]
        out = x.new_empty(*x.shape[:-2], height // POOL, width // POOL)
        choice = torch.empty_like(out, dtype=torch.uint8)
        for runs, part in parts:
            part.pool(x[runs], out[runs], choice[runs], backend)
        ctx.save_for_backward(x, choice)
        ctx.parts, ctx.backend = parts, backend
        return out

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        (x, choice), grad = ctx.saved_tensors, grads[0].contiguous()
        out = torch.empty_like(x)
        for runs, part in ctx.parts:
            part.pool_backward(grad[runs], x[runs], choice[runs], out[runs], ctx.backend)
        return out, None, None
