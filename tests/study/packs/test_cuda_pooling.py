"""Activation and pooling as one kernel against both alone: interpreted or on the device."""

import pytest
import torch
import torch.nn.functional as F

pytest.importorskip("triton")

from qneurons import kernels
from qneurons.activations import resolve
from qneurons.kernels import base_row, cuda, kernel_row
from qneurons.study.packs.segments import ByAutograd, ByKernel, _ActivateAndPool, activate

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
# Odd sizes; windows that begin in one block of 4096 elements and end in the next.
SHAPES = [(1, 1, 2, 2), (2, 3, 5, 7), (1, 6, 30, 30), (3, 9, 13, 13), (2, 1, 4, 1030)]


@pytest.fixture
def by_triton(monkeypatch):
    monkeypatch.setattr(kernels, "find", lambda *_: cuda)
    if DEVICE == "cpu":
        monkeypatch.setattr(cuda, "_MANY_BLOCKS", 0)  # parts of a block take as long


def mixed(num_runs):
    """Parts of every kind, each for a number of runs."""
    seed = torch.arange(3, 3 + num_runs, device=DEVICE)
    lam = torch.linspace(0.1, 5, num_runs, device=DEVICE)
    phi, zero = torch.full((1,), 1e-3, device=DEVICE), torch.zeros_like(lam)
    elu, tanh = resolve("elu"), resolve("tanh")
    parts = [
        ByAutograd(resolve("relu")),
        ByKernel(base_row(elu), seed, zero, zero[:1]),
        ByKernel(kernel_row(tanh), seed, zero, zero[:1]),
        ByKernel(kernel_row(elu), seed, lam, phi),
    ]
    return [(slice(i * num_runs, (i + 1) * num_runs), part) for i, part in enumerate(parts)]


def pool(x):
    return F.max_pool2d(x.flatten(0, 1), 2).unflatten(0, x.shape[:2])


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_together_as_one_after_the_other(shape, dtype, by_triton):
    parts = mixed(num_runs=2)
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(8, *shape, generator=generator).to(DEVICE, dtype).requires_grad_()
    ours, expected = _ActivateAndPool.apply(x, parts), pool(activate(x, parts))
    assert torch.equal(ours, expected)
    grad = torch.randn(ours.shape, generator=generator).to(ours)
    found, *_ = torch.autograd.grad(ours, x, grad)
    wanted, *_ = torch.autograd.grad(expected, x, grad)
    assert torch.equal(found, wanted)
    assert (found != 0).sum() <= grad.numel()


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_the_first_of_equal_maxima_gets_the_gradient(shape, by_triton):
    x = torch.randn(2, *shape, device=DEVICE).mul(2).round().requires_grad_()
    ours = _ActivateAndPool.apply(x, [(slice(0, 2), ByAutograd(torch.clone))])
    expected, grad = pool(x), torch.randn_like(ours)
    assert torch.equal(ours, expected)
    assert torch.equal(*torch.autograd.grad(ours, x, grad), *torch.autograd.grad(expected, x, grad))


@pytest.mark.parametrize("place", range(4))
def test_nan_is_carried_on(place, by_triton):
    parts = mixed(num_runs=1)
    x = torch.ones(4, 1, 1, 2, 4, device=DEVICE)
    x[..., :2].flatten(3)[..., place] = torch.nan
