"""Triton's look-up of means against plain torch's: interpreted or on the device."""

import math

import pytest
import torch

from qneurons import mean_table
from qneurons.activations import resolve

pytest.importorskip("triton")
from qneurons.kernels import cuda_means

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


@pytest.mark.parametrize("name", ["selu", "relu6"])
@pytest.mark.parametrize("shape", [(3, 2, 5, 30, 31), (1, 7), (2, 0)], ids=str)
def test_means_are_looked_up_as_in_plain_torch(shape, name):
    x = 8 * torch.randn(shape, device=DEVICE)
    special = torch.tensor([float("nan"), 1e15, -1e15, 0.0, -1e-30, 1e-30])
    x.view(-1)[:6] = special[: x.numel()]
    lams = [0.02, 0.5, 9.0][: len(x)]
    pieces, centres = mean_table.build(resolve(name), lams, 1e-3, x.device)
    table = pieces.float(), centres.float()
    expected = mean_table._look_up(x, *table)
    found = cuda_means.look_up(x, *table)
    torch.testing.assert_close(found, expected, rtol=1e-6, atol=1e-9, equal_nan=True)


@pytest.mark.filterwarnings("ignore:overflow encountered:RuntimeWarning")  # at inf
@pytest.mark.parametrize("name", ["leaky_relu", "relu2"])
def test_powers_are_those_of_plain_torch(name):
    special = torch.tensor([math.nan, math.inf, -math.inf, 0.0, -1e-42])
    x = torch.cat([torch.randn(1500), special]).to(DEVICE)
    table = [part.to(DEVICE) for part in mean_table.find(resolve(name), 2.0, 1e-3)]
    found, expected = cuda_means.look_up(x, *table), mean_table._look_up(x, *table)
    torch.testing.assert_close(found, expected, rtol=1e-6, atol=1e-40, equal_nan=True)
