"""The limit f'(x)x of every row and its slope f'(x) + x f''(x), in plain torch.

A function has the name of the row in ``closed_forms``, whose limit at δ = 0 it is, and takes x,
``with_slope`` and the row's parameters. At a kink f' is the right derivative. At ±inf value and
slope have their limits; sin has none, and gives NaN. Autograd differentiates the values in exported
programs, and finds the same slope at zero. Notation: z = |x|, e = exp(-z), s = σ(z) and
t = σ(-z) = es.
"""

import functools

import torch
from torch import Tensor

from qneurons.closed_forms import (
    GAUSS_SCALE,
    GELU_TANH_SCALE,
    MILLS,
    MILLS_64,
    QUICK_GELU_SCALE,
    SELU_ALPHA,
    SELU_SCALE,
    ValueAndSlope,
    gelu_tanh_argument,
    normal_density,
    normal_tail,
    times,
    unless_nan,
)

_FAR = 1000.0  # exp(-_FAR) is 0 in float64, while inf · 0 would be NaN


def _logistic(z: Tensor) -> tuple[Tensor, Tensor]:
    e = torch.exp(-z)
    s = 1 / (1 + e)
    return s, e * s


def _positive(x: Tensor) -> Tensor:
    """max(x, 0). Autograd's slope at zero is 1; relu has 0 there, and clamp 1 or 0."""
    return torch.where(x < 0, 0.0, x)


def _mirrored(x: Tensor, below: Tensor, slope: Tensor | None) -> ValueAndSlope:
    """The limit if f(y) = y + f(-y), given the limit and its slope at -|x|."""
    above = torch.maximum(x, x.new_zeros(()))  # autograd's slope at zero is 1/2, as it must be
    return above + below, None if slope is None else torch.where(x < 0, slope, 1 - slope)


# --- piecewise linear -----------------------------------------------------------------------------


def q_identity(x: Tensor, with_slope: bool) -> ValueAndSlope:
    return x.clone(), torch.ones_like(x) if with_slope else None


def q_relu(x: Tensor, with_slope: bool) -> ValueAndSlope:
    return _positive(x), unless_nan(x, (x >= 0).to(x.dtype)) if with_slope else None


def q_relu2(x: Tensor, with_slope: bool) -> ValueAndSlope:
    y = x.relu()
    return 2 * y * y, 4 * y if with_slope else None


def q_leaky_relu(x: Tensor, with_slope: bool, negative_slope: float) -> ValueAndSlope:
    slope = torch.where(x < 0, negative_slope, torch.ones((), dtype=x.dtype, device=x.device))
    return times(x, slope), unless_nan(x, slope)


def q_hardtanh(x: Tensor, with_slope: bool, min_val: float, max_val: float) -> ValueAndSlope:
    outside = (x < min_val) | (x >= max_val)
    slope = unless_nan(x, (~outside).to(x.dtype)) if with_slope else None
    return torch.where(outside, 0.0, x), slope


def q_relu6(x: Tensor, with_slope: bool) -> ValueAndSlope:
    return q_hardtanh(x, with_slope, 0.0, 6.0)


def q_hardsigmoid(x: Tensor, with_slope: bool) -> ValueAndSlope:
    value, slope = q_hardtanh(x, with_slope, -3.0, 3.0)
    return value / 6, None if slope is None else slope / 6


def q_hardswish(x: Tensor, with_slope: bool) -> ValueAndSlope:
    below, above = x < -3, x >= 3
    inside = torch.where(below | above, 0.0, x)
    value = torch.where(below, 0.0, torch.where(above, x, inside * (2 * inside + 3) / 6))
    if not with_slope:
        return value, None
    return value, torch.where(below, 0.0, torch.where(above, 1.0, (4 * x + 3) / 6))


# --- exponential below zero -----------------------------------------------------------------------


def q_elu(x: Tensor, with_slope: bool, alpha: float) -> ValueAndSlope:
    low = -(-x).relu().clamp(max=_FAR)  # its slope at zero is 0, as _positive has it all
    e = alpha * torch.exp(low)
    value = _positive(x) + low * e
    return value, unless_nan(x, torch.where(x < 0, e + low * e, 1.0)) if with_slope else None


def q_selu(x: Tensor, with_slope: bool) -> ValueAndSlope:
    value, slope = q_elu(x, with_slope, SELU_ALPHA)
    return SELU_SCALE * value, None if slope is None else SELU_SCALE * slope


def q_celu(x: Tensor, with_slope: bool, alpha: float) -> ValueAndSlope:
    value, slope = q_elu(x / alpha, with_slope, 1.0)
    return alpha * value, slope


# --- logistic -------------------------------------------------------------------------------------


def q_sigmoid(x: Tensor, with_slope: bool) -> ValueAndSlope:
    x = x.clamp(-_FAR, _FAR)
    z = x.abs()
    s, t = _logistic(z)
    return x * (t * s), t * s * (1 - z * (s - t)) if with_slope else None


def q_tanh(x: Tensor, with_slope: bool) -> ValueAndSlope:
    value, slope = q_sigmoid(2 * x, with_slope)
    return 2 * value, None if slope is None else 4 * slope


def q_softplus(x: Tensor, with_slope: bool, beta: float) -> ValueAndSlope:
    y = beta * x
    z = y.abs().clamp(max=_FAR)
    s, t = _logistic(z)
    return _mirrored(x, -z * t / beta, t * (1 - z * s) if with_slope else None)


# --- products y s(y) ------------------------------------------------------------------------------


def q_silu(x: Tensor, with_slope: bool) -> ValueAndSlope:
    z = x.abs().clamp(max=_FAR)
    s, t = _logistic(z)
    slope = t * (1 - z * s * (3 - z * (s - t))) if with_slope else None
    return _mirrored(x, -z * t * (1 - z * s), slope)


def q_quick_gelu(x: Tensor, with_slope: bool) -> ValueAndSlope:
    value, slope = q_silu(QUICK_GELU_SCALE * x, with_slope)
    return value / QUICK_GELU_SCALE, slope


def _tail(z: Tensor) -> Tensor:
    """P(N > z) for z ≥ 0 and a standard normal N."""
    if not torch.compiler.is_compiling():
        return normal_tail(z)
    # Inductor's vector code for the CPU has no erfc.
    origin, coefficients = MILLS_64 if z.dtype == torch.float64 else MILLS
    t = 1 / (GAUSS_SCALE * z + origin)
    p = functools.reduce(lambda p, coefficient: p * t + coefficient, coefficients)
    return torch.exp(-0.5 * z * z) * (t * p)


def q_gelu(x: Tensor, with_slope: bool) -> ValueAndSlope:
    z = x.abs().clamp(max=_FAR)
    tail, bell = _tail(z), z * normal_density(z)
    slope = tail - bell * (3 - z * z) if with_slope else None
    return _mirrored(x, -z * (tail - bell), slope)


def q_gelu_tanh(x: Tensor, with_slope: bool) -> ValueAndSlope:
    z = x.abs().clamp(max=50.0)  # where σ(-v) is 0; beyond, the cube may overflow
    v, dv = gelu_tanh_argument(z)
    s, t = _logistic(v)
    bell = z * (t * s)
    bend = 5 * dv - 2 * GELU_TANH_SCALE - z * dv * dv * (s - t)
    slope = t - bell * bend if with_slope else None
    return _mirrored(x, -z * (t - bell * dv), slope)


def q_mish(x: Tensor, with_slope: bool) -> ValueAndSlope:
    # The factor tanh(softplus(y)) is rational in exp(y). With e = exp(-|y|) both signs of y share a
    # form; ``unit`` is 1 below zero and e above.
    x = x.clamp(-_FAR, torch.inf)  # without the second bound ONNX takes the largest finite number
    y = x.clamp(max=_FAR)
    e = torch.exp(-y.abs())
    n, unit = 1 + e, torch.where(y < 0, 1.0, e)
    inverse = 1 / (n * n + unit * unit)
    factor = torch.where(y < 0, e, 1.0) * (n + unit) * inverse
    bell = y * (4 * e * unit * inverse * inverse)  # y / n times the factor's slope
    value = x * factor + y * (n * bell)
    if not with_slope:
        return value, None
    bend = unit * unit * (2 * n - unit) + n * n * (3 * unit - 2 * n)
    return value, factor + bell * (3 * n + y * (bend * inverse))


# --- rational and trigonometric -------------------------------------------------------------------


def q_softsign(x: Tensor, with_slope: bool) -> ValueAndSlope:
    inverse = 1 / (1 + x.abs())
    largest = torch.finfo(x.dtype).max
    ratio = x.clamp(-largest, largest) * inverse  # x / (1 + |x|)
    return ratio * inverse, (inverse - ratio.abs()) * inverse * inverse if with_slope else None


def q_sin(x: Tensor, with_slope: bool) -> ValueAndSlope:
    cos = torch.cos(x)
    return x * cos, cos - x * torch.sin(x) if with_slope else None
