"""The limits in Triton: that all are there. ``test_limits`` says how accurate every backend is."""

import pytest
import torch

pytest.importorskip("triton")

from qneurons import limits
from qneurons.activations import rows
from qneurons.kernels import cuda, cuda_limits

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def test_every_limit_has_its_device_function():
    for row in rows():
        assert hasattr(limits, row.difference.__name__), row.name
        assert hasattr(cuda_limits, row.difference.__name__), row.name


def test_the_limit_of_the_noise_is_zero():
    x = torch.ones(5, device=DEVICE)
    assert not cuda.limit(x, "q_delta", []).any()
    assert not cuda.limit_backward(x, x, "q_delta", []).any()


@pytest.mark.parametrize("size", [1, 1023, 1024, 1025, 3000])
def test_every_size_is_written_to_its_end(size):
    x = torch.linspace(-3, 3, size, device=DEVICE)
    assert torch.equal(cuda.limit(x, "q_relu", []), x.relu())
