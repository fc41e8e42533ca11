"""Elementary functions and constants for Triton device functions."""
# mypy: disable-error-code="no-untyped-def, import-untyped"

import math

import triton
import triton.language as tl

from qneurons import closed_forms

ON_DEVICE = tl.constexpr(not triton.knobs.runtime.interpret)  # the interpreter has no assembly
NAN = tl.constexpr(tl.PropagateNan.ALL)
LOG2_E = tl.constexpr(math.log2(math.e))
LOG_2 = tl.constexpr(math.log(2))
TURN = tl.constexpr(0.5 / math.pi)
DENSITY = tl.constexpr(1 / math.sqrt(2 * math.pi))
SELU_ALPHA = tl.constexpr(closed_forms.SELU_ALPHA)
SELU_SCALE = tl.constexpr(closed_forms.SELU_SCALE)
GELU_TANH_SCALE = tl.constexpr(closed_forms.GELU_TANH_SCALE)
GELU_TANH_CUBIC = tl.constexpr(closed_forms.GELU_TANH_CUBIC)
QUICK_GELU_SCALE = tl.constexpr(closed_forms.QUICK_GELU_SCALE)
GAUSS_SCALE = tl.constexpr(closed_forms.GAUSS_SCALE)
MILLS_ORIGIN, MILLS = map(tl.constexpr, closed_forms.MILLS)
MILLS_ORIGIN_64, MILLS_64 = map(tl.constexpr, closed_forms.MILLS_64)


@triton.jit
def approximate(instruction: tl.constexpr, x):
    return tl.inline_asm_elementwise(
        instruction + ".approx.ftz.f32 $0, $1;", "=f,f", [x], tl.float32, is_pure=True, pack=1
    )


@triton.jit
def exp2(x):
    return approximate("ex2", x) if x.dtype == tl.float32 and ON_DEVICE else tl.exp2(x)


@triton.jit
def reciprocal(x):
    return approximate("rcp", x) if x.dtype == tl.float32 and ON_DEVICE else 1 / x


@triton.jit
def within_a_turn(x):
    """x minus a multiple of 2π: the instructions are accurate only from -π to π."""
    turns = (x * TURN + 12582912.0) - 12582912.0  # 1.5 · 2^23 rounds to an integer
    return tl.fma(turns, -0.0019353071795864769, tl.fma(turns, -6.28125, x))


@triton.jit
def sin(x):
    if x.dtype == tl.float32 and ON_DEVICE:
        return approximate("sin", within_a_turn(x))
    else:
        return tl.sin(x)


@triton.jit
def cos(x):
    if x.dtype == tl.float32 and ON_DEVICE:
        return approximate("cos", within_a_turn(x))
    else:
        return tl.cos(x)


@triton.jit
def copysign(magnitude, sign):
    """The magnitude, which must not be negative, with the sign of ``sign``."""
    if magnitude.dtype == tl.float32 and ON_DEVICE:
        return tl.inline_asm_elementwise(
            "copysign.f32 $0, $2, $1;",
            "=f,f,f",
            [magnitude, sign],
            tl.float32,
            is_pure=True,
            pack=1,
        )
    else:
        return tl.where(sign < 0, -magnitude, magnitude)


@triton.jit
def unless_nan(x, slope):
    """The slope, and NaN where x is NaN; for a slope that depends on x only by comparisons."""
    return tl.where(x == x, slope, x)


@triton.jit
def times(x, factor):
    """The product, and 0 where the factor is 0 and x infinite."""
    return tl.where(factor == 0, 0.0, x * factor)
