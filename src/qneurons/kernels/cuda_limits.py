"""The forms of ``qneurons.limits``, which has the notation, as Triton device functions.

Each takes a block of x, float32 or float64, and the row's parameters, and returns f'(x)x and its
slope. They are pure expressions, so the compiler drops the result that is not used.
"""
# mypy: disable-error-code="no-untyped-def, import-untyped"

import triton
import triton.language as tl

from qneurons.kernels.cuda_math import (
    DENSITY,
    GAUSS_SCALE,
    GELU_TANH_CUBIC,
    GELU_TANH_SCALE,
    LOG2_E,
    MILLS,
    MILLS_64,
    MILLS_ORIGIN,
    MILLS_ORIGIN_64,
    NAN,
    QUICK_GELU_SCALE,
    SELU_ALPHA,
    SELU_SCALE,
    copysign,
    cos,
    exp2,
    reciprocal,
    sin,
    times,
    unless_nan,
)

_FAR = tl.constexpr(1000.0)  # exp(-_FAR) is 0, while inf · 0 would be NaN


@triton.jit
def _size(x):
    return tl.minimum(tl.abs(x), _FAR, NAN)


@triton.jit
def _logistic(z):
    e = exp2(z * -LOG2_E)
    s = reciprocal(1 + e)
    return s, e * s


@triton.jit
def _mirrored(x, below, slope):
    return tl.maximum(x, 0.0, NAN) + below, tl.where(x < 0, slope, 1 - slope)


# --- piecewise linear -----------------------------------------------------------------------------


@triton.jit
def q_identity(x, p0: tl.constexpr, p1: tl.constexpr):
    return x, 1.0


@triton.jit
def q_relu(x, p0: tl.constexpr, p1: tl.constexpr):
    return tl.maximum(x, 0.0, NAN), unless_nan(x, tl.where(x < 0, 0.0, 1.0))


@triton.jit
def q_relu2(x, p0: tl.constexpr, p1: tl.constexpr):
    y = tl.maximum(x, 0.0, NAN)
    return 2 * y * y, 4 * y


@triton.jit
def q_leaky_relu(x, negative_slope: tl.constexpr, p1: tl.constexpr):
    # Of two constants tl.where would make float32.
    slope = unless_nan(x, tl.where(x < 0, negative_slope, tl.full(x.shape, 1.0, x.dtype)))
    return times(x, slope), slope


@triton.jit
def q_hardtanh(x, low: tl.constexpr, high: tl.constexpr):
    outside = (x < low) | (x >= high)
    return tl.where(outside, 0.0, x), unless_nan(x, tl.where(outside, 0.0, 1.0))


@triton.jit
def q_relu6(x, p0: tl.constexpr, p1: tl.constexpr):
    return q_hardtanh(x, 0.0, 6.0)


@triton.jit
def q_hardsigmoid(x, p0: tl.constexpr, p1: tl.constexpr):
    value, slope = q_hardtanh(x, -3.0, 3.0)
    return value * (1 / 6), slope * (1 / 6)


@triton.jit
def q_hardswish(x, p0: tl.constexpr, p1: tl.constexpr):
    inside, slope = x * (2 * x + 3) * (1 / 6), (4 * x + 3) * (1 / 6)
    value = tl.where(x < -3, 0.0, tl.where(x >= 3, x, inside))
    return value, tl.where(x < -3, 0.0, tl.where(x >= 3, 1.0, slope))


# --- exponential below zero -----------------------------------------------------------------------


@triton.jit
def q_elu(x, alpha: tl.constexpr, p1: tl.constexpr):
    low = tl.maximum(tl.minimum(x, 0.0, NAN), -_FAR, NAN)
    e = exp2(low * LOG2_E) * alpha
    return tl.maximum(x, 0.0, NAN) + low * e, tl.where(x >= 0, 1.0, e + low * e)


@triton.jit
def q_selu(x, p0: tl.constexpr, p1: tl.constexpr):
    value, slope = q_elu(x, SELU_ALPHA, 0.0)
    return value * SELU_SCALE, slope * SELU_SCALE


@triton.jit
def q_celu(x, alpha: tl.constexpr, p1: tl.constexpr):
    value, slope = q_elu(x * (1 / alpha), 1.0, 0.0)
    return value * alpha, slope


# --- logistic -------------------------------------------------------------------------------------


@triton.jit
def q_sigmoid(x, p0: tl.constexpr, p1: tl.constexpr):
    z = _size(x)
    s, t = _logistic(z)
    return copysign(z * (t * s), x), t * s * (1 - z * (s - t))


@triton.jit
def q_tanh(x, p0: tl.constexpr, p1: tl.constexpr):
    value, slope = q_sigmoid(2 * x, 0.0, 0.0)
    return 2 * value, 4 * slope


@triton.jit
def q_softplus(x, beta: tl.constexpr, p1: tl.constexpr):
    y = x * beta
    z = _size(y)
    s, t = _logistic(z)
    return _mirrored(x, z * t * (-1 / beta), t * (1 - z * s))


# --- products y s(y) ------------------------------------------------------------------------------


@triton.jit
def q_silu(x, p0: tl.constexpr, p1: tl.constexpr):
    z = _size(x)
    s, t = _logistic(z)
    return _mirrored(x, z * t * (z * s - 1), t * (1 - z * s * (3 - z * (s - t))))


@triton.jit
def q_quick_gelu(x, p0: tl.constexpr, p1: tl.constexpr):
    value, slope = q_silu(x * QUICK_GELU_SCALE, 0.0, 0.0)
    return value * (1 / QUICK_GELU_SCALE), slope


@triton.jit
def q_gelu(x, p0: tl.constexpr, p1: tl.constexpr):
    single: tl.constexpr = x.dtype == tl.float32
    origin: tl.constexpr = MILLS_ORIGIN if single else MILLS_ORIGIN_64
    count: tl.constexpr = 7 if single else 19
    mills: tl.constexpr = MILLS if single else MILLS_64
    z = _size(x)
    scaled = z * GAUSS_SCALE
    e, t = exp2(-1.0 * scaled * scaled), reciprocal(scaled + origin)
    p = t * mills[0] + mills[1]
    for i in tl.static_range(2, count):
        p = t * p + mills[i]
    tail, bell = e * (t * p), z * (e * DENSITY)
    return _mirrored(x, z * (bell - tail), tail - bell * (3 - z * z))


@triton.jit
def q_gelu_tanh(x, p0: tl.constexpr, p1: tl.constexpr):
    z = tl.minimum(tl.abs(x), 50.0, NAN)  # where σ(-v) is 0; beyond, the cube may overflow
    square = z * z * GELU_TANH_CUBIC
    dv = (1 + 3 * square) * GELU_TANH_SCALE
    s, t = _logistic(z * GELU_TANH_SCALE * (1 + square))
    bell = z * (t * s)
    bend = 5 * dv - 2 * GELU_TANH_SCALE - z * dv * dv * (s - t)
    return _mirrored(x, z * (bell * dv - t), t - bell * bend)


@triton.jit
def q_mish(x, p0: tl.constexpr, p1: tl.constexpr):
    above = tl.maximum(x, -_FAR, NAN)
    y = tl.minimum(above, _FAR, NAN)
    e = exp2(tl.abs(y) * -LOG2_E)
    n, unit = 1 + e, tl.where(y < 0, 1.0, e)
    inverse = reciprocal(n * n + unit * unit)
    factor = tl.where(y < 0, e, 1.0) * (n + unit) * inverse
    bell = y * (4 * e * unit * inverse * inverse)
    bend = unit * unit * (2 * n - unit) + n * n * (3 * unit - 2 * n)
    return above * factor + y * (n * bell), factor + bell * (3 * n + y * (bend * inverse))


# --- rational and trigonometric -------------------------------------------------------------------


@triton.jit
def q_softsign(x, p0: tl.constexpr, p1: tl.constexpr):
    largest: tl.constexpr = 3.0e38 if x.dtype == tl.float32 else 1.0e308
    z = tl.abs(x)
    inverse = reciprocal(1 + z)
    ratio = tl.minimum(z, largest, NAN) * inverse
    return copysign(ratio * inverse, x), (inverse - ratio) * inverse * inverse


@triton.jit
def q_sin(x, p0: tl.constexpr, p1: tl.constexpr):
    at_x = cos(x)
    return x * at_x, at_x - x * sin(x)


@triton.jit
def q_delta(x, p0: tl.constexpr, p1: tl.constexpr):
    return tl.zeros_like(x), tl.zeros_like(x)
