"""Tables of means: their error, their gradient, where quadrature is used instead."""

import itertools
import math

import pytest
import torch

from qneurons import kernels, mean_table, moments, q_mean
from qneurons.activations import Activation, resolve, rows

ROWS = [
    *(row for row in rows() if row.name != "sin"),
    resolve("softplus", beta=20.0),
    resolve("leaky_relu", negative_slope=-2.0),
    resolve("hardtanh", min_val=-0.01, max_val=5.0),
]
LAWS = list(itertools.product([0.02, 0.1, 0.5, 1.0, 5.0, 9.0], [0.0, 1e-3]))
# All pairs for all rows take a minute, so each row has one pair, and neighbours differ in it.
CASES = [(row, *LAWS[5 * i % 12]) for i, row in enumerate(ROWS)]


def inputs(row, phi):
    """Up to 50, close to zero, and close to where the mean bends near a kink."""
    small = torch.logspace(-12, 0, 25)
    kinks = [kink for kink in row.kinks(**row.parameters) if kink]
    near = [point * (1 + s * small) for k in kinks for point in (k, k / (1 + phi)) for s in (1, -1)]
    return torch.cat([torch.linspace(-50, 50, 101), small, -small, *near, torch.tensor(kinks)])


def gradient(value, x, **options):
    return torch.autograd.grad(value.sum(), x, **options)[0]


def scale(x, exact, row):
    steepest = row.derivative(torch.linspace(-50, 50, 101), **row.parameters).abs().max()
    size = torch.maximum(exact.abs(), x.abs().clamp(max=1) * steepest)
    return size.clamp(min=mean_table.BOUND)


# --- accuracy -------------------------------------------------------------------------------------


@pytest.mark.parametrize(("row", "lam", "phi"), CASES, ids=str)
def test_error_is_within_the_bound(row, lam, phi):
    x, kinks = inputs(row, phi).requires_grad_(), row.kinks(**row.parameters)
    table = mean_table.find(row, lam, phi)
    assert table is not None
    found = mean_table.mean(x, row, lam, phi, table)
    exact = moments.mean(x.detach().double(), row, lam, phi)
    error = (found - exact).abs() / scale(x, exact, row)
    assert error.max() <= mean_table.BOUND, x[error.argmax()]

    # Next to a kink, the gradient of quadrature itself is off.
    wide = x.detach().double().requires_grad_()
    slope, exact = gradient(found, x), gradient(q_mean(wide, row, lam, phi), wide)
    is_far = torch.stack([(x - kink).abs() > abs(kink) / 100 for kink in (0.0, *kinks)]).all(0)
    error = (slope - exact).abs()[is_far]
    assert error.max() <= 3e-5 * exact.abs().max(), x[is_far][error.argmax()]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_half_precision_is_rounded_once(dtype):
    row, x = resolve("gelu"), torch.linspace(-9, 9, 501).to(dtype)
    found = mean_table.mean(x, row, 0.5, 1e-3, mean_table.find(row, 0.5, 1e-3))
    assert found.dtype == dtype
    exact = q_mean(x.double(), row, 0.5)
    unit = torch.finfo(dtype).eps / 2
    assert ((found.double() - exact).abs() <= (unit + 1e-6) * exact.abs() + 1e-6).all()


@pytest.mark.parametrize("name", ["relu", "tanh", "elu", "hardtanh"])
def test_beyond_the_last_piece_the_mean_is_a_straight_line(name):
    row, x = resolve(name), torch.tensor([1e5, -1e5, 1e8, -1e8, 1e15, -1e15, 1e30, -1e30])
    for lam in (0.1, 9.0):
        pieces, centres = mean_table.build(row, [lam], 1e-3, x.device)
        found = mean_table.look_up(x, (pieces.float(), centres.float()))
        exact = moments.mean(x.double(), row, lam)
        torch.testing.assert_close(found.double(), exact, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("lam", [0.1, 5.0])
@pytest.mark.parametrize("name", ["relu", "tanh", "selu", "silu", "hardtanh"])
def test_infinity_has_the_limit_and_nan_stays(name, lam):
    """By the table in both forms, by quadrature, and in the gradient."""
    x, row = torch.tensor([math.nan, math.inf, -math.inf, 0.0], requires_grad=True), resolve(name)
    table = mean_table.find(row, lam, 1e-3)
    far = q_mean(x.detach().double().clamp(-1e15, 1e15), row, lam)
    expected = torch.where(far.abs() > 1e9, far * math.inf, far).float()
    found = [mean_table._look_up(x, *table), q_mean(x, row, lam)]
    for got in (mean_table.look_up(x.detach(), table), *found):
        torch.testing.assert_close(got, expected, rtol=1e-5, atol=1e-5, equal_nan=True)
    slopes = [torch.autograd.grad(each.sum(), x)[0][1:3] for each in found]
    torch.testing.assert_close(*slopes, rtol=1e-5, atol=1e-5)
    expected = torch.where(x.isinf(), far / 1e15 * x.sign(), 0.0)[1:3].float()
    torch.testing.assert_close(slopes[0], expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", ["gelu", "selu", "hardswish", "leaky_relu", "relu2"])
def test_kernel_and_plain_torch_agree(name):
    if isinstance(kernels.load("cpu"), str):
        pytest.skip(kernels.load("cpu"))
    table = mean_table.find(resolve(name), 0.3, 1e-3)
    x = torch.cat([inputs(resolve(name), 1e-3), torch.tensor([1e-42, -1e-42, 1e30])])
    for part in (x, x[:0], x[:1], x.expand(40, -1)):
        expected = mean_table._look_up(part, *table)
        torch.testing.assert_close(mean_table.look_up(part, table), expected, rtol=5e-7, atol=1e-9)


def test_threads_share_the_work():
    before, table = torch.get_num_threads(), mean_table.find(resolve("gelu"), 0.3, 1e-3)
    x = torch.linspace(-50, 50, 2**15 + 77)
    try:
        found = [torch.set_num_threads(num) or mean_table.look_up(x, table) for num in (1, 2, 3)]
    finally:
        torch.set_num_threads(before)
    assert torch.equal(found[0], found[1])
    assert torch.equal(found[0], found[2])
    torch.testing.assert_close(found[0], mean_table._look_up(x, *table), rtol=5e-7, atol=1e-9)


def test_several_tables():
    row, lams = resolve("relu6"), [0.02, 0.1, 9.0]
    pieces, centres = mean_table.build(row, lams, 1e-3, torch.device("cpu"))
    x = torch.linspace(-9, 9, 700).view(1, 7, 100).expand(3, -1, -1).contiguous()
    expected = [mean_table.look_up(x[0], mean_table.find(row, lam, 1e-3)) for lam in lams]
    wide = mean_table.look_up(x.double(), (pieces, centres))
    torch.testing.assert_close(wide.float(), torch.stack(expected), rtol=1e-6, atol=1e-6)
    narrow = (pieces.float(), centres.float())
    assert torch.equal(mean_table.look_up(x, narrow), torch.stack(expected))


@pytest.mark.parametrize("name", ["relu", "leaky_relu", "identity", "relu2"])
def test_a_power_on_each_side_of_zero_has_two_pieces(name):
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.double)
    try:
        table = mean_table.find(resolve(name), 1.0, 1e-3)
    finally:
        torch.set_default_dtype(before)
    assert table[0].shape == (5, 1, 2)
    assert {part.dtype for part in table} == {torch.float32}


# --- where there is no table ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("activation", "lam"),
    [
        ("sin", 0.1),
        (lambda x: x * x, 0.1),
        (torch.nn.PReLU(), 0.1),
        ("hardtanh", 0.0),
    ],
    ids=["sin", "callable", "module", "jump"],
)
def test_rows_without_a_table(activation, lam):
    row, x = resolve(activation), torch.linspace(-3, 3, 7)
    assert mean_table.find(row, lam, 0.0) is None
    assert torch.equal(mean_table.mean(x, row, lam, 0.0, None), q_mean(x, row, lam, 0.0))


def test_a_row_whose_table_would_miss_the_bound_has_none():
    """A closed form of one's own that bends sharply far from zero."""

    def difference(x, delta, with_slope):
        return (f(x + delta * x) - f(x)) / delta, None

    def f(x):
        return torch.sigmoid(900 * (x - 9))

    row = Activation("steep", f, lambda x: 900 * f(x) * (1 - f(x)), difference)
    assert mean_table.find(row, 0.01, 0.1) is None


def test_float64_takes_quadrature():
    row, x = resolve("tanh"), torch.linspace(-3, 3, 7, dtype=torch.float64)
    table = mean_table.find(row, 0.5, 1e-3)
    assert torch.equal(mean_table.mean(x, row, 0.5, 1e-3, table), q_mean(x, row, 0.5, 1e-3))


# --- derivatives ----------------------------------------------------------------------------------


def test_further_derivatives_are_those_of_quadrature():
    row, x = resolve("softplus"), torch.linspace(-3, 3, 9, requires_grad=True)
    table = mean_table.find(row, 0.1, 1e-3)

    def third(value):
        for _ in range(2):
            value = gradient(value, x, create_graph=True)
        return gradient(value, x)

    expected = third(q_mean(x, row, 0.1))
    assert torch.equal(third(mean_table.mean(x, row, 0.1, 1e-3, table)), expected)
    assert expected.abs().max() > 0.01


def test_transforms_take_quadrature():
    row, x = resolve("tanh"), torch.linspace(-3, 3, 3)
    table = mean_table.find(row, 0.1, 1e-3)
    for transform in (torch.vmap, torch.func.jacrev):
        found = transform(lambda x: mean_table.mean(x, row, 0.1, 1e-3, table))(x)
        assert torch.equal(found, transform(lambda x: q_mean(x, row, 0.1))(x))


# --- building -------------------------------------------------------------------------------------


def test_a_table_is_built_once(monkeypatch):
    first = mean_table.find(resolve("celu", alpha=2.0), 0.123, 1e-3)
    monkeypatch.setattr(mean_table, "build", None)
    assert mean_table.find(resolve("celu", alpha=2.0), 0.123, 1e-3) is first


def test_parameters_belong_to_the_table():
    x = torch.tensor([-1.0])
    tables = [mean_table.find(resolve("elu", alpha=a), 0.3, 1e-3) for a in (0.5, 1.0)]
    half, whole = (mean_table.look_up(x, table) for table in tables)
    torch.testing.assert_close(2 * half, whole, rtol=0.1, atol=0)
    assert not torch.equal(half, whole)
