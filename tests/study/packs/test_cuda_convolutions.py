"""Triton's convolutions against PyTorch's, in the interpreter or on the device."""

import pytest
import torch

from qneurons.study.packs import layers

pytest.importorskip("triton")
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
on_device = pytest.mark.skipif(DEVICE == "cpu", reason="needs a CUDA device")


# runs, channels, features, batch, height, width
@pytest.mark.parametrize("padding", [0, 1])
@pytest.mark.parametrize(
    "sizes",
    [(2, 1, 32, 3, 9, 10), (2, 3, 32, 2, 8, 7), (1, 32, 64, 2, 6, 6), (3, 5, 20, 1, 7, 9)],
    ids=str,
)
def test_values_and_gradients(sizes, padding):
    runs, channels, features, batch, height, width = sizes
    torch.manual_seed(0)
    x = torch.randn(runs, channels, batch, height, width, device=DEVICE)
    weight = torch.randn(runs, features, channels, 3, 3, device=DEVICE) / (9 * channels) ** 0.5
    bias = torch.randn(runs, features, device=DEVICE)
    compare(x, weight, bias, padding)


def test_images_that_runs_share_and_strided_ones():
    torch.manual_seed(0)
    weight = torch.randn(3, 32, 2, 3, 3, device=DEVICE) / 4
    bias = torch.zeros(3, 32, device=DEVICE)
    images = torch.randn(4, 2, 7, 6, device=DEVICE).transpose(0, 1)
    compare(images.expand(3, *images.shape), weight, bias, 0)
    compare(torch.randn(3, 2, 4, 6, 7, device=DEVICE).transpose(3, 4), weight, bias, 1)


def compare(x, weight, bias, padding):
    inputs = [t.detach().requires_grad_() for t in (x, weight, bias)]
    wide = [t.detach().double().requires_grad_() for t in (x, weight, bias)]
    ours = layers._Convolution.apply(*inputs, padding)
    expected = layers.convolve(*wide, padding=padding)
    grad = torch.randn_like(ours)
    close(ours, expected)
    for a, b in zip(
        torch.autograd.grad(ours, inputs, grad),
        torch.autograd.grad(expected, wide, grad.double()),
        strict=True,
    ):
        assert a.is_contiguous() or a.shape == x.shape
        close(a, b)


def close(ours, expected):
    scale = expected.abs().max().item()
    torch.testing.assert_close(ours.double(), expected, rtol=0, atol=2e-6 * scale)


@pytest.mark.gpu
@on_device  # the interpreter multiplies the bits of bfloat16
def test_bfloat16_by_autocast():
    torch.manual_seed(0)
    x = torch.randn(2, 4, 2, 6, 6, device=DEVICE)
    weight = torch.randn(2, 16, 4, 3, 3, device=DEVICE, requires_grad=True)
    bias = torch.randn(2, 16, device=DEVICE, requires_grad=True)
    with torch.autocast(DEVICE, torch.bfloat16):
        out = layers._Convolution.apply(x, weight, bias, 0)
    assert out.dtype == torch.bfloat16
    out.float().sum().backward()
    assert weight.grad.dtype == bias.grad.dtype == torch.float32
    expected = layers.convolve(x.double(), weight.double(), bias.double(), padding=0)
    torch.testing.assert_close(out.double(), expected, rtol=0.02, atol=0.05)


@pytest.mark.gpu
@on_device
def test_tf32_is_less_exact_and_asked_for():
    x = torch.randn(2, 32, 4, 12, 12, device="cuda")
    weight = torch.randn(2, 32, 32, 3, 3, device="cuda")
    bias = torch.zeros(2, 32, device="cuda")
    expected = layers.convolve(x.double(), weight.double(), bias.double(), padding=0)
    errors = []
    for allowed in (False, True):
        torch.backends.cuda.matmul.allow_tf32 = allowed
        errors.append((layers.convolve(x, weight, bias, padding=0) - expected).abs().max().item())
    torch.backends.cuda.matmul.allow_tf32 = False
    assert errors[0] < 1e-4 < errors[1] < 0.1
