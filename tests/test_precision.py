"""In which dtype a q-activation is computed."""

import pytest
import torch

from qneurons.activations import resolve
from qneurons.given_delta import difference
from qneurons.precision import TINY_DELTA, compute_dtype


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_everything_but_float64_is_computed_in_float32(dtype):
    assert compute_dtype(torch.zeros(1, dtype=dtype)) == torch.float32
    assert compute_dtype(torch.zeros(1, dtype=torch.float64)) == torch.float64


@pytest.mark.parametrize("dtype", TINY_DELTA)
def test_at_the_smallest_step_g_is_the_limit(dtype):
    x = torch.linspace(-3, 3, 31, dtype=dtype)
    tanh, tiny = resolve("tanh"), torch.full_like(x, TINY_DELTA[dtype])
    limit = x * tanh.derivative(x)
    torch.testing.assert_close(difference(x, tiny, tanh), limit)
