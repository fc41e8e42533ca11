"""The noise of single elements, which kernels out of order draw; interpreted or on the device."""

import pytest
import torch

triton = pytest.importorskip("triton")
tl = pytest.importorskip("triton.language")

from qneurons import noise
from qneurons.kernels.cuda_draw import normal_at

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


@triton.jit
def kernel(seed_ptr, out_ptr, first, SIZE: tl.constexpr):
    index = tl.arange(0, SIZE)
    tl.store(out_ptr + index, normal_at(first + index, tl.load(seed_ptr)))


def test_every_index_has_its_normal():
    seed = torch.tensor([0x123456789ABCDEF], device=DEVICE)
    out = torch.empty(2**13, device=DEVICE)
    kernel[(1,)](seed, out, 4096, 2**13)
    torch.testing.assert_close(out, noise.normals(seed, 2**13, start=4096)[0], rtol=0, atol=1e-5)
