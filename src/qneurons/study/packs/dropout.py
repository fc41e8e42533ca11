"""Dropout whose mask is a function of every run's seed, on every device."""

from statistics import NormalDist
from typing import Any

import torch
from torch import Tensor

from qneurons import kernels
from qneurons.activations import resolve
from qneurons.functional import sample

_FORM = "dropout"  # in the backends that have it


def seeded_dropout(x: Tensor, probability: float, seed: Tensor) -> Tensor:
    """Drops elements where q < 0; the first dimension of x is the run, each with its own seed.

    λ is chosen so that q < 0 has the given probability.
    """
    assert len(x) == len(seed), "one seed for each run"  # a kernel would read past the end
    wide = torch.promote_types(x.dtype, torch.float32)
    lam = torch.full_like(seed, -1 / NormalDist().inv_cdf(probability), dtype=wide)
    phi, scale = lam.new_zeros(1), 1 / (1 - probability)
    if kernels.is_fused(x.device.type, x.dtype, _FORM):
        rounded = torch.tensor(scale, dtype=x.dtype).item()  # as in a mask of that dtype
        return _Dropout.apply(x, seed, lam, phi, rounded)
    group = (-1,) + (1,) * (x.dim() - 1)
    with torch.no_grad():
        # At x = -1, q-ReLU is nonzero exactly if q < 0.
        drawn = sample(
            torch.full_like(x, -1), resolve("relu"), lam.view(group), phi, seed=seed.view(group)
        )
        kept = (drawn == 0).to(x.dtype).mul_(scale)
    return x * kept


class _Dropout(torch.autograd.Function):
    """One kernel each way. Backward is dropout of the gradient by the same seeds: x is not kept."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, seed: Tensor, lam: Tensor, phi: Tensor, scale: float
    ) -> Tensor:
        ctx.save_for_backward(seed, lam, phi)
        ctx.scale = scale
        backend = kernels.find(x.device.type, x.dtype, _FORM)
        return backend.forward(x, seed, lam, phi, x[0].numel(), _FORM, [scale])

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        return _Dropout.apply(*grads, *ctx.saved_tensors, ctx.scale), None, None, None, None
