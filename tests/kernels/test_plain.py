"""The plain backend: the difference at the δ of the seeds, whatever dtype and layout x has."""

import pytest
import torch

from qneurons import closed_forms
from qneurons.kernels import plain
from qneurons.noise import seeded_delta

LAW = torch.tensor([3, 4]), torch.tensor([0.7, 0.1]), torch.tensor([0.01])


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32, torch.float64])
@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
def test_it_is_the_difference_at_the_delta_of_the_seeds(dtype, layout):
    x = torch.randn(5, 2, 3, 4).to(dtype).to(memory_format=layout)
    wide = x.to(torch.promote_types(dtype, torch.float32))
    delta = seeded_delta(x.shape, *LAW, 12, dtype=wide.dtype)
    value, slope = closed_forms.q_celu(wide, delta, True, 0.5)
    arguments = (*LAW, 12, "q_celu", [0.5])
    got = plain.forward(x, *arguments), plain.backward(x, x, *arguments)
    for result, want in zip(got, (value, wide * slope), strict=True):
        assert result.stride() == x.stride()
        torch.testing.assert_close(result, want.to(dtype))
