"""g(x, δ) as a function that PyTorch differentiates: backward, forward mode, vmap and compile.

δ is given, or the fused ops draw it from seeds, or it is 0: the limit f'(x)x. The fused ops keep x
and the seeds, and draw δ again. Where a compiler traces, the limit is plain torch, which Inductor
fuses with its neighbours and exporters know.
"""

from typing import Any

import torch
from torch import Tensor
from torch.compiler import is_compiling

from qneurons import given_delta
from qneurons.activations import Activation
from qneurons.kernels import ops, plain
from qneurons.kernels.dispatch import kernel_row, known_rows
from qneurons.noise import seeded_delta
from qneurons.precision import TINY_DELTA, compute_dtype
from qneurons.torch_internals import (
    eager_apply,
    in_func_transform,
    is_exporting,
    is_transformed,
    jit_tracing_state,
    outer_forward_mode,
    without_dynamo,
)


def difference(x: Tensor, delta: Tensor, activation: Activation) -> Tensor:
    """g(x, δ) for δ ≠ 0 of x's shape, in the dtype and the layout of x."""
    is_traced = in_func_transform() or jit_tracing_state() is not None
    if delta.stride() != x.stride() and not is_traced:
        # Otherwise a row whose first operand is δ would return the layout of δ.
        delta = torch.empty_like(x, dtype=delta.dtype).copy_(delta)
    if activation.difference is None:
        # Autograd differentiates it, because a callable may have its own parameters.
        return given_delta.difference(x.to(delta.dtype), delta, activation).to(x.dtype)
    if is_compiling() or is_transformed():
        return _apply(x, delta, None, None, None, 1, activation)
    if x.requires_grad and torch.is_grad_enabled():
        return _train_given(x, delta, activation)
    return given_delta.difference(x.to(delta.dtype), delta, activation).to(x.dtype)


def drawn_difference(  # a NamedTuple of the arguments would take 3 % of a small forward
    x: Tensor,
    seed: Tensor,
    lam: Tensor,
    phi: Tensor,
    inner: int,
    name: str,
    parameters: list[float],
    activation: Activation,
) -> Tensor:
    """g(x, δ) with δ drawn from the seeds; the arguments are those of ``plain.backward``."""
    if is_exporting() or jit_tracing_state() is not None:
        return ops.recorded_sample(x, seed, lam, phi, inner, name, parameters)
    if is_compiling() or is_transformed():
        return _apply(x, None, seed, lam, phi, inner, activation)
    if x.requires_grad and torch.is_grad_enabled():
        return _train_drawn(x, (seed, lam, phi), (inner, name, parameters), activation)
    return ops.sample(x, seed, lam, phi, inner, name, parameters)


def limit(x: Tensor, name: str, parameters: list[float], activation: Activation) -> Tensor:
    """f'(x)x of a row in the backends, in the dtype and the layout of x."""
    if is_exporting() or jit_tracing_state() is not None:
        return plain.limit(x, name, parameters)
    if is_compiling() or is_transformed():
        return _apply(x, None, None, None, None, 1, activation)
    if x.requires_grad and torch.is_grad_enabled():
        return _train_limit(x, name, parameters, activation)
    return ops.limit(x, name, parameters)


def _apply(*inputs: Any) -> Tensor:
    if not is_compiling():
        return _ForwardDifference.apply(*inputs)
    if in_func_transform() and not is_exporting():
        return _apply_in_eager_mode(*inputs)
    return _Difference.apply(*inputs)


@without_dynamo
def _apply_in_eager_mode(*inputs: Any) -> Tensor:
    """In a transform of torch.func Dynamo would differentiate forward and not call backward."""
    return _ForwardDifference.apply(*inputs)


class _Difference(torch.autograd.Function):
    """g(x, δ). δ is given, or it is drawn from the given seed, λ and φ; without a seed it is 0."""

    generate_vmap_rule = True

    @staticmethod
    def forward(  # not *args, which Dynamo takes for a signature with a ctx
        x: Tensor,
        delta: Tensor | None,
        seed: Tensor | None,
        lam: Tensor,
        phi: Tensor,
        inner: int,
        activation: Activation,
    ) -> Tensor:
        if seed is not None:
            return ops.sample(x, seed, lam, phi, inner, *kernel_row(activation))
        if delta is None:
            return (plain if is_compiling() else ops).limit(x, *kernel_row(activation))
        value = given_delta.difference(x.to(delta.dtype), delta, activation)
        # Compiled by torch 2.11, a Function that returns value.to(value.dtype) has gradient 0.
        return value if value.dtype == x.dtype else value.to(x.dtype)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        *tensors, ctx.inner, ctx.activation = inputs
        ctx.save_for_backward(*tensors)
        ctx.save_for_forward(*tensors)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        return _gradient(grads[0], *ctx.saved_tensors, ctx=ctx), *[None] * 6


class _ForwardDifference(_Difference):
    """Adds forward mode. Dynamo rejects every Function with a jvp, even if the jvp is not used."""

    @staticmethod
    def jvp(ctx: Any, *tangents: Any) -> Tensor:
        x, *source = ctx.saved_tensors
        with outer_forward_mode(x) as (x,):
            return _gradient(tangents[0], x, *source, ctx=ctx)


def _gradient(
    grad: Tensor, x: Tensor, delta: Tensor | None, *law: Tensor | None, ctx: Any
) -> Tensor:
    """grad · dg/dx in the dtype of x, itself differentiable; for backward and forward mode."""
    function = _Slope if is_compiling() else _ForwardSlope
    if delta is None:
        return function.apply(grad, x, None, *law, ctx.inner, ctx.activation)
    return (function.apply(None, x, delta, *law, 1, ctx.activation) * grad).to(x.dtype)


class _Slope(torch.autograd.Function):
    """If δ is given, dg/dx in the dtype of δ; otherwise grad · dg/dx in the dtype of x."""

    generate_vmap_rule = True

    @staticmethod
    def forward(
        grad: Tensor,
        x: Tensor,
        delta: Tensor | None,
        seed: Tensor | None,
        lam: Tensor,
        phi: Tensor,
        inner: int,
        activation: Activation,
    ) -> Tensor:
        row = kernel_row(activation)
        if seed is not None:
            return ops.sample_backward(grad, x, seed, lam, phi, inner, *row)
        if delta is None:
            return (plain if is_compiling() else ops).limit_backward(grad, x, *row)
        return given_delta.difference_and_slope(x.to(delta.dtype), delta, activation)[1]

    setup_context = staticmethod(_Difference.setup_context)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        grad, *tensors = ctx.saved_tensors
        along_x = _curvature(grads[0], grad, *tensors, ctx=ctx).to(tensors[0].dtype)
        along_grad = None if grad is None else _gradient(grads[0], *tensors, ctx=ctx)
        return along_grad, along_x, *[None] * 6


class _ForwardSlope(_Slope):
    @staticmethod
    def jvp(ctx: Any, *tangents: Any) -> Tensor:
        grad, x, *source = ctx.saved_tensors
        with outer_forward_mode(grad, x) as (grad, x):
            if grad is None:
                return _curvature(tangents[1], None, x, *source, ctx=ctx)
            total = torch.zeros_like(x)
            if tangents[0] is not None:
                total = total + _gradient(tangents[0], x, *source, ctx=ctx)
            if tangents[1] is not None:
                total = total + _curvature(tangents[1], grad, x, *source, ctx=ctx).to(x.dtype)
            return total


def _curvature(direction: Tensor, grad: Tensor | None, x: Tensor, *source: Any, ctx: Any) -> Tensor:
    """direction · grad · d²g/dx² in the dtype of δ; without ``grad``, direction · d²g/dx²."""
    delta, seed, lam, phi = source
    if delta is None and seed is None:
        dtype = compute_dtype(x)
        delta = torch.full_like(x, TINY_DELTA[dtype], dtype=dtype)
    elif delta is None:
        delta = seeded_delta(x.shape, seed, lam, phi, ctx.inner, dtype=compute_dtype(x))
    curvature = given_delta.curvature(x.to(delta.dtype), delta, ctx.activation)
    # In this order: grad * direction may overflow in half precision.
    return curvature * direction if grad is None else curvature * grad * direction


def _is_differentiated() -> bool:
    """True if the running backward is itself differentiated, as with create_graph."""
    return torch.is_grad_enabled() or is_transformed()


class _TrainGiven(torch.autograd.Function):
    """Computes the slope together with g, because they share most of the work, and keeps it."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, delta: Tensor, activation: Activation) -> Tensor:
        value, slope = given_delta.difference_and_slope(x.to(delta.dtype), delta, activation)
        ctx.activation = activation
        ctx.save_for_backward(x, delta, slope)
        return value.to(x.dtype)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        x, delta, slope = ctx.saved_tensors
        if _is_differentiated():
            return _gradient(grads[0], x, delta, None, None, None, ctx=ctx), None, None
        return (slope * grads[0]).to(x.dtype), None, None


class _TrainDrawn(torch.autograd.Function):
    """No ``setup_context`` and few inputs: for a small tensor each takes longer than the kernel."""

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        law: tuple[Tensor, Tensor, Tensor],
        row: tuple[int, str, list[float]],
        activation: Activation,
    ) -> Tensor:
        ctx.save_for_backward(x, *law)
        ctx.row, ctx.activation = row, activation
        return ops.sample(x, *law, *row)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        if _is_differentiated():
            x, *law = ctx.saved_tensors
            ctx.inner, *_ = ctx.row
            return _gradient(grads[0], x, None, *law, ctx=ctx), None, None, None
        return ops.sample_backward(grads[0], *ctx.saved_tensors, *ctx.row), None, None, None


class _TrainLimit(torch.autograd.Function):
    """As :class:`_TrainDrawn`, for the limit."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, name: str, parameters: list[float], activation: Activation
    ) -> Tensor:
        ctx.save_for_backward(x)
        ctx.name, ctx.parameters, ctx.activation = name, parameters, activation
        return ops.limit(x, name, parameters)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        (x,) = ctx.saved_tensors
        if _is_differentiated():
            ctx.inner = 1
            gradient = _gradient(grads[0], x, None, None, None, None, ctx=ctx)
        else:
            gradient = ops.limit_backward(grads[0], x, ctx.name, ctx.parameters)
        return gradient, None, None, None


_train_given, _train_drawn = eager_apply(_TrainGiven), eager_apply(_TrainDrawn)
_train_limit = eager_apply(_TrainLimit)


# --- the gradient of the op that exporters and torch.jit.trace record -----------------------------


def _set_up_recorded(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    *tensors, ctx.inner, name, parameters = inputs
    row = known_rows()[name]
    ctx.activation = row.with_parameters(**dict(zip(row.parameters, parameters, strict=True)))
    ctx.save_for_backward(*tensors)


def _recorded_backward(ctx: Any, grad: Tensor) -> Any:
    x, *law = ctx.saved_tensors
    return _gradient(grad, x, None, *law, ctx=ctx), *[None] * 6


torch.library.register_autograd(
    "qneurons::recorded_sample", _recorded_backward, setup_context=_set_up_recorded
)
