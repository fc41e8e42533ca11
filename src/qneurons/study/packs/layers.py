"""The layers of a pack, with kernels of our own on CUDA and PyTorch's elsewhere.

Tensors are run × channel × batch × height × width, and each run is contiguous.
"""

import importlib.util
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from qneurons.study.networks import EPS, KERNEL, MOMENTUM, POOL

_HAS_TRITON = importlib.util.find_spec("triton") is not None


def is_fused(x: Tensor) -> bool:
    """True if Triton's kernels can be used for x."""
    return _HAS_TRITON and x.is_cuda and x.dtype != torch.float64


def convolve(x: Tensor, weight: Tensor, bias: Tensor, *, padding: int) -> Tensor:
    """Convolves every run's images with its own kernels, run × feature × channel × 3 × 3."""
    if is_fused(x):
        return _Convolution.apply(x, weight, bias, padding)
    # One run at a time: a grouped convolution of all runs takes twice as long on a CPU.
    of_runs = zip(x.transpose(1, 2), weight, bias, strict=True)
    return torch.stack([F.conv2d(*of_run, padding=padding).transpose(0, 1) for of_run in of_runs])


def updating_dense(
    x: Tensor, weight: Tensor, bias: Tensor, velocity: Tensor | None = None, momentum: float = 0.0
) -> Tensor:
    """A dense layer for every run, of run × feature × input, whose backward updates the weights.

    Backward adds the gradient to the weights in place, if they require one, and returns None for
    it. With the loss scaled by minus the learning rate this is the SGD step, and in float32 no
    gradient as large as the weights is stored. If there is a ``velocity``, backward multiplies it
    by ``momentum`` and adds the gradient to it instead; the weights are left to the caller.
    """
    return _Dense.apply(x, weight, bias, velocity, momentum)


def normalise(x: Tensor, weight: Tensor, bias: Tensor, mean: Tensor, var: Tensor) -> Tensor:
    """Batch normalisation in training; updates the running ``mean`` and ``var``."""
    if is_fused(x):
        return _BatchNorm.apply(x.contiguous(), weight, bias, mean, var)
    # As group normalisation of rows: on a CPU torch's batch normalisation is far slower.
    num, size = weight.numel(), x[0, 0].numel()
    affine = weight.flatten(), bias.flatten()
    out, of_rows, scale = torch.native_group_norm(
        x.reshape(1, num, size), *affine, 1, num, size, num, EPS
    )
    with torch.no_grad():
        mean.lerp_(of_rows.view_as(mean), MOMENTUM)
        unbiased = (scale**-2 - EPS) * (size / (size - 1))  # as exact as var + EPS needs
        var.lerp_(unbiased.view_as(var), MOMENTUM)
    return out.view(x.shape)


def fold_batch_norm(
    weight: Tensor, bias: Tensor, factor: Tensor, offset: Tensor, mean: Tensor, var: Tensor
) -> tuple[Tensor, Tensor]:
    """Weight and bias of a layer that includes the batch normalisation before it, in evaluation.

    The layer has no padding. The last four arguments, run × channel, are the normalisation's
    weight, bias, running mean and running variance.
    """
    scale = factor * (var + EPS).rsqrt()
    shift = offset - mean * scale
    channels = (len(scale), 1, -1) + (1,) * (weight.dim() - 3)
    shifted = (weight * shift.view(channels)).flatten(2).sum(2)
    return weight * scale.view(channels), bias + shifted


def pool(x: Tensor) -> Tensor:
    """Max pooling over 2 × 2."""
    return F.max_pool2d(x.flatten(0, 1), POOL).unflatten(0, x.shape[:2])


def _autocast(x: Tensor) -> Tensor:
    device = x.device.type
    return x.to(torch.get_autocast_dtype(device)) if torch.is_autocast_enabled(device) else x


class _Dense(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight: Tensor, bias: Tensor, velocity: Tensor | None, momentum: float
    ) -> Tensor:
        x = _autocast(x)
        ctx.save_for_backward(x, weight, velocity)
        ctx.momentum = momentum
        return torch.baddbmm(bias.to(x.dtype).unsqueeze(2), weight.to(x.dtype), x)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        (x, weight, velocity), (grad,) = ctx.saved_tensors, grads
        grad_x = None
        if ctx.needs_input_grad[0]:
            grad_x = torch.bmm(weight.to(x.dtype).transpose(1, 2), grad)
        if ctx.needs_input_grad[1]:
            across = x.transpose(1, 2)
            updated, kept = (velocity, ctx.momentum) if velocity is not None else (weight, 1.0)
            updated = updated.detach()
            if x.dtype == weight.dtype:
                updated.baddbmm_(grad, across, beta=kept)
            else:
                torch.add(torch.bmm(grad, across), updated, alpha=kept, out=updated)
        return grad_x, None, grad.sum(2), None, None


def _convolutions(x: Tensor, features: int) -> Any:
    """The module with the fastest kernels for these images."""
    from qneurons.study.packs import cuda_convolutions, tf32_convolutions

    is_tf32 = x.is_cuda and x.dtype == torch.float32 and torch.backends.cuda.matmul.allow_tf32
    fits = is_tf32 and tf32_convolutions.is_supported(x, features)
    return tf32_convolutions if fits else cuda_convolutions


class _Convolution(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor, padding: int) -> Tensor:
        x = _autocast(x)
        if x.stride()[3:] != (x.shape[4], 1):
            x = x.contiguous()
        ctx.save_for_backward(x, weight)
        ctx.padding = padding
        return _convolutions(x, weight.shape[1]).convolve(x, weight, bias, padding)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        x, weight = ctx.saved_tensors
        grad, grad_x = grads[0].contiguous(), None
        features, channels = weight.shape[1:3]
        if ctx.needs_input_grad[0]:
            mirrored = weight.flip(3, 4).transpose(1, 2)
            convolve = _convolutions(grad, channels).convolve
            grad_x = convolve(grad, mirrored, None, KERNEL - 1 - ctx.padding)
        gradients = _convolutions(x, features).convolve_gradients(x, grad, ctx.padding)
        return grad_x, *gradients, None


class _BatchNorm(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight: Tensor, bias: Tensor, mean: Tensor, var: Tensor
    ) -> Tensor:
        from qneurons.study.packs.cuda_layers import normalise

        rows = x.view(weight.numel(), -1)
        out, *moments = normalise(rows, weight, bias, (mean, var), MOMENTUM, EPS)
        ctx.save_for_backward(rows, weight, *moments)
        return out.view(x.shape)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        from qneurons.study.packs.cuda_layers import normalise_backward

        rows, weight, *moments = ctx.saved_tensors
        grad = grads[0].contiguous()
        out, *of_affine = normalise_backward(grad.view(rows.shape), rows, weight, *moments)
        return out.view(grad.shape), *(g.view(weight.shape) for g in of_affine), None, None
