"""The q-activation drawn from seeds, and its limit, in plain torch: what every kernel computes."""

from collections.abc import Sequence
from functools import partial

import torch
from torch import Tensor

from qneurons import closed_forms, limits
from qneurons.noise import seeded_delta
from qneurons.precision import compute_dtype


def backward(
    grad: Tensor | None,
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
    """The gradient with respect to x, grad · dg/dx; without ``grad``, g(x, δ) itself.

    Args:
        seed: one for each group of elements, as ``lam``; see :func:`qneurons.noise.seeded_delta`.
        inner: how many neighbours belong to one group.
        name: the row's closed form in :mod:`qneurons.closed_forms`, which takes ``parameters``.
        out: where to write the result, of the shape, dtype and strides of x.
    """
    dtype = compute_dtype(x)
    delta = seeded_delta(x.shape, seed, lam, phi, inner, dtype=dtype)
    wide = x.to(dtype)
    value, slope = getattr(closed_forms, name)(wide, delta, grad is not None, *parameters)
    result = value if grad is None else grad * slope
    return (torch.empty_like(x) if out is None else out).copy_(result)


forward = partial(backward, None)


def limit_backward(
    grad: Tensor | None, x: Tensor, name: str, parameters: Sequence[float]
) -> Tensor:
    """The gradient of the limit f'(x)x with respect to x; without ``grad``, the limit itself."""
    wide = x.to(compute_dtype(x))
    result, slope = getattr(limits, name)(wide, grad is not None, *parameters)
    if grad is not None:
        result = slope * grad
    # Compiled by torch 2.11, a Function that returns result.to(result.dtype) has gradient 0.
    return result if result.dtype == x.dtype else result.to(x.dtype)


limit = partial(limit_backward, None)


def supports(dtype: torch.dtype, name: str) -> bool:
    return True
