"""Triton's batch normalisation against PyTorch's: interpreted or on the device."""

import pytest
import torch

from qneurons.study.packs import layers

pytest.importorskip("triton")
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


@pytest.mark.parametrize(
    "shape", [(2, 3, 5, 8, 7), (3, 40, 64), (1, 1, 2), (2, 2, 3, 40, 41), (1, 1, 70000)], ids=str
)
def test_batch_normalisation(shape):
    torch.manual_seed(0)
    x = torch.randn(shape, device=DEVICE) * 3 + 20  # the mean far from zero
    affine = [torch.randn(shape[:2], device=DEVICE) for _ in range(2)]
    running = [torch.zeros(shape[:2], device=DEVICE), torch.ones(shape[:2], device=DEVICE)]
    inputs = [t.requires_grad_() for t in (x, *affine)]
    wide = [t.detach().double().requires_grad_() for t in inputs]
    expected_running = [t.double() for t in running]
    ours = layers._BatchNorm.apply(*inputs, *running)
    expected = layers.normalise(*wide, *expected_running)
    grad = torch.randn_like(ours)
    torch.testing.assert_close(ours.double(), expected, rtol=1e-4, atol=1e-4)
    for a, b in zip(
        torch.autograd.grad(ours, inputs, grad),
        torch.autograd.grad(expected, wide, grad.double()),
        strict=True,
    ):
        scale = max(b.abs().max().item(), 0.1)
        torch.testing.assert_close(a.double(), b, rtol=0, atol=1e-4 * scale)
    for a, b in zip(running, expected_running, strict=True):
        torch.testing.assert_close(a.double(), b, rtol=1e-5, atol=1e-5)
