"""f'(x)x and its slope, of every backend and build: against mpmath, at kinks and at infinity."""

import functools
import math

import mpmath as mp
import pytest
import torch
from torch.fx.experimental.proxy_tensor import make_fx

from qneurons import q_limit
from qneurons.activations import resolve, rows
from qneurons.kernels import kernel_row, plain
from tests.kernels.conftest import find_backend, find_build
from tests.kernels.test_cpu import available_builds
from tests.test_closed_forms import DIGITS, EXACT, exact

# numpy's, in Triton's interpreter
pytestmark = pytest.mark.filterwarnings(
    "ignore:(overflow|invalid value) encountered:RuntimeWarning"
)

DTYPES = [torch.float64, torch.float32, torch.bfloat16, torch.float16]
each_row = pytest.mark.parametrize("row", rows(), ids=lambda row: row.name)


@pytest.fixture(params=["plain", "cuda", *available_builds()])
def backend(request, monkeypatch):
    return find_build(request.param, monkeypatch)


def value_and_slope(backend, x, row):
    kernel = kernel_row(row)
    if not backend.supports(x.dtype, kernel[0]):
        pytest.skip(f"{x.dtype} is served by plain torch")
    x = x.to(backend.device)
    grad = torch.full_like(x, 2)
    return backend.limit(x, *kernel).cpu(), backend.limit_backward(grad, x, *kernel).cpu() / 2


@functools.cache
def points(dtype):
    generator = torch.Generator().manual_seed(3)
    x = 2 * torch.randn(80, generator=generator)
    x[::4] *= 10 ** (-4 * torch.rand(20, generator=generator))
    return torch.cat([x, torch.linspace(-50, 50, 22)]).to(dtype)


@functools.cache
def expected(name, dtype):
    """The exact value and slope, and the sizes of the terms that each is the sum of."""
    with mp.workdps(DIGITS):
        return torch.tensor(
            [[float(part) for part in exact(EXACT[name], x, 0)] for x in points(dtype).tolist()],
            dtype=torch.float64,
        ).unbind(1)


def assert_accurate(backend, row, dtype):
    x = points(dtype)
    value, slope, *sizes = expected(row.name, dtype)
    eps = torch.finfo(torch.float32).eps
    precision = torch.where(x.abs() <= 5, 32 * eps, 256 * eps).double()
    if row.name == "sin":  # its argument itself is rounded
        precision, sizes = torch.full_like(precision, 1e-3 / 32), [x.double().abs() + 1] * 2
    if dtype == torch.float64:
        precision = torch.full_like(precision, 1e-12)
    ulp = torch.finfo(dtype).eps if dtype in DTYPES[2:] else 0.0
    for got, want, size in zip(
        value_and_slope(backend, x, row), (value, slope), sizes, strict=True
    ):
        # exp is 0 once it is below the normal numbers, and is multiplied by up to 4 |x|.
        smallest = max(torch.finfo(dtype).tiny, 200 * torch.finfo(torch.float32).tiny)
        allowed = precision * size + ulp * want.abs() + smallest
        error = (got.double() - want).abs()
        assert (error <= allowed).all(), (x[error > allowed], got[error > allowed])


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@each_row
def test_every_row_is_as_accurate_as_promised(backend, row, dtype):
    assert_accurate(backend, row, dtype)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_the_form_of_gelu_that_is_compiled_is_as_accurate(dtype, monkeypatch):
    monkeypatch.setattr(torch.compiler, "is_compiling", lambda: True)
    assert_accurate(find_backend("plain"), resolve("gelu"), dtype)


@each_row
def test_what_is_compiled_has_vector_code_on_a_cpu(row, monkeypatch):
    monkeypatch.setattr(torch.compiler, "is_compiling", lambda: True)
    graph = make_fx(lambda grad, x: plain.limit_backward(grad, x, *kernel_row(row)))
    code = graph(*torch.randn(2, 8)).code
    assert "isnan" not in code
    assert "erfc" not in code


@each_row
def test_a_kink_has_its_right_derivative(backend, row):
    x = torch.tensor([0.0, *row.kinks(**row.parameters)])
    derivative = torch.tensor([float(EXACT[row.name].derivative(y)) for y in x.tolist()])
    above = value_and_slope(backend, torch.nextafter(x, torch.tensor(math.inf)), row)
    for got, want, beside in zip(
        value_and_slope(backend, x, row), (derivative * x, None), above, strict=True
    ):
        torch.testing.assert_close(got, beside if want is None else want, rtol=1e-6, atol=1e-6)


@each_row
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_autograd_finds_the_slope(row, dtype):
    """Also at zero and at kinks: it differentiates exported programs."""
    x = torch.tensor([-3.0, -2.0, -1.0, -1e-30, -0.0, 0.0, 1e-30, 1.0, 3.0, 6.0], dtype=dtype)
    for scale in (1.0, 1.5):
        name, parameters = kernel_row(row)
        parameters = [scale * value for value in parameters]
        leaf = x.clone().requires_grad_()
        (slope,) = torch.autograd.grad(plain.limit(leaf, name, parameters).sum(), leaf)
        want = plain.limit_backward(torch.ones_like(x), x, name, parameters)
        torch.testing.assert_close(slope, want)


@each_row
def test_infinity_has_the_limit_where_there_is_one(backend, row):
    inf = torch.tensor([math.inf, -math.inf])
    value, slope = value_and_slope(backend, inf, row)
    if row.name == "sin":
        assert value.isnan().all()
        assert slope.isnan().all()
        return
    with mp.workdps(DIGITS):
        far, slopes, *_ = zip(*(exact(EXACT[row.name], x, 0) for x in (1e30, -1e30)), strict=True)
    grows = torch.tensor([float(abs(y)) for y in far]) > 1e20
    torch.testing.assert_close(value, torch.where(grows, inf, 0.0))
    expected = torch.tensor([float(y) for y in slopes])
    expected = torch.where(expected > 1e20, inf, expected)  # of relu2
    torch.testing.assert_close(slope, expected, rtol=0, atol=1e-6)


def test_a_slope_of_zero_has_the_limit_zero_at_minus_infinity(backend):
    row = resolve("leaky_relu", negative_slope=0.0)
    for result in value_and_slope(backend, torch.tensor([-math.inf]), row):
        assert result.item() == 0


@each_row
def test_nan_stays_nan_and_alone(backend, row):
    x = torch.full((3000,), 0.01)
    x[2000] = math.nan
    value, slope = value_and_slope(backend, x, row)
    assert torch.equal(value.isnan(), x.isnan())
    # The identity's gradient does not read x.
    assert torch.equal(slope.isnan(), x.isnan() & (row.name != "identity"))


@each_row
def test_huge_inputs_stay_finite(backend, row):
    x = torch.tensor([-1e38, -1e20, -1e4, 1e4, 1e20, 1e38])
    value, slope = value_and_slope(backend, x, resolve(row))
    scale = 1.0508  # of selu
    if row.name == "relu2":  # which grows as x²
        assert torch.equal(value, 2 * x.relu() ** 2)
    else:
        assert (value.abs() <= scale * x.abs()).all()
        assert slope.isfinite().all()


PARAMETERS = {
    "elu": {"alpha": 0.5},
    "celu": {"alpha": 0.3},
    "softplus": {"beta": 2.5},
    "leaky_relu": {"negative_slope": 0.2},
    "hardtanh": {"min_val": -0.5, "max_val": 2.0},
}


@pytest.mark.parametrize("name", PARAMETERS)
def test_parameters_enter(backend, name):
    row, x = resolve(name, **PARAMETERS[name]), points(torch.float32)
    wide = x.double().requires_grad_()
    limit = wide * row.derivative(wide, **row.parameters)
    (want,) = torch.autograd.grad(limit.sum(), wide)
    value, slope = value_and_slope(backend, x, row)
    torch.testing.assert_close(value.double(), limit.detach(), rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(slope.double(), want, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@each_row
def test_plain_torch_keeps_the_layout(row, dtype):
    x = torch.randn(2, 3, 4, 5, dtype=dtype).to(memory_format=torch.channels_last)
    plain, kernel = find_backend("plain"), kernel_row(row)
    assert plain.limit(x, *kernel).stride() == x.stride()
    assert plain.limit_backward(x.contiguous(), x, *kernel).stride() == x.stride()


def test_a_steep_softplus_does_not_overflow(backend):
    value, slope = value_and_slope(backend, torch.tensor([3e38]), resolve("softplus", beta=1e4))
    assert (value, slope) == (torch.tensor([3e38]), torch.tensor([1.0]))


def test_the_limit_of_softplus_is_silu():
    x = points(torch.float32)
    torch.testing.assert_close(q_limit(x, "softplus"), torch.nn.functional.silu(x))
