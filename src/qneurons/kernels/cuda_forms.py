"""The forms of ``qneurons.closed_forms``, which do not cancel, as Triton device functions.

Each takes blocks of x and δ, both float32 or both float64, and the row's parameters, and returns
(g, dg/dx). They are pure expressions, so the compiler drops the result that is not used. Notation:
q = 1 + δ and b = qx. What makes them cheap:

* Exponentials have base 2, and each element needs one reciprocal.
* A quotient (q s(b) - s(x)) / δ is s(a) + w (s(b) - s(x)) / δ for the anchor a = b with w = 1 or
  a = x with w = q. The anchor is the point farther from zero. Where zero lies between x and b its
  terms are at most twice those of the quotient, and elsewhere they do not cancel.
* That quotient is the slope of g for s = f', and for f(y) = y s(y) it is g / x.
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
    LOG_2,
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

FAR = tl.constexpr(2.0**12)  # times a kink: x minus the kink has lost digits
FARTHEST = tl.constexpr(2.0**40)  # b is still far from zero, or is zero; its square is finite
LARGEST = tl.constexpr(2.0**100)
VANISHING = tl.constexpr(1200.0)  # 2^-1200 is 0

# --- shared by several rows -----------------------------------------------------------------------


@triton.jit
def _exp2_change(u, v, gap, coarse: tl.constexpr = False, unit: tl.constexpr = 1.0):
    """2^u, 2^v and 2^v - 2^u, given gap = (v - u) log(2) / unit; coarse: to 4e-5."""
    at_u, at_v = exp2(u), exp2(v)
    if coarse:
        small = (at_u + at_v) * (0.5 * unit * gap)
        return at_u, at_v, tl.where(tl.abs(gap) < 0.022 / unit, small, at_v - at_u)
    z = gap * gap
    if z.dtype == tl.float32:  # unit tanh(y / 2) / y up to |y| = 1/2, where y = gap unit
        tanh = (0.004012948102 * unit**5) * z - 0.04165237124 * unit**3
        tanh = tanh * z + 0.4999998017 * unit
    else:
        tanh = (-4.0185650509976026e-08 * unit**15) * z + 4.36802204293277e-07 * unit**13
        tanh = tanh * z - 4.327397633978365e-06 * unit**11
        tanh = tanh * z + 4.271380352710016e-05 * unit**9
        tanh = tanh * z - 0.00042162698150931233 * unit**7
        tanh = tanh * z + 0.0041666666665850245 * unit**5
        tanh = tanh * z - 0.04166666666666569 * unit**3
        tanh = tanh * z + 0.5 * unit
    small = z < 0.25 / unit**2
    return at_u, at_v, tl.where(small, (at_u + at_v) * (gap * tanh), at_v - at_u)


@triton.jit
def _part(x, delta):
    """The change of max(x, 0) from x to b, exactly 0 where both are negative."""
    # max(b, 0) - max(x, 0) would cancel, and h minus its part below zero would not be 0 once the
    # compiler fuses the product h = xδ into the subtraction. -1.0 * y is free, but -y is not.
    # Below zero x + h would be NaN at -inf.
    positive, negative = tl.maximum(x, 0.0, NAN), tl.minimum(x, 0.0, NAN)
    return tl.maximum(tl.fma(positive, delta, negative * (1 + delta)), -1.0 * positive)


@triton.jit
def _weight(q):
    """w: 1 where b is the anchor, else q."""
    return tl.where(tl.abs(q) > 1, 1.0, q)


@triton.jit
def _clamp(y, low: tl.constexpr, high: tl.constexpr):
    return tl.maximum(tl.minimum(y, high, NAN), low, NAN)


@triton.jit
def _gated(x, delta, y_x, y_b, factor, factor_slope, rise, slope_rise, unit: tl.constexpr = 1.0):
    """(g, dg/dx) of f(y) = y s(y): s and s' at the anchor, and their changes over δ.

    y_x and y_b are x and b over ``unit``, clamped where s is 0 or 1. There s' is 0 or a tiny
    number, which a large x would turn into a wrong slope.
    """
    q = 1 + delta
    w = _weight(q)
    near = w * tl.where(tl.abs(q) > 1, y_x, y_b)
    bent = (y_x + y_b) * factor_slope + near * slope_rise
    s = factor + w * rise
    return times(x, s), s + unit * bent


# --- piecewise linear -----------------------------------------------------------------------------


@triton.jit
def q_delta(x, delta, p0: tl.constexpr, p1: tl.constexpr):
    """δ itself instead of a row, for tests of the noise."""
    return delta, delta


@triton.jit
def dropout(x, delta, scale: tl.constexpr, p1: tl.constexpr):
    """Zero if q < 0, else x times the scale; for packs of runs. A product, so NaN is kept."""
    slope = tl.where(delta < -1, tl.zeros_like(delta), scale)
    return x * slope, slope


@triton.jit
def base(x, delta, FORM: tl.constexpr, PARAMETERS: tl.constexpr):
    """f itself, for packs of runs: at q = 0 the quotient is f(x) - f(0), and its slope is f'(x)."""
    p0: tl.constexpr = PARAMETERS[0]
    p1: tl.constexpr = PARAMETERS[1]
    value, slope = FORM(x, tl.full(x.shape, -1.0, x.dtype), p0, p1)
    return value + PARAMETERS[2], slope


@triton.jit
def q_identity(x, delta, p0: tl.constexpr, p1: tl.constexpr):
    return x, 1.0


@triton.jit
def q_relu(x, delta, p0: tl.constexpr, p1: tl.constexpr):
    crossing, negative = delta < -1, x < 0
    inverse = reciprocal(delta)
    crossed = tl.where(negative, 1 + delta, -1.0) * inverse
    value = tl.where(crossing, x * crossed, tl.maximum(x, 0.0, NAN))
    part = tl.minimum(1 + delta, 0.0) * inverse
    return value, unless_nan(x, tl.where(negative, part, 1 - part))


@triton.jit
def q_relu2(x, delta, p0: tl.constexpr, p1: tl.constexpr):
    crossing, q = delta < -1, 1 + delta
    crossed = tl.where(x < 0, q * q, -1.0) * reciprocal(delta)
    factor = tl.where(crossing, crossed, 2 + delta)
    y = tl.where(crossing, x, tl.maximum(x, 0.0, NAN))
    return factor * y * y, 2 * factor * y


@triton.jit
def q_leaky_relu(x, delta, negative_slope: tl.constexpr, p1: tl.constexpr):
    negative, q = x < 0, 1 + delta
    crossed = tl.where(negative, q - negative_slope, q * negative_slope - 1) * reciprocal(delta)
    # Of two constants tl.where would make float32.
    beside = tl.where(negative, negative_slope, tl.full(x.shape, 1.0, x.dtype))
    slope = unless_nan(x, tl.where(delta < -1, crossed, beside))
    return times(x, slope), slope


@triton.jit
def _clamp_change(x, delta, low: tl.constexpr, high: tl.constexpr):
    """clamp(b) - clamp(x), and whether x and b lie inside."""
    bottom, top = tl.full(x.shape, low, x.dtype), tl.full(x.shape, high, x.dtype)
    clamped = tl.minimum(tl.maximum(x, bottom, NAN), top, NAN)
    # Where x is large, x - clamped loses the kink, and at ±inf it would be NaN.
    kink: tl.constexpr = (high if high > 0 else -high) + (low if low > 0 else -low)
    y = _clamp(x, -LARGEST, LARGEST)
    from_far = tl.fma(y, 1 + delta, -1.0 * clamped)
    change = tl.where(tl.abs(x) > FAR * kink, from_far, tl.fma(x, delta, x - clamped))
    change = tl.minimum(tl.maximum(change, low - clamped, NAN), high - clamped, NAN)
    # For b, compare h with the distance to the kink: b itself may round onto the kink.
    h = x * delta
    return change, (x >= low) & (x < high), (h >= low - x) & (h < high - x)


@triton.jit
def q_hardtanh(x, delta, low: tl.constexpr, high: tl.constexpr):
    change, x_inside, b_inside = _clamp_change(x, delta, low, high)
    inverse = reciprocal(delta)
    crossing = tl.where(b_inside, 1 + delta, tl.where(x_inside, -1.0, 0.0)) * inverse
    return change * inverse, unless_nan(x, tl.where(x_inside & b_inside, 1.0, crossing))


@triton.jit
def q_relu6(x, delta, p0: tl.constexpr, p1: tl.constexpr):
    return q_hardtanh(x, delta, 0.0, 6.0)


@triton.jit
def q_hardsigmoid(x, delta, p0: tl.constexpr, p1: tl.constexpr):
    value, slope = q_hardtanh(x, delta, -3.0, 3.0)
    return value * (1 / 6), slope * (1 / 6)


@triton.jit
def q_hardswish(x, delta, p0: tl.constexpr, p1: tl.constexpr):
    q = 1 + delta
    b = x * q
    inverse = reciprocal(delta)
    b_is_far, w = tl.abs(q) > 1, _weight(q)
    change, x_inside, b_inside = _clamp_change(x, delta, -3.0, 3.0)
    # x / 6 + 1/2 would not be 0 at -3 once fused.
    factor = tl.minimum(tl.maximum(tl.where(b_is_far, b, x) + 3, 0.0), 6.0)
    value = times(x, (factor + w * (change * inverse)) * (1 / 6))

    at_x = tl.where(x_inside, x * (1 / 3) + 0.5, tl.where(x > 0, 1.0, 0.0))
    at_b = tl.where(b_inside, b * (1 / 3) + 0.5, tl.where(b > 0, 1.0, 0.0))
    rise = tl.where(x_inside & b_inside, x * (1 / 3), (at_b - at_x) * inverse)
    return value, unless_nan(x, tl.where(b_is_far, at_b, at_x) + w * rise)


# --- exponential below zero -----------------------------------------------------------------------


@triton.jit
def _elu(x, delta, alpha: tl.constexpr, coarse: tl.constexpr):
    # y is x over ``unit``. For log 2 it is an exponent of 2, but rounded.
    unit: tl.constexpr = LOG_2 if coarse else 1.0
    q, y = 1 + delta, x * (1 / unit)
    positive, negative = tl.maximum(y, 0.0, NAN), tl.minimum(y, 0.0, NAN)
    gap = tl.minimum(tl.fma(y, delta, positive), -1.0 * negative, NAN)
    u, v = negative, tl.minimum(y * q, 0.0)
    if not coarse:
        u, v = u * LOG2_E, v * LOG2_E
    at_x, at_b, change = _exp2_change(u, v, gap, coarse, unit)
    inverse = reciprocal(delta)
    value = (_part(y, delta) * unit + alpha * change) * inverse
    slope = tl.where(tl.abs(q) > 1, at_b, at_x) + _weight(q) * (change * inverse)
    if alpha != 1:
        slope = alpha * slope + (1 - alpha) * q_relu(x, delta, 0.0, 0.0)[1]
    return value, slope


@triton.jit
def q_elu(x, delta, alpha: tl.constexpr, p1: tl.constexpr):
    return _elu(x, delta, alpha, False)


@triton.jit
def q_elu_half(x, delta, alpha: tl.constexpr, p1: tl.constexpr):
    """Accurate to 1e-4, for a result that is rounded to 16 bits."""
    return _elu(x, delta, alpha, True)


@triton.jit
def q_selu(x, delta, p0: tl.constexpr, p1: tl.constexpr):
    value, slope = q_elu(x, delta, SELU_ALPHA, 0.0)
    return value * SELU_SCALE, slope * SELU_SCALE


@triton.jit
def q_celu(x, delta, alpha: tl.constexpr, p1: tl.constexpr):
    value, slope = q_elu(x * (1 / alpha), delta, 1.0, 0.0)
    return alpha * value, slope


# --- logistic -------------------------------------------------------------------------------------


@triton.jit
def _logistic(u, v, gap, delta, unit: tl.constexpr = 1.0):
    """σ at x and b, where exp(-y) is 2^u and 2^v, both below 2^112. gap is (b - x) / unit.

    Returns the rise of σ over δ, exp(-a), σ(a), and the rise of σ' as a multiple of that of σ.
    """
    at_b, at_x, fall = _exp2_change(v, u, gap, unit=unit)
    below = 1 + at_x
    inverse = reciprocal((below + below * at_b) * delta)
    both = inverse * delta
    b_is_far = tl.abs(1 + delta) > 1
    sigma = both * (1 + tl.where(b_is_far, at_x, at_b))
    return fall * inverse, tl.where(b_is_far, at_b, at_x), sigma, (at_x * at_b - 1) * both


@triton.jit
def _clamped_exponents(x, delta, scale: tl.constexpr):
    """u and v with exp(scale x) = 2^u and exp(scale b) = 2^v, clamped where σ is 1."""
    high: tl.constexpr = 55.0 if x.dtype == tl.float32 else 200.0
    u = x * (LOG2_E * scale)
    return tl.minimum(u, high, NAN), tl.minimum(u * (1 + delta), high)


@triton.jit
def q_sigmoid(x, delta, p0: tl.constexpr, p1: tl.constexpr):
    largest: tl.constexpr = 112.0 if x.dtype == tl.float32 else 900.0
    z = tl.minimum(tl.abs(x), LARGEST, NAN)
    u = z * -LOG2_E
    v = tl.minimum(u * (1 + delta), largest)
    rise, e, sigma, bend = _logistic(u, v, z * delta, delta)
    return copysign(rise, x), e * sigma * sigma + _weight(1 + delta) * (rise * bend)


@triton.jit
def q_tanh(x, delta, p0: tl.constexpr, p1: tl.constexpr):
    value, slope = q_sigmoid(2 * x, delta, 0.0, 0.0)
    return 2 * value, 4 * slope


@triton.jit
def _double_artanh(s):
    """2 artanh(s) for |s| ≤ 1/3."""
    z = s * s
    if z.dtype == tl.float32:
        p = 0.3420361937 * z + 0.3959318568
        p = p * z + 0.6667584867
        p = p * z + 1.99999968
    else:
        p = 0.17044163562781398 * z + 0.0832450651186082
        p = p * z + 0.12110168728069218
        p = p * z + 0.13300374032674625
        p = p * z + 0.1538661404230401
        p = p * z + 0.18181740832504806
        p = p * z + 0.22222224080747674
        p = p * z + 0.28571428545454114
        p = p * z + 0.4000000000018575
        p = p * z + 0.6666666666666615
        p = p * z + 2.0
    return s * p


@triton.jit
def q_softplus(x, delta, beta: tl.constexpr, p1: tl.constexpr):
    # softplus(y) = max(y, 0) + log1p(exp(-|y|)) for β = 1, and the logarithm changes from x to b by
    # 2 artanh of the change of exp(-|y|) over the sum of 1 + exp(-|y|).
    z = tl.minimum(tl.abs(x) * beta, LARGEST)
    stretch = tl.where(delta < -1, -2 - delta, delta)  # |q| - 1
    gap = z * stretch
    u = z * -LOG2_E
    at_b, at_x, fall = _exp2_change(u * tl.abs(1 + delta), u, gap)
    total = 2 + at_x + at_b
    inverse = reciprocal(total * delta)
    bend = _double_artanh(fall * (inverse * delta)) * (1 / beta)
    value = (_part(x, delta) - bend) * (inverse * total)

    u, v = _clamped_exponents(x, delta, beta)
    fall, e, sigma, _ = _logistic(u, v, -1.0 * u * delta, delta, LOG_2)
    return value, e * sigma - _weight(1 + delta) * fall


# --- products y s(y) ------------------------------------------------------------------------------


@triton.jit
def _silu(x, delta, scale: tl.constexpr):
    """x σ(scale x), as x σ(-y) of y = -scale x, which is accurate where x < 0."""
    u, v = _clamped_exponents(x, delta, scale)
    fall, e, sigma, bend = _logistic(u, v, -1.0 * u * delta, delta, LOG_2)
    tail, bell = e * sigma, e * sigma * sigma
    u, v = tl.maximum(u, -VANISHING), tl.maximum(v, -VANISHING)  # for the slope only
    return _gated(x, delta, u, v, tail, bell, -1.0 * fall, fall * bend, LOG_2)


@triton.jit
def q_silu(x, delta, p0: tl.constexpr, p1: tl.constexpr):
    return _silu(x, delta, 1.0)


@triton.jit
def q_quick_gelu(x, delta, p0: tl.constexpr, p1: tl.constexpr):
    return _silu(x, delta, QUICK_GELU_SCALE)


@triton.jit
def _gelu_tanh(x, delta, y_x, y_b, linear: tl.constexpr):
    ratio_x, ratio_b, total = y_x * y_x + linear, y_b * y_b + linear, y_x + y_b
    gap = (y_x * delta) * (-1.0 * ratio_x - y_b * total)
    fall, e, sigma, bend = _logistic(y_x * ratio_x, y_b * ratio_b, gap, delta, LOG_2)

    b_is_far = tl.abs(1 + delta) > 1
    far, near = tl.where(b_is_far, ratio_b, ratio_x), tl.where(b_is_far, ratio_x, ratio_b)
    cubic: tl.constexpr = 3 * LOG_2
    start: tl.constexpr = -2 * LOG_2 * linear  # v'(y) log 2 is start + cubic v(y) / y
    bell = e * sigma * sigma
    bell_rise = (cubic * y_x) * total * bell + (near * cubic + start) * (fall * bend)
    bell_far = (far * cubic + start) * bell
    return _gated(x, delta, y_x, y_b, e * sigma, bell_far, -1.0 * fall, bell_rise)


@triton.jit
def q_gelu_tanh(x, delta, p0: tl.constexpr, p1: tl.constexpr):
    # x σ(v(y) log 2) with v(y) = linear y + y³ for a multiple y of x, clamped where σ is 1, and for
    # the slope also where σ is 0, because y³ is large there.
    single: tl.constexpr = x.dtype == tl.float32
    low: tl.constexpr = -6.0 if single else -11.0
    high: tl.constexpr = 3.375 if single else 5.6
    multiple: tl.constexpr = (GELU_TANH_SCALE * GELU_TANH_CUBIC * LOG2_E) ** (1 / 3)
    linear: tl.constexpr = GELU_TANH_SCALE * LOG2_E / multiple
    y = x * multiple
    y_x, y_b = tl.minimum(y, high, NAN), tl.minimum(y * (1 + delta), high)
    value, _ = _gelu_tanh(x, delta, y_x, y_b, linear)
    y_x, y_b = tl.maximum(y_x, low, NAN), tl.maximum(y_b, low)
    return value, _gelu_tanh(x, delta, y_x, y_b, linear)[1]


@triton.jit
def q_gelu(x, delta, p0: tl.constexpr, p1: tl.constexpr):
    # Let s(y) be the tail and r = (|q| s(|b|) - s(|x|) + min(q, 0)) / δ: g is x r below zero and
    # x (1 - r) above. dg is r or 1 - r with s(y) + y s'(y) for s(y). With m(z) = t p(t)
    #   |q| s(|b|) - s(|x|) = (|q| - 1) 2^-far² (m(near) - far chord) - min(|q|, 1) fall m(near),
    # where fall is that of 2^-z² from |x| to |b|, and chord that of m per step of z.
    single: tl.constexpr = x.dtype == tl.float32
    origin: tl.constexpr = MILLS_ORIGIN if single else MILLS_ORIGIN_64
    count: tl.constexpr = 7 if single else 19
    mills: tl.constexpr = MILLS if single else MILLS_64
    q = 1 + delta
    z = tl.minimum(tl.abs(x) * GAUSS_SCALE, FARTHEST, NAN)
    b = z * tl.abs(q)
    near, far = tl.minimum(z, b), tl.maximum(z, b)
    across = tl.minimum(q, 0.0)
    stretch = delta - 2 * across  # |q| - 1
    rate = stretch * (z + b)
    at_b, at_z, fall = _exp2_change(-1.0 * b * b, -1.0 * z * z, z * rate, unit=LOG_2)
    at_far = tl.minimum(at_z, at_b)
    fall = tl.minimum(tl.abs(q), 1.0) * fall

    # Horner's rule, and again on its steps for the chord of t p(t) in t. And far t = 1 - origin t.
    t_near, t_far = reciprocal(near + origin), reciprocal(far + origin)
    p = t_near * mills[0] + mills[1]  # a single mills[0] would be rounded to float32
    chord = t_far * mills[0] + p
    for i in tl.static_range(2, count):
        p = t_near * p + mills[i]
        chord = t_far * chord + p
    rest = p - (1 - t_far * origin) * chord
    tail = t_near * ((stretch * at_far) * rest - fall * p) + across
    bell = (DENSITY / GAUSS_SCALE) * (fall * near - rate * at_far)
    inverse = reciprocal(delta)
    r, r_slope = tail * inverse, (tail + bell) * inverse
    return times(x, tl.where(x < 0, r, 1 - r)), tl.where(x < 0, r_slope, 1 - r_slope)


@triton.jit
def q_mish(x, delta, p0: tl.constexpr, p1: tl.constexpr):
    # s(y) = tanh(softplus(y)) = 1 - 2 / (a² + 1) and s'(y) = 4e a / (a² + 1)², where e = exp(y) and
    # a = e + 1. Beyond the clamp s is 1.
    high: tl.constexpr = 20.0 if x.dtype == tl.float32 else 50.0
    u = x * LOG2_E
    u, v = tl.minimum(u, high, NAN), tl.minimum(u * (1 + delta), high)
    e_x, e_b, change = _exp2_change(u, v, u * delta, unit=LOG_2)
    a_x, a_b = e_x + 1, e_b + 1
    d_x, d_b = a_x * a_x + 1, a_b * a_b + 1
    inverse = reciprocal(d_x * d_b * (0.5 * delta))
    both = inverse * delta
    b_is_far = tl.abs(1 + delta) > 1
    below = both * tl.where(b_is_far, d_x, d_b)  # 2 / (a² + 1) at the anchor
    e = tl.where(b_is_far, e_b, e_x)
    factor = (e * below) * (0.5 * e + 1)
    factor_slope = (e * below) * ((e + 1) * below)
    step = change * inverse
    total, product = a_x + a_b, a_x * a_b
    bend = total * (1 - product * product) + product * (total * total - product + 2) - 1
    slope_rise = step * (bend * both)
    u, v = tl.maximum(u, -VANISHING), tl.maximum(v, -VANISHING)  # for the slope only
    return _gated(x, delta, u, v, factor, factor_slope, step * total, slope_rise, LOG_2)


# --- rational and trigonometric -------------------------------------------------------------------


@triton.jit
def q_softsign(x, delta, p0: tl.constexpr, p1: tl.constexpr):
    # With z = |x|, r = z / (1 + z) and p = qz / (1 + |b|): g = x / z (r / (1 + |b|) + 2 r min(p, 0)
    # / δ) and dg = c (c - rp + 4 min(p, 0) / (1 + z) / δ), where c = 1 / (1 + z) / (1 + |b|).
    z, q = tl.minimum(tl.abs(x), LARGEST, NAN), 1 + delta
    at_x, at_b = reciprocal(1 + z), reciprocal(1 + z * tl.abs(q))
    r, p, both = z * at_x, q * z * at_b, at_x * at_b
    across = tl.minimum(p, 0.0) * reciprocal(delta)
    value = r * (at_b + 2 * across)
    return copysign(value, x), both * (both - r * p + 4 * at_x * across)


@triton.jit
def q_sin(x, delta, p0: tl.constexpr, p1: tl.constexpr):
    half = 0.5 * x * delta
    sine = sin(half)
    if x.dtype == tl.float32:
        z = half * half
        p = -0.0001929696087 * z + 0.008329944565
        p = p * z - 0.16666599
        p = p * z + 0.9999999789
        sine = tl.where(z < 1, half * p, sine)  # sin bounds the absolute error only
    chord = 2 * sine * reciprocal(delta)
    q = 1 + delta
    anchor = cos(x * tl.where(tl.abs(q) > 1, q, 1.0))
    return cos(x + half) * chord, anchor - _weight(q) * (sin(x + half) * chord)
