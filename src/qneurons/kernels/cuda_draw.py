"""The draw of a q-activation as Triton device functions, which kernels have in common.

The noise is that of :func:`qneurons.noise.normals`.
"""
# mypy: disable-error-code="no-untyped-def, import-untyped, assignment, var-annotated"

from collections.abc import Sequence
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from qneurons import noise
from qneurons.kernels import cuda_forms
from qneurons.kernels.cuda_math import ON_DEVICE, approximate, copysign
from qneurons.kernels.dispatch import BASE
from qneurons.precision import TINY_DELTA, compute_dtype

CALLS = tl.constexpr(noise.CALLS)
THREADS = tl.constexpr(noise.CALLS // 4)
BLOCK = tl.constexpr(8 * noise.CALLS)
_ROUNDS = tl.constexpr(noise.PHILOX_ROUNDS)
_M0, _M1 = map(tl.constexpr, noise.PHILOX_MULTIPLIERS)
_W0, _W1 = map(tl.constexpr, noise.PHILOX_KEY_STEPS)
_ROTATION = tl.constexpr(noise.RADIUS_ROTATION)


@triton.jit
def _log2(x):
    return approximate("lg2", x) if ON_DEVICE else tl.log2(x)


@triton.jit
def _sqrt(x):
    return approximate("sqrt", x) if ON_DEVICE else tl.sqrt(x)


@triton.jit
def _philox(call, seed):
    c0 = call.to(tl.uint32)
    c1 = (call >> 32).to(tl.uint32)
    c2, c3 = tl.zeros_like(c0), tl.zeros_like(c0)
    k0, k1 = seed.to(tl.uint32), (seed >> 32).to(tl.uint32)
    m0, m1 = tl.full((), _M0, tl.uint32), tl.full((), _M1, tl.uint32)
    for _ in tl.static_range(_ROUNDS):
        high0, low0 = tl.umulhi(c0, m0), c0 * m0
        high1, low1 = tl.umulhi(c2, m1), c2 * m1
        c0, c1, c2, c3 = high1 ^ c1 ^ k0, low1, high0 ^ c3 ^ k1, low0
        k0 += tl.full((), _W0, tl.uint32)
        k1 += tl.full((), _W1, tl.uint32)
    return c0, c1, c2, c3


@triton.jit
def _mantissa(word):
    """The low 23 bits as a number in [1, 2), without a conversion."""
    if ON_DEVICE:  # (a & b) | c in one instruction; the compiler makes two
        lop3: tl.constexpr = "lop3.b32 $0, $1, 0x7FFFFF, 0x3F800000, 0xEA;"
        return tl.inline_asm_elementwise(lop3, "=f,r", [word], tl.float32, is_pure=True, pack=1)
    else:
        return ((word & 0x7FFFFF) | 0x3F800000).to(tl.float32, bitcast=True)


@triton.jit
def box_muller(word):
    u = 2 - _mantissa((word >> _ROTATION) | (word << (32 - _ROTATION)))
    radius = _sqrt(_log2(u) * -1.3862943611198906)  # -2 ln 2
    a = _mantissa(word) * 2 - 3
    y = 0.5 - tl.abs(a)  # cos πa = sin πy and |sin πa| = cos πy, y in [-1/2, 1/2]
    s = y * y
    sin = 0.077659408465 * s - 0.59829215959  # to 1e-8
    sin = ((sin * s + 2.5500776597) * s - 5.1677100903) * s + 3.1415926402
    cos = 0.21969679912 * s - 1.3318801615  # to 5e-8
    cos = ((cos * s + 4.0584119142) * s - 4.9347928587) * s + 0.99999995347
    sign = a.to(tl.uint32, bitcast=True) & 0x80000000
    signed = (cos.to(tl.uint32, bitcast=True) | sign).to(tl.float32, bitcast=True)
    return radius * y * sin, radius * signed


@triton.jit
def words_of_threads(call, seed):
    """The four words of four neighbouring calls in every thread, each [threads, 4].

    Written out: Triton would give a tensor of all calls another layout than the vector loads have,
    and convert it through shared memory.
    """
    a0, a1, a2, a3 = _philox(call, seed)
    b0, b1, b2, b3 = _philox(call + 1, seed)
    c0, c1, c2, c3 = _philox(call + 2, seed)
    d0, d1, d2, d3 = _philox(call + 3, seed)
    return (
        _side_by_side(a0, b0, c0, d0),
        _side_by_side(a1, b1, c1, d1),
        _side_by_side(a2, b2, c2, d2),
        _side_by_side(a3, b3, c3, d3),
    )


@triton.jit
def _side_by_side(a, b, c, d):
    return tl.reshape(tl.join(tl.join(a, c), tl.join(b, d)), (THREADS, 4))


@triton.jit
def normal_at(index, seed):
    """The normal of every index, by a Philox call of its own."""
    call = index // BLOCK * CALLS + index % CALLS
    w0, w1, w2, w3 = _philox(call.to(tl.int64), seed)
    slot = index // CALLS % 8
    low, high = tl.where(slot < 2, w0, w1), tl.where(slot < 6, w2, w3)
    even, odd = box_muller(tl.where(slot < 4, low, high))
    return tl.where(slot % 2 == 0, even, odd)


@triton.jit
def result(x, grad, eps, lam, phi, DIFFERENCE, P0, P1, TINY, COMPUTE, BACKWARD):
    """g(x, δ), or backward grad · dg/dx."""
    floor = tl.maximum(phi.to(COMPUTE), TINY)
    eps = eps.to(COMPUTE)
    delta = lam.to(COMPUTE) * eps + copysign(floor, eps)
    value, slope = DIFFERENCE(x.to(COMPUTE), delta, P0, P1)
    return grad.to(COMPUTE) * slope if BACKWARD else value


def form(x: Tensor, name: str, parameters: Sequence[float]) -> dict[str, Any]:
    """The device function of a row or of f itself, and what :func:`result` needs beside it."""
    row = name.removeprefix(BASE)
    function = getattr(cuda_forms, row)
    if x.dtype in (torch.float16, torch.bfloat16):
        function = getattr(cuda_forms, f"{row}_half", function)  # a coarser one
    p0, p1, *_ = (*parameters, 0.0, 0.0)
    if name != row:
        function, p0, p1 = cuda_forms.base, function, tuple(parameters)
    return {
        "DIFFERENCE": function,
        "P0": p0,
        "P1": p1,
        "TINY": TINY_DELTA[compute_dtype(x)],
        "COMPUTE": tl.float64 if x.dtype == torch.float64 else tl.float32,
    }
