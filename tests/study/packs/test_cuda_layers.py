"""Triton's normalisation and pooling against PyTorch's: interpreted or on the device."""

import pytest
import torch

from qneurons.study.packs import layers

pytest.importorskip("triton")
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
on_device = pytest.mark.skipif(DEVICE == "cpu", reason="needs a CUDA device")


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


@pytest.mark.parametrize(
    "dtype",
    [
        torch.float32,
        # the interpreter loses bits of it
        pytest.param(torch.bfloat16, marks=[pytest.mark.gpu, on_device]),
    ],
    ids=str,
)
@pytest.mark.parametrize("shape", [(2, 3, 2, 8, 6), (1, 2, 3, 7, 9), (1, 1, 1, 2, 2)], ids=str)
def test_pooling(shape, dtype):
    torch.manual_seed(0)
    x = torch.randn(shape, device=DEVICE, dtype=dtype).mul(2).round().requires_grad_()  # with ties
    ours, expected = layers._MaxPool.apply(x), torch.nn.functional.max_pool2d(x.flatten(0, 1), 2)
    torch.testing.assert_close(ours, expected.unflatten(0, shape[:2]))
    grad = torch.randn_like(ours)
    torch.testing.assert_close(
        *torch.autograd.grad(ours, x, grad),
        *torch.autograd.grad(expected, x, grad.flatten(0, 1)),
    )


def test_pooling_carries_nan_on():
    x = torch.full((1, 1, 1, 2, 2), float("nan"), device=DEVICE)
    x[..., 0, 0] = 1.0
    assert layers._MaxPool.apply(x).isnan().all()
