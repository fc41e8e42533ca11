"""g(x, δ) as a function that PyTorch differentiates: backward, forward, under vmap and compile.

δ is given, or drawn from seeds by the fused ops, which keep x and the seeds and draw it again.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad

from qneurons import given_delta
from qneurons.activations import Activation
from qneurons.kernels import kernel_name, ops
from qneurons.noise import seeded_delta
from qneurons.precision import compute_dtype


def difference(x: Tensor, delta: Tensor, activation: Activation) -> Tensor:
    """g(x, δ) for δ ≠ 0 of x's shape, in the dtype and the layout of x."""
    in_transform = torch._C._are_functorch_transforms_active()
    if delta.stride() != x.stride() and not in_transform:
        # Else a row whose first operand is δ would return the layout of δ.
        delta = torch.empty_like(x, dtype=delta.dtype).copy_(delta)
    if activation.difference is None:
        # Autograd sees all of it: a callable may have parameters of its own.
        return given_delta.difference(x.to(delta.dtype), delta, activation).to(x.dtype)
    if torch.compiler.is_compiling():
        return _Difference.apply(x, delta, activation)
    if in_transform or forward_ad._current_level >= 0:
        return _ForwardDifference.apply(x, delta, activation)
    if x.requires_grad and torch.is_grad_enabled():
        return _TrainingDifference.apply(x, delta, activation)
    return _Difference.forward(x, delta, activation)


class _Difference(torch.autograd.Function):
    """g(x, δ), from x and δ alone."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor, delta: Tensor, activation: Activation) -> Tensor:
        value = given_delta.difference(x.to(delta.dtype), delta, activation)
        # Compiled by torch 2.11, a Function that returns value.to(value.dtype) has gradient 0.
        return value if value.dtype == x.dtype else value.to(x.dtype)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        x, delta, ctx.activation = inputs
        ctx.save_for_backward(x, delta)
        ctx.save_for_forward(x, delta)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        x, delta = ctx.saved_tensors
        return (_slope(x, delta, ctx.activation) * grads[0]).to(x.dtype), None, None


class _ForwardDifference(_Difference):
    """With forward mode, for which Dynamo refuses a Function even where it is not asked for."""

    @staticmethod
    def jvp(ctx: Any, *tangents: Any) -> Tensor:
        x, delta = ctx.saved_tensors[:2]
        with _outer_forward_mode(x) as x:
            return (_slope(x, delta, ctx.activation) * tangents[0]).to(x.dtype)


class _TrainingDifference(_Difference):
    """The slope is computed beside g, with which it shares most of the work, and kept."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, delta: Tensor, activation: Activation) -> Tensor:  # type: ignore[override]
        value, slope = given_delta.difference_and_slope(x.to(delta.dtype), delta, activation)
        ctx.activation = activation
        ctx.save_for_backward(x, delta, slope)
        return value.to(x.dtype)

    setup_context = staticmethod(torch.autograd.Function.setup_context)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        x, delta, slope = ctx.saved_tensors
        if _is_differentiated():
            slope = _slope(x, delta, ctx.activation)
        return (slope * grads[0]).to(x.dtype), None, None


def _is_differentiated() -> bool:
    """Whether something differentiates a backward that runs now."""
    return (
        torch.is_grad_enabled()  # create_graph
        or torch._C._are_functorch_transforms_active()
        or forward_ad._current_level >= 0
    )


def _slope(x: Tensor, delta: Tensor, activation: Activation) -> Tensor:
    """dg/dx in the dtype of δ, differentiable."""
    function = _Slope if torch.compiler.is_compiling() else _ForwardSlope
    return function.apply(x, delta, activation)


class _Slope(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor, delta: Tensor, activation: Activation) -> Tensor:
        return given_delta.difference_and_slope(x.to(delta.dtype), delta, activation)[1]

    setup_context = staticmethod(_Difference.setup_context)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        x, delta = ctx.saved_tensors
        curvature = given_delta.curvature(x.to(delta.dtype), delta, ctx.activation)
        return (curvature * grads[0]).to(x.dtype), None, None


class _ForwardSlope(_Slope):
    @staticmethod
    def jvp(ctx: Any, *tangents: Any) -> Tensor:
        x, delta = ctx.saved_tensors
        with _outer_forward_mode(x) as x:
            return given_delta.curvature(x.to(delta.dtype), delta, ctx.activation) * tangents[0]


@contextmanager
def _outer_forward_mode(x: Tensor) -> Iterator[Tensor]:
    """Yields x without its own tangent, for a jvp that an outer forward mode can differentiate.

    torch runs a jvp with forward mode off, so that ``jacfwd(jacfwd(f))`` would be zero.
    """
    with forward_ad._set_fwd_grad_enabled(True):
        yield _primal(x)


def _primal(x: Tensor) -> Tensor:
    functorch = torch._C._functorch
    if not functorch.is_batchedtensor(x):
        return forward_ad.unpack_dual(x).primal
    # vmap has no rule for unpack_dual, so that it is done inside.
    inside, level = _primal(functorch.get_unwrapped(x)), functorch.maybe_get_level(x)
    return functorch._add_batch_dim(inside, functorch.maybe_get_bdim(x), level)


# --- δ drawn from seeds ---------------------------------------------------------------------------


# What the ops take beside x: seed, λ and φ, the law of δ; how many neighbours are of one group; and
# the name and the parameters of the row, by which kernels know it.
Law = tuple[Tensor, Tensor, Tensor, int, str, list[float]]


def row_of(activation: Activation) -> tuple[str, list[float]]:
    """The name and the parameters of a row, as the ops take them."""
    return kernel_name(activation) or "", list(activation.parameters.values())


def draw(x: Tensor, law: Law, activation: Activation) -> Tensor:
    """g(x, δ) with δ drawn from the seeds, for an activation that the kernels know."""
    if torch.compiler.is_compiling():
        return _Draw.apply(x, *law[:4], activation)
    if torch._C._are_functorch_transforms_active() or forward_ad._current_level >= 0:
        return _ForwardDraw.apply(x, *law[:4], activation)
    if x.requires_grad and torch.is_grad_enabled():
        return _train(x, law, activation)
    return ops.sample(x, *law)


class _Draw(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(  # written out, for Dynamo takes *args for a signature with a ctx
        x: Tensor,
        seed: Tensor,
        lam: Tensor,
        phi: Tensor,
        inner: int,
        activation: Activation,
    ) -> Tensor:
        return ops.sample(x, seed, lam, phi, inner, *row_of(activation))

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        *tensors, ctx.inner, ctx.activation = inputs
        ctx.save_for_backward(*tensors)
        ctx.save_for_forward(*tensors)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        return _pull(grads[0], *ctx.saved_tensors, ctx=ctx), *[None] * 5


class _ForwardDraw(_Draw):
    @staticmethod
    def jvp(ctx: Any, *tangents: Any) -> Tensor:
        x, *law = ctx.saved_tensors
        with _outer_forward_mode(x) as x:
            return _pull(tangents[0], x, *law, ctx=ctx)


class _TrainingDraw(_Draw):
    """Lean, for small tensors: ``setup_context`` alone costs more than their kernel."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, law: Law, activation: Activation) -> Tensor:  # type: ignore[override]
        ctx.save_for_backward(x, *law[:3])
        ctx.law, ctx.activation = law[3:], activation
        return ops.sample(x, *law)

    setup_context = staticmethod(torch.autograd.Function.setup_context)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        if _is_differentiated():
            ctx.inner = ctx.law[0]
            return _pull(grads[0], *ctx.saved_tensors, ctx=ctx), None, None
        return ops.sample_backward(grads[0], *ctx.saved_tensors, *ctx.law), None, None


# Without the layer of Function.apply that serves torch.func: it takes as long as a small kernel.
_train = super(torch.autograd.Function, _TrainingDraw).apply


def _pull(grad: Tensor, *tensors: Tensor, ctx: Any) -> Tensor:
    """grad · dg/dx in the dtype of x, differentiable: backward and forward mode share it."""
    function = _Pull if torch.compiler.is_compiling() else _ForwardPull
    return function.apply(grad, *tensors, ctx.inner, ctx.activation)


class _Pull(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(
        grad: Tensor,
        x: Tensor,
        seed: Tensor,
        lam: Tensor,
        phi: Tensor,
        inner: int,
        activation: Activation,
    ) -> Tensor:
        return ops.sample_backward(grad, x, seed, lam, phi, inner, *row_of(activation))

    setup_context = staticmethod(_Draw.setup_context)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        grad, *tensors = ctx.saved_tensors
        along_x = _bend(grads[0], grad, *tensors, ctx=ctx)
        return _pull(grads[0], *tensors, ctx=ctx), along_x, *[None] * 5


class _ForwardPull(_Pull):
    @staticmethod
    def jvp(ctx: Any, *tangents: Any) -> Tensor:
        grad, x, *law = ctx.saved_tensors
        with _outer_forward_mode(x) as x, _outer_forward_mode(grad) as grad:
            total = torch.zeros_like(x)
            if tangents[0] is not None:
                total = total + _pull(tangents[0], x, *law, ctx=ctx)
            if tangents[1] is not None:
                total = total + _bend(tangents[1], grad, x, *law, ctx=ctx)
            return total


def _bend(direction: Tensor, grad: Tensor, x: Tensor, *law: Tensor, ctx: Any) -> Tensor:
    """direction · grad · d²g/dx² in the dtype of x."""
    seed, lam, phi = law
    delta = seeded_delta(x.shape, seed, lam, phi, ctx.inner, dtype=compute_dtype(x))
    curvature = given_delta.curvature(x.to(delta.dtype), delta, ctx.activation)
    return (curvature * grad * direction).to(x.dtype)  # in this order, in the dtype of δ
