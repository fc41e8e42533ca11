"""g(x, δ) = (f(x + δx) - f(x)) / δ and its slope dg/dx, in forms that do not cancel.

Notation: q = 1 + δ, b = qx, h = b - x = δx. For δ ≥ -1 both points lie on one side of zero: ``far``
is the one farther from zero and ``near`` = cx the other, c = 1 + min(δ, 0). Every form rests on
four facts:

* The change of f from x to b is written without the subtraction, mostly through expm1(-|h|).
* For δ ≥ -1, g = (f(far) - f(near)) / |δ| and dg = f'(far) + c (f'(far) - f'(near)) / |δ|. Neither
  is a small difference of large terms.
* For δ < -1 the terms of the plain quotient add up (if f(0) = 0), so it is accurate as it stands.
* b is computed as x(1 + δ). x + h loses all digits near δ = -1 and is used in exponents only.

At ±inf g and dg/dx have their limits; sin has none, and gives NaN.

A function of a row takes x and δ ≠ 0 of one floating dtype and shape, ``with_slope``, and the row's
parameters. Autograd never differentiates it, so a branch that ``where`` discards may overflow.
Autograd does differentiate the plain activations and derivatives in this file.
"""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from qneurons.quadrature import GAUSS_LEGENDRE
from qneurons.torch_internals import in_func_transform, jit_tracing_state

Function = Callable[[Tensor], Tensor]
ValueAndSlope = tuple[Tensor, Tensor | None]


class Span(NamedTuple):
    """The interval between |x| and |x||1 + δ| for δ ≥ -1, its length |δx|, |δ| and c."""

    near: Tensor
    far: Tensor
    gap: Tensor
    size: Tensor
    c: Tensor

    @classmethod
    def of(cls, x: Tensor, delta: Tensor) -> "Span":
        z, c, size = x.abs(), 1 + delta.clamp(max=0), delta.abs()
        return cls(z * c, z * (1 + delta.clamp(min=0)), z * size, size, c)


def _expm1(x: Tensor) -> Tensor:
    """exp(x) - 1 for x ≤ 0."""
    if torch.compiler.is_compiling():
        # Inductor's vector code for the CPU computes exp(x) - 1, which cancels.
        half = x.clamp(min=-80) / 2
        return 2 * torch.sinh(half) * torch.exp(half)
    return torch.expm1(x)


def _into(buffer: Tensor) -> dict[str, Any]:
    """``out=buffer`` in eager mode; vmap has no rule for it, and Dynamo may lose the gradient."""
    traced = torch.compiler.is_compiling() or in_func_transform()
    return {} if traced else {"out": buffer}


def _finite(x: Tensor) -> Tensor:
    """x with the largest finite number for inf, which in sums and products would become NaN."""
    largest = torch.finfo(x.dtype).max
    return x.clamp(-largest, largest)


def times(x: Tensor, factor: Tensor) -> Tensor:
    """The product, and 0 where the factor is 0 and x infinite."""
    return torch.where(factor == 0, 0.0, x * factor)


def _split(x: Tensor, unit: float = 1.0) -> tuple[Tensor, Tensor]:
    """x as a sum whose first part is finite. f is straight where the second part is not 0.

    ``unit`` is the scale on which f bends. At the bound even |b| is some hundred units, or b is 0.
    """
    bound = min(4096 * unit / torch.finfo(x.dtype).eps, torch.finfo(x.dtype).max)
    y = x.clamp(-bound, bound)
    return y, x - y


def _extended(value: Tensor, rest: Tensor, delta: Tensor) -> Tensor:
    """g of an f that tends to relu plus constants, from g of the first part of x."""
    return value + q_relu(rest, delta, False)[0]


def _across(x: Tensor, delta: Tensor, f: Function, beside: Tensor) -> Tensor:
    """g: the plain quotient where zero lies between the points, ``beside`` elsewhere."""
    return torch.where(delta < -1, (f(x * (1 + delta)) - f(x)) / delta, beside)


def _slope_across(x: Tensor, delta: Tensor, derivative: Function, beside: Tensor) -> Tensor:
    q = 1 + delta
    return torch.where(delta < -1, (q * derivative(x * q) - derivative(x)) / delta, beside)


# --- piecewise linear -----------------------------------------------------------------------------


def unless_nan(x: Tensor, slope: Tensor) -> Tensor:
    """The slope, and NaN where x is NaN; for a slope that depends on x only by comparisons."""
    return torch.where(x == x, slope, x)  # Inductor's vector code for the CPU has no isnan


def q_identity(x: Tensor, delta: Tensor, with_slope: bool) -> ValueAndSlope:
    return x.clone(), torch.ones_like(x) if with_slope else None


def q_relu(x: Tensor, delta: Tensor, with_slope: bool) -> ValueAndSlope:
    crossing, negative, q = delta < -1, x < 0, 1 + delta
    crossed = torch.where(negative, q, -1) / delta
    value = torch.where(crossing, x * crossed, x.clamp(min=0))
    if not with_slope:
        return value, None
    return value, unless_nan(x, torch.where(crossing, crossed, (~negative).to(x.dtype)))


def relu2(x: Tensor) -> Tensor:
    return x.relu().square()


def q_relu2(x: Tensor, delta: Tensor, with_slope: bool) -> ValueAndSlope:
    crossing, q = delta < -1, 1 + delta
    factor = torch.where(crossing, torch.where(x < 0, q * q, -1) / delta, 2 + delta)
    y = torch.where(crossing, x, x.relu())
    return factor * y * y, 2 * factor * y if with_slope else None


def q_leaky_relu(
    x: Tensor, delta: Tensor, with_slope: bool, negative_slope: float
) -> ValueAndSlope:
    negative, q = x < 0, 1 + delta
    beside = torch.where(negative, negative_slope, torch.ones_like(x))
    crossed = torch.where(negative, q - negative_slope, q * negative_slope - 1) / delta
    slope = unless_nan(x, torch.where(delta < -1, crossed, beside))
    return times(x, slope), slope


def _clamp_change(x: Tensor, delta: Tensor, low: float, high: float) -> Tensor:
    clamped = x.clamp(low, high)
    near, far = x * delta + (x - clamped), x * (1 + delta) - clamped
    change = torch.where((clamped == 0) | (delta < -0.5), far, near)
    return torch.minimum(torch.maximum(change, low - clamped), high - clamped)


def _inside(x: Tensor, delta: Tensor, low: float, high: float) -> tuple[Tensor, Tensor]:
    # For b, compare h with the distance to the kink: b itself may round onto the kink.
    h = x * delta
    return (x >= low) & (x < high), (h >= low - x) & (h < high - x)


def q_hardtanh(
    x: Tensor, delta: Tensor, with_slope: bool, min_val: float, max_val: float
) -> ValueAndSlope:
    x = _finite(x)
    x_inside, b_inside = _inside(x, delta, min_val, max_val)
    both = x_inside & b_inside
    value = torch.where(both, x, _clamp_change(x, delta, min_val, max_val) / delta)
    if not with_slope:
        return value, None
    crossing = torch.where(b_inside, 1 + delta, -x_inside.to(x.dtype)) / delta
    return value, unless_nan(x, torch.where(both, 1.0, crossing))


def q_relu6(x: Tensor, delta: Tensor, with_slope: bool) -> ValueAndSlope:
    return q_hardtanh(x, delta, with_slope, 0.0, 6.0)


def hardsigmoid(x: Tensor) -> Tensor:
    return (x + 3).clamp(0, 6) / 6  # torch rounds the slope 1/6 to float32


def q_hardsigmoid(x: Tensor, delta: Tensor, with_slope: bool) -> ValueAndSlope:
    value, slope = q_hardtanh(x, delta, with_slope, -3.0, 3.0)
    return value / 6, None if slope is None else slope / 6


def hardswish(x: Tensor) -> Tensor:
    return x * ((x + 3) / 6).clamp(0, 1)


def hardswish_derivative(x: Tensor) -> Tensor:
    return torch.where(x < -3, 0.0, torch.where(x < 3, (2 * x + 3) / 6, 1.0))


def q_hardswish(x: Tensor, delta: Tensor, with_slope: bool) -> ValueAndSlope:
    given, x, q = x, _finite(x), 1 + delta
    c, far = 1 + delta.clamp(max=0), x * (1 + delta.clamp(min=0))
    change = _clamp_change(x, delta, -3.0, 3.0) / 6 / delta
    crossed = (q * hardsigmoid(x * q) - hardsigmoid(x)) / delta
    value = times(given, torch.where(delta < -1, crossed, hardsigmoid(far) + c * change))
    if not with_slope:
        return value, None
    x_inside, b_inside = _inside(x, delta, -3.0, 3.0)
    at_x = hardswish_derivative(x)
    b_above = (x * delta >= 3 - x).to(x.dtype)
    at_b = torch.where(b_inside, (2 * x * (1 + delta) + 3) / 6, b_above)
    change = torch.where(x_inside & b_inside, x / 3, (at_b - at_x) / delta)
    beside = torch.where(delta < 0, at_x, at_b) + c * change
    return value, unless_nan(x, _slope_across(x, delta, hardswish_derivative, beside))


# --- exponential below zero: elu, selu, celu ------------------------------------------------------


def q_elu(x: Tensor, delta: Tensor, with_slope: bool, alpha: float) -> ValueAndSlope:
    # In place and without ``where``, to come close to plain ELU's speed. Below zero elu' = elu + 1,
    # so value and slope share the change of expm1(min(y, 0)).
    x, rest = _split(x)
    h = x * delta
    positive = x.relu()
    negative = positive - x
    below = h + positive
    below = torch.minimum(below, negative, **_into(below))  # the part of h below zero
    above = torch.maximum(h.sub_(negative), positive.neg_(), **_into(h))
    larger = below.relu().sub_(negative).exp_()  # elu' at max(x, b)
    exponent = below.abs().neg_()
    sign = below.sign_()
    change = _expm1(exponent).mul_(larger).mul_(sign)  # from b to x
    value = torch.div(above.sub_(change, alpha=alpha), delta, **_into(above))
    value = _extended(value, rest, delta)
    if not with_slope:
        return value, None
    # Anchored at min(x, b), where elu' is smaller. The weight of the change is the other point over
    # x: 1 + δ where b > x, else 1.
    weight = sign.relu_().mul_(delta).add_(1)
    smaller = exponent.exp_().mul_(larger)
    slope = torch.addcmul(smaller, weight, change.div_(delta), value=-1, **_into(smaller))
    if alpha != 1:
        slope = alpha * slope + (1 - alpha) * q_relu(x, delta, True)[1]  # type: ignore[operator]
    return value, slope


SELU_ALPHA = 1.6732632423543772848170429916717
SELU_SCALE = 1.0507009873554804934193349852946


def q_selu(x: Tensor, delta: Tensor, with_slope: bool) -> ValueAndSlope:
    value, slope = q_elu(x, delta, with_slope, SELU_ALPHA)
    return SELU_SCALE * value, None if slope is None else SELU_SCALE * slope


def q_celu(x: Tensor, delta: Tensor, with_slope: bool, alpha: float) -> ValueAndSlope:
    x, rest = _split(x, unit=alpha)
    value, slope = q_elu(x / alpha, delta, with_slope, 1.0)
    return _extended(alpha * value, rest, delta), slope


# --- sigmoid, tanh, softplus ----------------------------------------------------------------------


def sigmoid_derivative(x: Tensor) -> Tensor:
    return torch.sigmoid(x) * torch.sigmoid(-x)


def _tail(z: Tensor) -> Tensor:
    """σ(-z) for z ≥ 0, which torch.sigmoid rounds to 0 once exp(z) overflows."""
    return torch.exp(-z) * torch.sigmoid(z)


def _sigmoid_change(near: Tensor, far: Tensor, gap: Tensor, size: Tensor) -> tuple[Tensor, Tensor]:
    """How far σ rises and σ' falls over 0 ≤ near ≤ far = near + gap, divided by ``size``."""
    # Divide before multiplying by the exponential: the change alone may underflow.
    rise = _expm1(-gap) / -size * torch.exp(-near) * torch.sigmoid(near) * torch.sigmoid(far)
    return rise, rise * (torch.tanh(near / 2) + torch.tanh(far / 2)) / 2


def q_sigmoid(x: Tensor, delta: Tensor, with_slope: bool) -> ValueAndSlope:
    x = _finite(x)
    z, q = x.abs(), 1 + delta
    e_near = torch.exp(-z * q.clamp(0, 1))  # 1 when zero lies between the points
    spread = torch.sigmoid(z) * torch.sigmoid((z * q).abs())
    value = torch.copysign(_expm1(-z * delta.abs()) / delta * e_near * spread, x)
    if not with_slope:
        return value, None
    near, far, gap, size, c = Span.of(x, delta)
    _, fall = _sigmoid_change(near, far, gap, size)
    beside = _tail(far) * torch.sigmoid(far) - c * fall
    return value, _slope_across(x, delta, sigmoid_derivative, beside)


def tanh_derivative(x: Tensor) -> Tensor:
    return 4 * sigmoid_derivative(2 * x)


def q_tanh(x: Tensor, delta: Tensor, with_slope: bool) -> ValueAndSlope:
    value, slope = q_sigmoid(2 * x, delta, with_slope)
    return 2 * value, None if slope is None else 4 * slope


def softplus(x: Tensor, beta: float = 1.0) -> Tensor:
    # The error of torch's default threshold, 20, shows in float64.
    return F.softplus(x, beta, threshold=80)


def softplus_derivative(x: Tensor, beta: float) -> Tensor:
    return torch.sigmoid(beta * x)


def q_softplus(x: Tensor, delta: Tensor, with_slope: bool, beta: float) -> ValueAndSlope:
    # softplus(y) = relu(y) + log1p(exp(-|y|)), and the second term is even.
    x, rest = _split(x, unit=1 / beta)
    x = beta * x
    z, stretch = x.abs(), torch.where(delta < -1, -2 - delta, delta)  # |1 + δ| - 1
    e_near = torch.exp(-z * (1 + stretch.clamp(max=0)))
    far = z * (1 + stretch.clamp(min=0))
    fall = torch.log1p(-_expm1(-z * stretch.abs()) * e_near * torch.sigmoid(far))
    value = (q_relu(x, delta, False)[0] - torch.copysign(fall, stretch) / delta) / beta
    value = _extended(value, rest, delta)
    if not with_slope:
        return value, None
    near, far, gap, size, c = Span.of(x, delta)
    below = _tail(far) - c * _sigmoid_change(near, far, gap, size)[0]
    beside = torch.where(x < 0, below, 1 - below)
    return value, _slope_across(x, delta, torch.sigmoid, beside)


# --- products y s(y): silu, gelu, mish ------------------------------------------------------------


class Factor(NamedTuple):
    """The factor s of y s(y): s and s' at far, and their changes from near to far, over |δ|."""

    value: Tensor
    slope: Tensor
    change: Tensor
    slope_change: Tensor

    def product(self, x: Tensor, c: Tensor) -> Tensor:
        return x * (self.value + c * self.change)

    def product_slope(self, near: Tensor, far: Tensor, c: Tensor) -> Tensor:
        at_far = self.value + far * self.slope
        return at_far + c * self.change + near * (self.slope + c * self.slope_change)


def _gated(
    x: Tensor,
    delta: Tensor,
    with_slope: bool,
    f: Function,
    derivative: Function,
    factor: Callable[[Span], Factor],
) -> ValueAndSlope:
    """g of f(y) = y s(y) with s(y) + s(-y) = 1. As f(y) = y + f(-y), one side is enough."""
    x, rest = _split(x)
    span = Span.of(x, delta)
    s, negative = factor(span), x < 0
    below = s.product(-x.abs(), span.c)
    value = _across(x, delta, f, torch.where(negative, below, x + below))
    value = _extended(value, rest, delta)
    if not with_slope:
        return value, None
    below = s.product_slope(-span.near, -span.far, span.c)
    beside = torch.where(negative, below, 1 - below)
    return value, _slope_across(x, delta, derivative, beside)


def _silu_factor(span: Span) -> Factor:
    near, far, gap, size, _ = span
    rise, fall = _sigmoid_change(near, far, gap, size)
    return Factor(_tail(far), _tail(far) * torch.sigmoid(far), -rise, -fall)


def silu_derivative(x: Tensor) -> Tensor:
    return torch.sigmoid(x) * (1 + x * torch.sigmoid(-x))


def q_silu(x: Tensor, delta: Tensor, with_slope: bool) -> ValueAndSlope:
    return _gated(x, delta, with_slope, F.silu, silu_derivative, _silu_factor)


QUICK_GELU_SCALE = 1.702


def quick_gelu(x: Tensor) -> Tensor:
    return x * torch.sigmoid(QUICK_GELU_SCALE * x)


def quick_gelu_derivative(x: Tensor) -> Tensor:
    return silu_derivative(QUICK_GELU_SCALE * x)


def q_quick_gelu(x: Tensor, delta: Tensor, with_slope: bool) -> ValueAndSlope:
    x, rest = _split(x)
    value, slope = q_silu(QUICK_GELU_SCALE * x, delta, with_slope)
    return _extended(value / QUICK_GELU_SCALE, rest, delta), slope


# The tail P(N > z) for z ≥ 0 is exp(-z²/2) t p(t) with t = 1 / (GAUSS_SCALE z + origin). The origin
# and the coefficients of p from the highest power down; in float32 p and its slope err by 4e-7.
GAUSS_SCALE = math.sqrt(math.log2(math.e) / 2)
MILLS = (
    2.46180232,
    (24.9687514, -43.58515505, 21.91334092, -0.5255734268, 2.256351996, 0.806327378, 0.339526689),
)
MILLS_64 = (
    4.2466090014400955,
    (
        -903431431.9379743,
        1695929388.0206208,
        -1265028703.266694,
        415589405.5773341,
        -3733640.8011351745,
        -47113792.47667812,
        19856646.7249453,
        -5078989.812720241,
        887198.2604474889,
        -99484.62597576811,
        17804.26725302292,
        1884.8553125395943,
        983.5220288079305,
        289.9277366545456,
        84.34211909068961,
        22.83295953305437,
        5.865971334910218,
        1.4388798911213485,
        0.33883037680683475,
    ),
)


def normal_tail(z: Tensor) -> Tensor:
    """P(N > z) for a standard normal N."""
    if jit_tracing_state() is not None and torch.onnx.is_in_onnx_export():
        return 0.5 - 0.5 * torch.erf(z * math.sqrt(0.5))  # the older exporter has no erfc
    return 0.5 * torch.erfc(z * math.sqrt(0.5))


def normal_density(z: Tensor) -> Tensor:
    return torch.exp(-0.5 * z * z) * (1 / math.sqrt(2 * math.pi))


def _gelu_factor(span: Span) -> Factor:
    near, far, gap, size, _ = span
    exponent = gap * (near + far) / 2  # density(far) = density(near) exp(-exponent)
    density = normal_density(near)
    mean = torch.zeros_like(near)  # of density(y) / density(near) over [near, far]
    for node, weight in GAUSS_LEGENDRE:
        mean += weight * torch.exp(-gap * node * (near + 0.5 * gap * node))
    tail_near, tail_far = normal_tail(near), normal_tail(far)
    # The subtraction is harmless once the tail has fallen by a factor of e.
    falls = gap / size * density * mean, (tail_near - tail_far) / size
    fall = torch.where(exponent < 1, *falls)
    slope_change = _expm1(-exponent) / size * density
    return Factor(tail_far, normal_density(far), -fall, slope_change)


def gelu(x: Tensor) -> Tensor:
    return x * normal_tail(-x)


def gelu_derivative(x: Tensor) -> Tensor:
    return normal_tail(-x) + x * normal_density(x)


def q_gelu(x: Tensor, delta: Tensor, with_slope: bool) -> ValueAndSlope:
    return _gated(x, delta, with_slope, gelu, gelu_derivative, _gelu_factor)


GELU_TANH_SCALE = 2 * math.sqrt(2 / math.pi)
GELU_TANH_CUBIC = 0.044715


def gelu_tanh_argument(y: Tensor) -> tuple[Tensor, Tensor]:
    """v(y) and v'(y) of gelu_tanh(y) = y σ(v(y)); y v''(y) is 2 (v'(y) - GELU_TANH_SCALE)."""
    square = GELU_TANH_CUBIC * y * y
    return GELU_TANH_SCALE * y * (1 + square), GELU_TANH_SCALE * (1 + 3 * square)


def _gelu_tanh_factor(span: Span) -> Factor:
    near, far, gap, size, _ = span
    (v_near, dv_near), (v_far, dv_far) = gelu_tanh_argument(near), gelu_tanh_argument(far)
    cubic = 1 + GELU_TANH_CUBIC * (near * near + near * far + far * far)
    rise, fall = _sigmoid_change(v_near, v_far, GELU_TANH_SCALE * gap * cubic, size)
    bell = _tail(v_far) * torch.sigmoid(v_far)
    dv_change = 3 * GELU_TANH_SCALE * GELU_TANH_CUBIC * gap / size * (near + far)
    return Factor(_tail(v_far), dv_far * bell, -rise, dv_change * bell - dv_near * fall)


def gelu_tanh(x: Tensor) -> Tensor:
    return x * torch.sigmoid(gelu_tanh_argument(x)[0])


def gelu_tanh_derivative(x: Tensor) -> Tensor:
    x = x.clamp(-50, 50)  # beyond, the result is 0 or 1 and the cube may overflow
    v, dv = gelu_tanh_argument(x)
    return torch.sigmoid(v) + x * dv * sigmoid_derivative(v)


def q_gelu_tanh(x: Tensor, delta: Tensor, with_slope: bool) -> ValueAndSlope:
    return _gated(x, delta, with_slope, gelu_tanh, gelu_tanh_derivative, _gelu_tanh_factor)


def _mish_factor(x: Tensor, span: Span) -> Factor:
    # tanh(softplus(y)) is rational in exp(y). With e = exp(-|y|) both signs of y share one form, in
    # which only ``unit`` differs: 1 below zero, e above.
    near, far, gap, size, _ = span
    negative = x < 0
    e_near, e_far = torch.exp(-near), torch.exp(-far)
    unit_near, unit_far = torch.where(negative, 1.0, e_near), torch.where(negative, 1.0, e_far)
    below_near = (1 + e_near).square() + unit_near.square()
    below_far = (1 + e_far).square() + unit_far.square()
    value = torch.where(negative, e_far, 1.0) * (1 + e_far + unit_far) / below_far
    slope = 4 * e_far * unit_far * (1 + e_far) / below_far.square()
    unit, below = unit_near * unit_far, below_near * below_far
    total, product = e_near + e_far + 2 * unit, (1 + e_near) * (1 + e_far)
    step = torch.copysign(_expm1(-gap) / size * e_near, x) / below
    bend = total * (unit.square() - product.square())
    bend += product * (total.square() - product * unit + 2 * unit.square()) - unit**3
    return Factor(value, slope, 2 * step * total, 4 * step * bend / below)


def mish(x: Tensor) -> Tensor:
    return x * torch.tanh(softplus(x))


def mish_derivative(x: Tensor) -> Tensor:
    return torch.tanh(softplus(x)) + x * (tanh_derivative(softplus(x)) * torch.sigmoid(x))


def q_mish(x: Tensor, delta: Tensor, with_slope: bool) -> ValueAndSlope:
    x, rest = _split(x)
    span = Span.of(x, delta)
    factor = _mish_factor(x, span)
    value = _extended(_across(x, delta, mish, factor.product(x, span.c)), rest, delta)
    if not with_slope:
        return value, None
    near, far = torch.copysign(span.near, x), torch.copysign(span.far, x)
    beside = factor.product_slope(near, far, span.c)
    return value, _slope_across(x, delta, mish_derivative, beside)


# --- rational and trigonometric -------------------------------------------------------------------


def softsign_derivative(x: Tensor) -> Tensor:
    return 1 / (1 + x.abs()).square()


def q_softsign(x: Tensor, delta: Tensor, with_slope: bool) -> ValueAndSlope:
    b = times(x, 1 + delta)
    x_ratio, b_ratio, b_next = F.softsign(_finite(x)), F.softsign(_finite(b)), 1 + b.abs()
    value = torch.where(delta < -1, (b_ratio - x_ratio) / delta, x_ratio / b_next)
    if not with_slope:
        return value, None
    both = 1 / (1 + x.abs()) / b_next  # (1 - xb) both² would overflow
    return value, _slope_across(x, delta, softsign_derivative, (both - x_ratio * b_ratio) * both)


def q_sin(x: Tensor, delta: Tensor, with_slope: bool) -> ValueAndSlope:
    half = 0.5 * x * delta
    chord = 2 * torch.sin(half) / delta
    value = torch.cos(x + half) * chord
    if not with_slope:
        return value, None
    c, far = 1 + delta.clamp(max=0), x * (1 + delta.clamp(min=0))
    beside = torch.cos(far) - c * torch.sin(x + half) * chord
    return value, _slope_across(x, delta, torch.cos, beside)
