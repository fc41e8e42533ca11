"""Activation and pooling in one kernel as one after the other: interpreted or on the device."""

import pytest
import torch
import torch.nn.functional as F

pytest.importorskip("triton")

from qneurons.activations import resolve
from qneurons.kernels import base_row, cuda, kernel_row

# numpy's, in Triton's interpreter
pytestmark = pytest.mark.filterwarnings(
    "ignore:(overflow|invalid value) encountered:RuntimeWarning"
)
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
ROWS = {
    "none": None,
    "base": base_row(resolve("softplus")),
    "draw": kernel_row(resolve("elu")),
}


@pytest.fixture(autouse=True)
def out_of_order(monkeypatch):
    if DEVICE == "cpu":  # takes a fifth of the time in the interpreter
        monkeypatch.setattr(cuda, "_MAX_GROUPS", 0)


def law(x, row):
    """For two runs."""
    seed, lam = torch.tensor([3, 4], device=DEVICE), torch.tensor([0.7, 5.0], device=DEVICE)
    return seed, lam, torch.tensor([1e-3], device=DEVICE), x[0].numel(), *row


def together(x, of_x, grad):
    out, choice = torch.empty_like(grad), torch.empty_like(grad, dtype=torch.uint8)
    cuda.pool(x, out, choice, of_x)
    grad_x = torch.full_like(x, 7.0)
    cuda.pool_backward(grad, x, choice, grad_x, of_x)
    return out, grad_x


def apart(x, of_x, grad):
    activated = x if of_x is None else cuda.forward(x, *of_x)
    activated = activated.flatten(0, 1).requires_grad_()
    out = F.max_pool2d(activated, 2)
    (grad_x,) = torch.autograd.grad(out, activated, grad.flatten(0, 1))
    grad_x = grad_x.view(x.shape)
    return out.view(grad.shape), grad_x if of_x is None else cuda.backward(grad_x, x, *of_x)


@pytest.mark.parametrize(
    ("row", "shape", "dtype"),
    [
        ("none", (2, 3, 8, 6), torch.float32),
        ("none", (1, 2, 7, 9), torch.bfloat16),
        ("base", (1, 1, 2, 2), torch.float32),
        ("draw", (2, 3, 5, 7), torch.bfloat16),
        # Windows begin in one block of 4096 elements and end in the next.
        ("draw", (1, 6, 30, 30), torch.float32),
        ("draw", (3, 9, 13, 13), torch.float32),
    ],
    ids=str,
)
def test_together_as_apart(row, shape, dtype):
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(2, *shape, generator=generator).to(DEVICE, dtype)
    if row == "none":
        x = x.mul(2).round()  # with ties
    grad = torch.randn(2, *shape[:2], shape[2] // 2, shape[3] // 2, generator=generator)
    arguments = x, ROWS[row] and law(x, ROWS[row]), grad.to(x)
    for ours, expected in zip(together(*arguments), apart(*arguments), strict=True):
        assert torch.equal(ours, expected)


@pytest.mark.parametrize("row", ["none", "base"])
def test_nan_is_carried_on(row):
    x = torch.ones(2, 1, 1, 2, 10, device=DEVICE)
    for place in range(4):
        x[..., place // 2, 2 * place + place % 2] = torch.nan
    out, _ = together(x, ROWS[row] and law(x, ROWS[row]), torch.ones(2, 1, 1, 1, 5, device=DEVICE))
    assert out.isnan().flatten(1).tolist() == [[True] * 4 + [False]] * 2
