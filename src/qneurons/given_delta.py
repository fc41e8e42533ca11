"""g(x, δ) and its derivatives in x at a given δ ≠ 0, in plain torch: the reference of every kernel.

Inputs are float32 or float64, and so are the results.
"""

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

from qneurons.activations import Activation
from qneurons.calculus import divided_difference, elementwise
from qneurons.quadrature import GAUSS_LEGENDRE

_SMALL_STEP = 0.125  # up to this |δx| the curvature is a mean, beyond it a quotient


def difference(x: Tensor, delta: Tensor, activation: Activation) -> Tensor:
    """g = (f(x + δx) - f(x)) / δ. Autograd differentiates it only if the row has no closed form."""
    if activation.difference is not None:
        return activation.difference(x, delta, False, **activation.parameters)[0]
    # Rounding b is harmless: the divided difference changes as little as b does.
    f = elementwise(partial(activation.f, **activation.parameters))
    return x * divided_difference(f, x, x * (1 + delta))


def difference_and_slope(x: Tensor, delta: Tensor, activation: Activation) -> tuple[Tensor, Tensor]:
    """g and dg/dx = ((1 + δ) f'(x + δx) - f'(x)) / δ of an activation with a closed form."""
    assert activation.difference is not None
    value, slope = activation.difference(x, delta, True, **activation.parameters)
    assert slope is not None, f"{activation.name}: its difference returned no slope"
    return value, slope


def curvature(x: Tensor, delta: Tensor, activation: Activation) -> Tensor:
    """d²g/dx² = ((1 + δ)² f''(x + δx) - f''(x)) / δ, which autograd can differentiate."""
    second = _derivative(lambda y: activation.derivative(y, **activation.parameters))
    b, h = x * (1 + delta), x * delta
    small = h.abs() <= _SMALL_STEP
    smooth = small & (delta > -1)  # at -1 b is zero, where f'' may jump
    for kink in activation.kinks(**activation.parameters):
        smooth = smooth & ((x < kink) == (b < kink))
    beside = (2 + delta) * second(b) + x * _mean(_derivative(second), x, torch.where(small, h, 0))
    return torch.where(smooth, beside, ((1 + delta).square() * second(b) - second(x)) / delta)


def _mean(function: Callable[[Tensor], Tensor], x: Tensor, step: Tensor) -> Tensor:
    """The mean of a function over [x, x + step]."""
    total = torch.zeros_like(x)
    for node, weight in GAUSS_LEGENDRE:
        total = total + weight * function(x + node * step)
    return total


def _derivative(function: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
    return torch.func.grad(lambda y: function(y).sum())
