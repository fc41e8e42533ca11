"""The q-activation drawn from seeds in plain torch: what every kernel computes, step by step."""

from collections.abc import Sequence

import torch
from torch import Tensor

from qneurons import closed_forms
from qneurons.noise import seeded_delta
from qneurons.precision import compute_dtype


def forward(
    x: Tensor,
    seed: Tensor,
    lam: Tensor,
    phi: Tensor,
    inner: int,
    name: str,
    parameters: Sequence[float],
    *,
    out: Tensor | None = None,
) -> Tensor:
    """g(x, δ), with δ of the seeds as in :func:`qneurons.noise.seeded_delta`.

    It is written to ``out``, where given, which has the shape, dtype and strides of x.
    """
    wide, delta = _widened(x, seed, lam, phi, inner)
    value, _ = getattr(closed_forms, name)(wide, delta, False, *parameters)
    return (torch.empty_like(x) if out is None else out).copy_(value)


def backward(
    grad: Tensor,
    x: Tensor,
    seed: Tensor,
    lam: Tensor,
    phi: Tensor,
    inner: int,
    name: str,
    parameters: Sequence[float],
    *,
    out: Tensor | None = None,
) -> Tensor:
    """The gradient with respect to x, from that with respect to g: grad · dg/dx."""
    wide, delta = _widened(x, seed, lam, phi, inner)
    _, slope = getattr(closed_forms, name)(wide, delta, True, *parameters)
    return (torch.empty_like(x) if out is None else out).copy_(grad * slope)


def _widened(
    x: Tensor, seed: Tensor, lam: Tensor, phi: Tensor, inner: int
) -> tuple[Tensor, Tensor]:
    dtype = compute_dtype(x)
    return x.to(dtype), seeded_delta(x.shape, seed, lam, phi, inner, dtype=dtype)


def supports(dtype: torch.dtype, name: str) -> bool:
    return True
