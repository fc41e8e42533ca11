"""Draws at ±inf, NaN and huge x, of every backend, build and dtype: the limits of g and dg/dx."""

import math

import pytest
import torch

from qneurons.activations import Activation, resolve, rows
from qneurons.closed_forms import SELU_ALPHA, SELU_SCALE
from qneurons.kernels import kernel_row, plain
from qneurons.noise import seeded_delta
from tests.kernels.conftest import find_build
from tests.kernels.test_cpu import available_builds

# numpy's, in Triton's interpreter
pytestmark = pytest.mark.filterwarnings("ignore:.* encountered:RuntimeWarning")

DTYPES = [torch.float32, torch.float64, torch.float16, torch.bfloat16]
NAN, INF = math.nan, math.inf
X = (INF, 1e37, 3e19, 1e12, 1e6, 1e5)

RELU = (0.0, 0.0), 0.0, (1.0, 0.0)
LINES = {  # f far below zero, as slope and constant; f(0); f far above zero
    "sigmoid": ((0, 0), 0.5, (0, 1)),
    "tanh": ((0, -1), 0, (0, 1)),
    "elu": ((0, -1), 0, (1, 0)),
    "selu": ((0, -SELU_SCALE * SELU_ALPHA), 0, (SELU_SCALE, 0)),
    "celu": ((0, -1), 0, (1, 0)),
    "softplus": ((0, 0), math.log(2), (1, 0)),
    "hardtanh": ((0, -1), 0, (0, 1)),
    "relu6": ((0, 0), 0, (0, 6)),
    "hardsigmoid": ((0, 0), 0.5, (0, 1)),
    "softsign": ((0, -1), 0, (0, 1)),
    "identity": ((1, 0), 0, (1, 0)),
    **dict.fromkeys(("relu", "silu", "gelu", "gelu_tanh", "quick_gelu", "mish", "hardswish"), RELU),
}
ROWS = {row.name: row for row in rows()} | {
    f"leaky_relu {slope}": resolve("leaky_relu", negative_slope=slope)
    for slope in (-0.5, 0.0, 1.0, 1e10)
}


def limits(row: Activation, x: float, delta: float) -> tuple[float, float]:
    """g and dg/dx far from zero, where f is a straight line."""
    name, leaky = row.name, (row.parameters.get("negative_slope"), 0)
    if math.isnan(x) or (name == "sin" and math.isinf(x)):
        return NAN, 1.0 if name == "identity" else NAN
    q = 1 + delta
    if name == "relu2":
        factor = 2 + delta if q >= 0 else (-1 if x > 0 else q * q) / delta
        y = x if q < 0 else max(x, 0.0)
        return factor * y * y, 2 * factor * y
    if name == "softsign" and math.isfinite(x):  # it comes near to its lines too slowly
        at_x, at_b = 1 / (1 + abs(x)), 1 / (1 + abs(q * x))
        return (q * x * at_b - x * at_x) / delta, (q * at_b**2 - at_x**2) / delta
    below, middle, above = (leaky, *RELU[1:]) if name == "leaky_relu" else LINES[name]
    x_slope, x_constant = above if x > 0 else below
    b_slope, b_constant = (0, middle) if q == 0 else above if (x > 0) == (q > 0) else below
    slope = (q * b_slope - x_slope) / delta
    return (slope * x if slope else 0.0) + (b_constant - x_constant) / delta, slope


@pytest.fixture(params=["plain", "cuda", *available_builds()])
def backend(request, monkeypatch):
    return find_build(request.param, monkeypatch)


CASES = [(torch.float32, 1.0), *((dtype, 0.0) for dtype in DTYPES)]


@pytest.mark.parametrize(("dtype", "phi"), CASES, ids=str)
@pytest.mark.parametrize("row", ROWS.values(), ids=ROWS)
def test_far_from_zero_g_and_its_slope_have_their_limits(backend, row, dtype, phi):
    if not backend.supports(dtype, f"q_{row.name}"):
        pytest.skip(f"{dtype} is served by plain torch")
    points = [sign * y for y in X for sign in (1, -1) if y < torch.finfo(dtype).max or y == INF]
    x = torch.tensor([NAN, *points], dtype=dtype, device=backend.device).repeat(2, 12)
    if row.name == "sin":  # beyond 1e7 its argument is lost
        x = x[~x.isfinite()].view(2, -1)
    seed, lam, phi = torch.tensor([5, 6]), torch.tensor([1.0, 0.02 - 0.02 * phi]), [phi]
    law = (*(torch.as_tensor(each, device=x.device) for each in (seed, lam, phi)), x.shape[1])
    x = x.t().contiguous().t()  # takes a fifth of the time in Triton's interpreter
    wide = torch.zeros_like(x, dtype=torch.float64 if dtype == torch.float64 else torch.float32)
    if backend is plain:
        delta = seeded_delta(x.shape, *law, dtype=wide.dtype)
    else:  # whose noise rounds otherwise
        delta = backend.forward(wide, *law, "q_delta", [])
    value = backend.forward(x, *law, *kernel_row(row))
    slope = backend.backward(torch.full_like(x, 2), x, *law, *kernel_row(row)) / 2
    pairs = zip(x.flatten().tolist(), delta.flatten().tolist(), strict=True)
    expected = torch.tensor([limits(row, *pair) for pair in pairs], dtype=torch.float64)
    close = {"rtol": max(2e-5, torch.finfo(dtype).eps), "atol": 5e-5, "equal_nan": True}
    for got, want in zip((value, slope), expected.unbind(1), strict=True):
        torch.testing.assert_close(got.cpu().flatten(), want.to(dtype), **close)
