"""The closed forms against mpmath: g and its slope, all rows, tails, tiny and large δ."""

import math
from collections.abc import Callable
from typing import NamedTuple

import mpmath as mp
import pytest
import torch

from qneurons.activations import resolve, rows
from qneurons.closed_forms import GELU_TANH_CUBIC, QUICK_GELU_SCALE, SELU_ALPHA, SELU_SCALE
from qneurons.functional import q_difference
from qneurons.given_delta import difference, difference_and_slope

DIGITS = 130  # tanh(50) differs from 1 in the 44th digit, and δ goes down to 1e-12
POINTS = 240


class Exact(NamedTuple):
    """f, f' and, for a product y s(y), the factor s, all in mpmath."""

    f: Callable
    derivative: Callable
    factor: Callable | None = None


def sigma(y):
    return 1 / (1 + mp.exp(-y))


def softplus(y):
    return mp.log1p(mp.exp(-abs(y))) + max(y, 0)


def step(y):
    return mp.mpf(y >= 0)


def elu(y, alpha=1):
    return y if y >= 0 else alpha * mp.expm1(y)


def elu_derivative(y, alpha=1):
    return mp.mpf(1) if y >= 0 else alpha * mp.exp(y)


def normal_cdf(y):
    return mp.erfc(-y / mp.sqrt(2)) / 2


def gelu_tanh_argument(y):
    return 2 * mp.sqrt(2 / mp.pi) * y * (1 + mp.mpf(GELU_TANH_CUBIC) * y * y)


def gelu_tanh_derivative(y):
    v = gelu_tanh_argument(y)
    dv = 2 * mp.sqrt(2 / mp.pi) * (1 + 3 * mp.mpf(GELU_TANH_CUBIC) * y * y)
    return sigma(v) + y * dv * sigma(v) * sigma(-v)


def mish_gate(y):
    return mp.tanh(softplus(y))


def mish_derivative(y):
    e = mp.exp(y)
    return mish_gate(y) + y * 4 * e * (e + 1) / ((e + 1) ** 2 + 1) ** 2


QUICK = mp.mpf(QUICK_GELU_SCALE)


def clip(low, high):
    return Exact(lambda y: min(max(y, low), high), lambda y: mp.mpf(low <= y < high))


def hardswish(y):
    return y * min(max(y + 3, 0), 6) / 6


def hardswish_derivative(y):
    return mp.mpf(0) if y < -3 else mp.mpf(1) if y >= 3 else (2 * y + 3) / 6


EXACT = {
    "sigmoid": Exact(sigma, lambda y: sigma(y) * sigma(-y)),
    "tanh": Exact(mp.tanh, lambda y: 4 * sigma(2 * y) * sigma(-2 * y)),
    "relu": Exact(lambda y: max(y, 0), step),
    "relu2": Exact(lambda y: max(y, 0) ** 2, lambda y: 2 * max(y, 0)),
    "leaky_relu": Exact(
        lambda y: y if y >= 0 else mp.mpf(0.01) * y,
        lambda y: mp.mpf(1) if y >= 0 else mp.mpf(0.01),
    ),
    "elu": Exact(elu, elu_derivative),
    "selu": Exact(
        lambda y: SELU_SCALE * elu(y, mp.mpf(SELU_ALPHA)),
        lambda y: SELU_SCALE * elu_derivative(y, mp.mpf(SELU_ALPHA)),
    ),
    "celu": Exact(elu, elu_derivative),
    "softplus": Exact(softplus, sigma),
    "silu": Exact(lambda y: y * sigma(y), lambda y: sigma(y) + y * sigma(y) * sigma(-y), sigma),
    "gelu": Exact(
        lambda y: y * normal_cdf(y), lambda y: normal_cdf(y) + y * mp.npdf(y), normal_cdf
    ),
    "gelu_tanh": Exact(
        lambda y: y * sigma(gelu_tanh_argument(y)),
        gelu_tanh_derivative,
        lambda y: sigma(gelu_tanh_argument(y)),
    ),
    "quick_gelu": Exact(
        lambda y: y * sigma(QUICK * y),
        lambda y: sigma(QUICK * y) + QUICK * y * sigma(QUICK * y) * sigma(-QUICK * y),
        lambda y: sigma(QUICK * y),
    ),
    "mish": Exact(lambda y: y * mish_gate(y), mish_derivative, mish_gate),
    "hardtanh": clip(-1, 1),
    "relu6": clip(0, 6),
    "hardsigmoid": Exact(
        lambda y: min(max(y + 3, 0), 6) / mp.mpf(6), lambda y: mp.mpf(-3 <= y < 3) / 6
    ),
    "hardswish": Exact(
        hardswish, hardswish_derivative, lambda y: min(max(y + 3, 0), 6) / mp.mpf(6)
    ),
    "softsign": Exact(lambda y: y / (1 + abs(y)), lambda y: 1 / (1 + abs(y)) ** 2),
    "sin": Exact(mp.sin, mp.cos),
    "identity": Exact(lambda y: y, lambda y: mp.mpf(1)),
}


def exact(functions: Exact, x: float, delta: float):
    """g and dg, and the scale of the terms that each is the sum of."""
    f, derivative, factor = functions
    x, delta = mp.mpf(x), mp.mpf(delta)
    b = x * (1 + delta)
    if delta == 0:
        h = mp.mpf(10) ** -60
        b, delta = x * (1 + h), h
    g = (f(b) - f(x)) / delta
    slope = ((1 + delta) * derivative(b) - derivative(x)) / delta
    if delta < -1:
        scale = abs(g) if f is softplus else (abs(f(b)) + abs(f(x))) / abs(delta)
        slope_scale = (abs((1 + delta) * derivative(b)) + abs(derivative(x))) / abs(delta)
        return g, slope, scale, slope_scale
    far, near = (b, x) if delta >= 0 else (x, b)

    def spread(function):
        return abs(near * (function(b) - function(x)) / (b - x)) if b != x else 0

    scale = abs(g) if factor is None else abs(x) * (abs(factor(far)) + spread(factor))
    return g, slope, scale, abs(derivative(far)) + spread(derivative)


def points(dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    """|x| ≤ 50 and 1e-12 ≤ |δ| ≤ 50, with a crowd around δ = -1 and a few δ = 0."""
    generator = torch.Generator().manual_seed(7)

    def uniform(low, high, n=POINTS):
        return low + (high - low) * torch.rand(n, generator=generator, dtype=torch.float64)

    x = torch.randn(POINTS, generator=generator, dtype=torch.float64) * 2
    x[::4] = uniform(-50, 50)[::4]
    x[1::4] *= 10 ** uniform(-4, 0)[1::4]
    delta = 10 ** uniform(-12, math.log10(50))
    delta[::3] = torch.randn(POINTS, generator=generator, dtype=torch.float64).abs()[::3] + 1e-3
    delta[1::5] = 1 + uniform(-0.5, 0.5)[1::5] * 10 ** uniform(-4, 0)[1::5]
    delta *= torch.where(uniform(0, 1) < 0.5, -1, 1)
    delta[::40] = 0
    return x.to(dtype), delta.to(dtype)


def evaluate(x, delta, row):
    x = x.clone().requires_grad_()
    value = q_difference(x, delta, row)
    (slope,) = torch.autograd.grad(value.sum(), x)
    return value.detach(), slope


def test_every_row_has_an_exact_counterpart():
    assert {row.name for row in rows()} == set(EXACT)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("name", EXACT)
def test_value_and_slope_are_right_to_the_scale_of_their_terms(name, dtype):
    eps, tiny = torch.finfo(dtype).eps, torch.finfo(dtype).tiny
    x, delta = points(dtype)
    values, slopes = evaluate(x, delta, name)
    with mp.workdps(DIGITS):
        for xi, di, value, slope in zip(
            x.tolist(), delta.tolist(), values.tolist(), slopes.tolist(), strict=True
        ):
            g, dg, scale, slope_scale = exact(EXACT[name], xi, di)
            if dtype == torch.float64:
                tolerance = 1e-12
            elif abs(xi) <= 5 and abs(xi * (1 + di)) <= 20:
                tolerance = 32 * eps
            else:
                tolerance = 256 * eps
            if name == "sin":  # its argument itself is rounded
                tolerance, scale = (1e-12 if dtype == torch.float64 else 1e-3), abs(mp.mpf(xi)) + 1
                slope_scale = scale
            assert abs(value - g) <= tolerance * scale + tiny, (xi, di)
            assert abs(slope - dg) <= tolerance * slope_scale + tiny, (xi, di)


@pytest.mark.parametrize("name", EXACT)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_half_precision_is_the_exact_value_rounded(name, dtype):
    x, delta = points(torch.float64)
    x, delta = x.clamp(-8, 8).to(dtype), delta.float()
    values, slopes = evaluate(x, delta, name)
    expected, expected_slopes = difference_and_slope(
        x.double(), torch.where(delta == 0, 2.0**-100, delta.double()), resolve(name)
    )
    for got, exact_value in ((values, expected), (slopes, expected_slopes)):
        ulp = torch.finfo(dtype).eps * exact_value.abs().clamp(min=torch.finfo(dtype).tiny)
        slack = 1e-5 * (1 + x.double().abs())  # float32 inside, next to a change of sign
        assert ((got.double() - exact_value).abs() <= ulp + slack).all()


@pytest.mark.parametrize("name", EXACT)
def test_large_inputs_stay_finite(name):
    x = torch.tensor([-1e4, -200.0, -90.0, 90.0, 200.0, 1e4]).repeat_interleave(7)
    delta = torch.tensor([-50.0, -1.0, -0.999, -1e-3, 1e-3, 0.5, 50.0]).repeat(6)
    value, slope = difference_and_slope(x, delta, resolve(name))
    assert value.isfinite().all()
    assert slope.isfinite().all()


def test_value_without_slope_is_the_same_value():
    x, delta = points(torch.float32)
    delta[delta == 0] = 1e-3
    for row in rows():
        both, _ = difference_and_slope(x, delta, row)
        assert torch.equal(difference(x, delta, row), both)


def test_kinks_are_met_exactly():
    """At x = 3 and δ = -1e-12 the point b rounds to 3 in float32, yet lies below it."""
    three = torch.full((2,), 3.0)
    delta = torch.tensor([-1e-12, 1e-12])
    _, slope = difference_and_slope(three, delta, resolve("hardswish"))
    torch.testing.assert_close(slope, torch.tensor([1 - 0.5e12, 1.0]))
    value, _ = difference_and_slope(three, delta, resolve("hardtanh", min_val=-3.0, max_val=3.0))
    torch.testing.assert_close(value, torch.tensor([3.0, 0.0]))


@pytest.mark.parametrize(
    ("name", "parameters", "base"),
    [
        ("elu", {"alpha": 0.5}, lambda x: 0.5 * torch.expm1(x.clamp(max=0)) + x.clamp(min=0)),
        (
            "celu",
            {"alpha": 0.3},
            lambda x: 0.3 * torch.expm1(x.clamp(max=0) / 0.3) + x.clamp(min=0),
        ),
        ("softplus", {"beta": 2.5}, lambda x: torch.log1p(torch.exp(2.5 * x)) / 2.5),
        ("leaky_relu", {"negative_slope": 0.2}, lambda x: torch.where(x < 0, 0.2 * x, x)),
        ("hardtanh", {"min_val": -0.5, "max_val": 2.0}, lambda x: x.clamp(-0.5, 2.0)),
    ],
)
def test_parameters_enter_value_and_slope(name, parameters, base):
    x, delta = points(torch.float64)
    x, delta = x.clamp(-5, 5).requires_grad_(), torch.where(delta.abs() < 0.1, 0.3, delta)
    expected = (base(x * (1 + delta)) - base(x)) / delta
    (expected_slope,) = torch.autograd.grad(expected.sum(), x)
    value, slope = difference_and_slope(x.detach(), delta, resolve(name, **parameters))
    torch.testing.assert_close(value, expected.detach(), rtol=1e-9, atol=1e-10)
    torch.testing.assert_close(slope, expected_slope, rtol=1e-9, atol=1e-10)
