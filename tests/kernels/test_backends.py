"""What every backend must do: draw and compute as plain torch does, in any dtype and any layout."""

import itertools

import pytest
import torch

from qneurons import noise
from qneurons.activations import resolve, rows
from qneurons.kernels import kernel_row, plain

# numpy's, in Triton's interpreter
pytestmark = pytest.mark.filterwarnings(
    "ignore:(overflow|invalid value) encountered:RuntimeWarning"
)

ROWS = [row for row in rows() if row.difference is not None]
DTYPES = [torch.float16, torch.bfloat16, torch.float32, torch.float64]
SEED = 0x123456789ABCDEF


def law(backend, groups: int = 1, phi: float = 1e-3):
    device = backend.device
    seed = SEED + torch.arange(groups, device=device)
    lam = torch.linspace(0.7, 0.1, groups, device=device)
    return seed, lam, torch.tensor([phi], device=device)


def randn(backend, *shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    generator = torch.Generator().manual_seed(0)
    return (2 * torch.randn(shape, generator=generator)).to(backend.device, dtype)


def grad_of(x: torch.Tensor) -> torch.Tensor:
    return torch.ones_like(x) + x.abs()


def check(backend, x: torch.Tensor, inner: int, *, groups: int = 1, row=None):
    """Draw, limit and their gradients lie within the rounding of the dtype of plain torch.

    Returns the draw and its gradient.
    """
    row = row or resolve("elu")
    arguments = (*law(backend, groups), inner, *kernel_row(row))
    if not backend.supports(x.dtype, arguments[4]):
        pytest.skip(f"{x.dtype} is served by plain torch")
    grad = grad_of(x)
    wide = (t.double() if x.dtype == torch.float64 else t.float() for t in (x, grad))
    wide_x, wide_grad = wide
    tolerance = max(torch.finfo(x.dtype).eps, 4e-6)
    kernel = kernel_row(row)
    results = (
        *(backend.forward(x, *arguments), backend.backward(grad, x, *arguments)),
        *(backend.limit(x, *kernel), backend.limit_backward(grad, x, *kernel)),
    )
    expected = (
        *(plain.forward(wide_x, *arguments), plain.backward(wide_grad, wide_x, *arguments)),
        *(plain.limit(wide_x, *kernel), plain.limit_backward(wide_grad, wide_x, *kernel)),
    )
    for got, want in zip(results, expected, strict=True):
        assert got.dtype == x.dtype
        assert got.stride() == torch.empty_like(x).stride()
        error = (got.to(want.dtype) - want).abs()
        assert (error <= tolerance * (want.abs() + wide_x.abs() + 1)).all()  # g is of the size of x
    return results[:2]


@pytest.mark.parametrize("turned", [False, True])
def test_results_are_written_where_they_are_wanted(backend, turned):
    x = randn(backend, 2, 30, 40)
    x = x.transpose(1, 2) if turned else x
    arguments = (*law(backend, 2), 1200, "q_elu", [1.0])
    grad = grad_of(x)
    for function, tensors in ((backend.forward, (x,)), (backend.backward, (grad, x))):
        out = torch.full_like(x, 7.0)
        assert function(*tensors, *arguments, out=out) is out
        assert torch.equal(out, function(*tensors, *arguments))


@pytest.mark.parametrize(
    ("size", "dtype"),
    [*itertools.product([0, 1, 5, 1023, 1025], DTYPES), (8193, torch.float32)],  # of three blocks
    ids=str,
)
def test_any_size_in_any_dtype(backend, size, dtype):
    check(backend, randn(backend, size, dtype=dtype), max(size, 1))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_every_row_in_any_dtype(backend, row, dtype):
    x = randn(backend, 41, 25, dtype=dtype)
    # Out of order takes a fifth of the time in Triton's interpreter.
    check(backend, x if dtype == torch.float32 else x.t(), 1025, row=row)


LAYOUTS = {
    "channels_last": lambda x: x.to(memory_format=torch.channels_last),
    "transposed": lambda x: x.flatten(1).t(),
    "permuted": lambda x: x.permute(3, 0, 2, 1),
    "channels_last sliced": lambda x: x.to(memory_format=torch.channels_last)[:, 1:],
    "strided": lambda x: x[..., ::2],
    "expanded": lambda x: x[:, :1].expand(3, 6, 5, 7),
    "zero-dimensional": lambda x: x[0, 0, 0, 0],
    "unaligned": lambda x: x.flatten()[1:],
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_any_layout(backend, layout):
    x = LAYOUTS[layout](randn(backend, 3, 6, 5, 7))
    check(backend, x, x.numel())


def test_a_gradient_of_another_layout(backend):
    x = randn(backend, 3, 6, 5, 7)
    arguments = (*law(backend), x.numel(), "q_elu", [1.0])
    want = backend.backward(x, x, *arguments)
    for layout in (torch.channels_last, torch.contiguous_format):
        grad = x.mT.contiguous(memory_format=layout).mT
        assert torch.equal(backend.backward(grad, x, *arguments), want)
    ones = torch.ones((), device=x.device).expand_as(x)
    want = backend.backward(ones.contiguous(), x, *arguments)
    assert torch.equal(backend.backward(ones, x, *arguments), want)
    want = backend.limit_backward(ones.contiguous(), x, "q_elu", [1.0])
    assert torch.equal(backend.limit_backward(ones, x, "q_elu", [1.0]), want)


# --- noise ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("num", [0, 1, 513, 8193])  # the last is of three blocks
def test_the_noise_is_that_of_the_specification(backend, num):
    seed = torch.tensor([0, 1, -1, SEED, -(2**63)], device=backend.device)
    got, want = backend.normals(seed, num), noise.normals(seed, num)
    torch.testing.assert_close(got, want, rtol=0, atol=1e-5)  # a GPU's logarithm near 1


def test_equal_seeds_draw_equal_noise_and_others_other(backend):
    seed = torch.tensor([5, 5, 6], device=backend.device)
    first, again, other = backend.normals(seed, 5000)
    assert torch.equal(first, again)
    assert (first != other).float().mean() > 0.99


PACKS = {  # shape, dimension of the groups
    "runs first": ((3, 5, 100), 0),
    "runs of many blocks": ((2, 4100), 0),
    "channels": ((4, 3, 11, 5), 1),
    "channels of many": ((2, 2, 2100), 1),
    "last": ((1500, 3), 1),
}


@pytest.mark.parametrize("pack", PACKS)
def test_a_group_draws_the_same_alone_and_in_a_pack(backend, pack):
    shape, dim = PACKS[pack]
    x = randn(backend, *shape)
    inner = x[(0,) * (dim + 1)].numel()
    groups = x.shape[dim]
    packed, packed_slope = check(backend, x, inner, groups=groups)
    seed, lam, phi = law(backend, groups)
    for run in range(groups):
        alone = x.select(dim, run)
        own = (seed[run : run + 1], lam[run : run + 1], phi, alone.numel(), "q_elu", [1.0])
        assert torch.equal(packed.select(dim, run), backend.forward(alone, *own))
        slope = backend.backward(grad_of(alone), alone, *own)
        assert torch.equal(packed_slope.select(dim, run), slope)


def test_groups_in_channels_last(backend):
    x = randn(backend, 4, 3, 2, 11, 5)  # batch, runs, channels, height, width
    packed = x.flatten(1, 2).to(memory_format=torch.channels_last).unflatten(1, (3, 2))
    assert not packed.is_contiguous()
    check(backend, packed, 110, groups=3)
    arguments = (*law(backend, 3), 110, "q_elu", [1.0])
    assert torch.equal(backend.forward(packed, *arguments), backend.forward(x, *arguments))


# --- extremes -------------------------------------------------------------------------------------


@pytest.mark.parametrize("phi", [0.0, 0.5])
def test_extremes_of_the_law(backend, phi):
    x = randn(backend, 512, 2)
    seed, _, phi = law(backend, 2, phi)
    lam = torch.tensor([0.0, 5.0], device=x.device)
    for row in ROWS:
        arguments = (seed, lam, phi, 1, *kernel_row(row))
        got, want = backend.forward(x, *arguments), plain.forward(x.double(), *arguments)
        torch.testing.assert_close(got.double(), want, rtol=2e-5, atol=2e-5, msg=row.name)


def test_float64_is_more_than_float32(backend):
    """Of the noise only the sign counts at λ = 0: else its rounding, in float32, would show."""
    x = randn(backend, 32, 16, dtype=torch.float64).t()
    seed, _, phi = law(backend, phi=0.5)
    arguments = (seed, torch.zeros_like(phi), phi, x.numel(), "q_elu", [1.0])
    if not backend.supports(x.dtype, "q_elu"):
        pytest.skip("float64 is served by plain torch")
    got, want = backend.forward(x, *arguments), plain.forward(x, *arguments)
    torch.testing.assert_close(got, want, rtol=1e-13, atol=1e-13)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_nan_propagates(backend, row):
    x = torch.full((4, 25), torch.nan, device=backend.device).t()
    arguments = (*law(backend), 100, *kernel_row(row))
    assert backend.forward(x, *arguments).isnan().all()
    slope = plain.backward(torch.ones_like(x), x, *arguments)
    assert torch.equal(backend.backward(torch.ones_like(x), x, *arguments).isnan(), slope.isnan())
