"""The device functions against the closed forms; without a GPU, in Triton's interpreter."""

import numpy as np
import pytest
import torch

triton = pytest.importorskip("triton")
tl = pytest.importorskip("triton.language")

from qneurons.activations import resolve, rows
from qneurons.given_delta import difference_and_slope
from qneurons.kernels import base_row, cuda_forms

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
ROWS = [
    *rows(),
    resolve("elu", alpha=0.5),
    resolve("celu", alpha=2.0),
    resolve("leaky_relu", negative_slope=0.2),
    resolve("softplus", beta=2.0),
    resolve("hardtanh", min_val=-0.5, max_val=2.0),
]
PRODUCTS = {"silu", "gelu", "gelu_tanh", "quick_gelu", "mish", "hardswish"}  # y s(y)
X = [0.0, 1e-20, 1e-4, 0.01, 0.3, 0.5, 1.0, 1.3, 2.0, 3.0, 4.5, 6.0, 9.0, 13.0, 20.0, 30.0]
DELTA = [2.0**-40, 1e-6, 1e-3, 0.03, 0.2, 0.5, 0.87, 0.999, 1.0, 1.001, 1.4, 2.0, 2.3, 3.5, 5.0]

each_row = pytest.mark.parametrize(
    "row", ROWS, ids=lambda row: "-".join([row.name, *map(str, row.parameters.values())])
)
each_dtype = pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)


@triton.jit
def kernel(
    x_ptr,
    delta_ptr,
    value_ptr,
    slope_ptr,
    n,
    function: tl.constexpr,
    p0: tl.constexpr,
    p1: tl.constexpr,
    block: tl.constexpr,
):
    i = tl.arange(0, block)
    inside = i < n
    x = tl.load(x_ptr + i, mask=inside, other=1.0)
    delta = tl.load(delta_ptr + i, mask=inside, other=1.0)
    value, slope = function(x, delta, p0, p1)
    tl.store(value_ptr + i, value, mask=inside)
    tl.store(slope_ptr + i, slope, mask=inside)


def on_device(row, x, delta, function=None, parameters=None):
    """(g, dg/dx) of a row by its device function, or another one."""
    function = function or getattr(cuda_forms, row.difference.__name__)
    parameters = parameters or [*row.parameters.values(), 0.0, 0.0][:2]
    x, delta = x.to(DEVICE), delta.to(DEVICE)
    value, slope = torch.empty_like(x), torch.empty_like(x)
    n = x.numel()
    block = triton.next_power_of_2(n)
    with np.errstate(all="ignore"):  # of the interpreter, in branches that ``where`` discards
        kernel[(1,)](x, delta, value, slope, n, function, *parameters, block)
    return value.cpu(), slope.cpu()


def points(dtype):
    """A grid with kinks, both zeros and δ around -1, and random points."""
    x, delta = torch.tensor(X, dtype=torch.float64), torch.tensor(DELTA, dtype=torch.float64)
    x, delta = torch.cartesian_prod(torch.cat([x, -x]), torch.cat([delta, -delta])).T
    generator = torch.Generator().manual_seed(3)

    def uniform(low, high, n=3000):
        return low + (high - low) * torch.rand(n, generator=generator, dtype=torch.float64)

    def signed(magnitude):
        return magnitude * torch.where(uniform(-1, 1) < 0, -1, 1)

    x = torch.cat([x, signed(10 ** uniform(-3, 1.47))])
    delta = torch.cat([delta, signed(10 ** uniform(-3, 0.7))])
    return x.to(dtype), delta.to(dtype)


def scales(row, x, delta):
    """The sizes of the terms that g and dg are sums of, as in the tests of the closed forms."""
    if row.name == "sin":  # its argument itself is rounded
        return x.abs() + 1, x.abs() + 1
    b = x * (1 + delta)
    far, near = torch.where(delta >= 0, b, x), torch.where(delta >= 0, x, b)

    def f(y):
        return row.f(y, **row.parameters)

    def factor(y):
        return torch.where(y == 0, 0.5, f(y) / torch.where(y == 0, 1.0, y))

    def rest(y):
        s = factor(y) if row.name in PRODUCTS else 0
        return row.derivative(y, **row.parameters) - s

    def terms(measure):  # of the derivative, which for a product are s(y) and y s'(y)
        return measure(rest) + (measure(factor) if row.name in PRODUCTS else 0)

    def spread(function):
        return (near * (function(b) - function(x)) / (x * delta)).nan_to_num().abs()

    value = difference_and_slope(x, delta, row)[0].abs()
    if row.name in {"hardtanh", "relu6"}:  # without a fused multiply-add x + h is rounded
        value = value + x.abs()
    if row.name in PRODUCTS:
        crossing = (f(b).abs() + f(x).abs()) / delta.abs()
        beside = x.abs() * (factor(far).abs() + spread(factor))
        value = torch.where(delta < -1, crossing, beside)
    crossing = terms(lambda function: ((1 + delta) * function(b)).abs() + function(x).abs())
    beside = terms(lambda function: function(far).abs() + spread(function))
    return value, torch.where(delta < -1, crossing / delta.abs(), beside)


def check(row, dtype, tolerance, function=None):
    """Both results of a device function within a tolerance, itself a function of (x, b)."""
    x, delta = points(dtype)
    got = on_device(row, x, delta, function)
    x, delta = x.double(), delta.double()
    expected = difference_and_slope(x, delta, row)
    allowed = tolerance(x, x * (1 + delta))
    smallest = 1e-30 if dtype == torch.float32 else 1e-290  # where a change divided by δ underflows
    for result, right, scale in zip(got, expected, scales(row, x, delta), strict=True):
        excess = (result.double() - right).abs() / (allowed * scale + smallest)
        worst = excess.nan_to_num(torch.inf).argmax()
        assert excess[worst] <= 1, (x[worst], delta[worst], result[worst], right[worst])


def test_every_closed_form_has_its_device_function():
    for row in rows():
        assert hasattr(cuda_forms, row.difference.__name__), row.name


@each_row
def test_float32_is_right_to_the_scale_of_its_terms(row):
    eps = torch.finfo(torch.float32).eps
    near = 64 if row.name.startswith("gelu") else 32

    def tolerance(x, b):  # the argument of an exponential is rounded
        return torch.where((x.abs() <= 5) & (b.abs() <= 20), near * eps, 512 * eps)

    check(row, torch.float32, tolerance)


@each_row
def test_float64_is_right_to_the_scale_of_its_terms(row):
    check(row, torch.float64, lambda x, b: torch.full_like(x, 1e-12))


@pytest.mark.parametrize("row", [row for row in ROWS if base_row(row)[0]], ids=repr)
def test_f_itself(row):
    x = torch.tensor([*X, *(-x for x in X)], requires_grad=True)
    form, numbers = getattr(cuda_forms, row.difference.__name__), tuple(base_row(row)[1])
    value, slope = on_device(row, x.detach(), x.detach(), cuda_forms.base, (form, numbers))
    wanted = row(x)
    close = {"rtol": 1e-5, "atol": 2e-6}
    torch.testing.assert_close(value, wanted, **close)
    torch.testing.assert_close(slope, *torch.autograd.grad(wanted.sum(), x), **close)


@pytest.mark.parametrize("alpha", [1.0, 0.5])
def test_the_coarse_elu_is_good_for_16_bits(alpha):
    function = cuda_forms.q_elu_half
    row = resolve("elu", alpha=alpha)
    check(row, torch.float32, lambda x, b: torch.full_like(x, 1e-4), function)


@each_row
@each_dtype
def test_zeros_infinities_and_nan(row, dtype):
    inf, nan = torch.inf, torch.nan
    x = torch.tensor([0.0, -0.0, inf, -inf, nan], dtype=dtype).repeat_interleave(4)
    delta = torch.tensor([0.5, -0.5, -1.0, -2.5], dtype=dtype).repeat(5)
    for result, right in zip(
        on_device(row, x, delta), difference_and_slope(x, delta, row), strict=True
    ):
        torch.testing.assert_close(result, right, equal_nan=True)


@each_row
def test_large_inputs_stay_finite(row):
    x = torch.tensor([-1e4, -200.0, -90.0, 90.0, 200.0, 1e4]).repeat_interleave(7)
    delta = torch.tensor([-50.0, -1.0, -0.999, -1e-3, 1e-3, 0.5, 50.0]).repeat(6)
    got = on_device(row, x, delta)
    expected = difference_and_slope(x.double(), delta.double(), row)
    for result, right in zip(got, expected, strict=True):
        assert result.isfinite().all()
        if row.name != "sin":  # which has lost its argument
            torch.testing.assert_close(result.double(), right, rtol=1e-3, atol=1e-5)
