"""g(x, δ) as a function that PyTorch differentiates: backward, forward, under vmap and compile."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad

from qneurons import reference
from qneurons.activations import Activation

_BLOCK = 2**18  # elements: large tensors are worked on piece by piece, for the caches


def difference(x: Tensor, delta: Tensor, activation: Activation) -> Tensor:
    """g(x, δ) for δ ≠ 0 of x's shape, in the dtype and the layout of x."""
    in_transform = torch._C._are_functorch_transforms_active()
    if delta.stride() != x.stride() and not in_transform:
        # Else a row whose first operand is δ would return the layout of δ.
        delta = torch.empty_like(x, dtype=delta.dtype).copy_(delta)
    if activation.difference is None:
        # Autograd sees all of it: a callable may have parameters of its own.
        return reference.difference(x.to(delta.dtype), delta, activation).to(x.dtype)
    if torch.compiler.is_compiling():
        return _Difference.apply(x, delta, activation)
    if x.requires_grad and torch.is_grad_enabled() and not in_transform:
        return _TrainingDifference.apply(x, delta, activation)
    return _ForwardDifference.apply(x, delta, activation)


class _Difference(torch.autograd.Function):
    """g(x, δ), from x and δ alone."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor, delta: Tensor, activation: Activation) -> Tensor:
        value = reference.difference(x.to(delta.dtype), delta, activation)
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


class _TrainingDifference(_ForwardDifference):
    """The slope is computed beside g, with which it shares most of the work, and kept.

    functorch would need ``setup_context``, which costs as much as ten elementwise operations.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, delta: Tensor, activation: Activation) -> Tensor:  # type: ignore[override]
        value, slope = _in_blocks(x, delta, activation)
        ctx.activation = activation
        ctx.save_for_backward(x, delta, slope)
        ctx.save_for_forward(x, delta)
        return value

    setup_context = staticmethod(torch.autograd.Function.setup_context)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        x, delta, slope = ctx.saved_tensors
        if torch.is_grad_enabled():  # create_graph
            slope = _slope(x, delta, ctx.activation)
        return (slope * grads[0]).to(x.dtype), None, None


def _slope(x: Tensor, delta: Tensor, activation: Activation) -> Tensor:
    """dg/dx in the dtype of δ, differentiable."""
    function = _Slope if torch.compiler.is_compiling() else _ForwardSlope
    return function.apply(x, delta, activation)


class _Slope(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor, delta: Tensor, activation: Activation) -> Tensor:
        return reference.difference_and_slope(x.to(delta.dtype), delta, activation)[1]

    setup_context = staticmethod(_Difference.setup_context)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        x, delta = ctx.saved_tensors
        curvature = reference.curvature(x.to(delta.dtype), delta, ctx.activation)
        return (curvature * grads[0]).to(x.dtype), None, None


class _ForwardSlope(_Slope):
    @staticmethod
    def jvp(ctx: Any, *tangents: Any) -> Tensor:
        x, delta = ctx.saved_tensors
        with _outer_forward_mode(x) as x:
            return reference.curvature(x.to(delta.dtype), delta, ctx.activation) * tangents[0]


@contextmanager
def _outer_forward_mode(x: Tensor) -> Iterator[Tensor]:
    """Yields x without its own tangent, for a jvp that an outer forward mode can differentiate.

    torch runs a jvp with forward mode off, so that ``jacfwd(jacfwd(f))`` would be zero.
    """
    with forward_ad._set_fwd_grad_enabled(True):
        yield forward_ad.unpack_dual(x).primal


def _in_blocks(x: Tensor, delta: Tensor, activation: Activation) -> tuple[Tensor, Tensor]:
    """g in the dtype of x and dg/dx in that of δ, with the strides of x.

    On the CPU a large tensor is worked on in blocks, so that the caches hold what a block needs.
    """
    if x.numel() <= _BLOCK or x.device.type != "cpu":
        if x.dtype == delta.dtype:
            return reference.difference_and_slope(x, delta, activation)
        value, slope = reference.difference_and_slope(x.to(delta.dtype), delta, activation)
        return value.to(x.dtype), slope
    value, slope = torch.empty_like(x), torch.empty_like(x, dtype=delta.dtype)
    order = sorted(range(x.dim()), key=value.stride, reverse=True)  # of the memory
    tensors = (x, delta, value, slope)
    blocks = (tensor.permute(order).reshape(-1).split(_BLOCK) for tensor in tensors)
    for x_block, delta_block, *results in zip(*blocks, strict=True):
        x_block = x_block.to(delta.dtype)
        computed = reference.difference_and_slope(x_block, delta_block, activation)
        for result, block in zip(results, computed, strict=True):
            result.copy_(block)
    return value, slope
