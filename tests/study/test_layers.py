"""The layers of a pack against PyTorch's own, run by run."""

import pytest
import torch
import torch.nn.functional as F

from qneurons.study import layers


@pytest.fixture
def x():
    return torch.randn(3, 4, 5, 8, 7, generator=torch.Generator().manual_seed(0)).double()


def of_run(x, i):
    return x[i].transpose(0, 1)  # batch × channel × height × width


@pytest.mark.parametrize("padding", [0, 1])
def test_every_run_is_convolved_with_its_own_kernels(x, padding):
    weight, bias = torch.randn(3, 6, 4, 3, 3).double(), torch.randn(3, 6).double()
    out = layers.convolve(x, weight, bias, padding=padding)
    for i in range(3):
        expected = F.conv2d(of_run(x, i), weight[i], bias[i], padding=padding)
        torch.testing.assert_close(of_run(out, i), expected)


def test_every_run_is_normalised_by_its_own_statistics(x):
    weight, bias, mean, var = (torch.rand(3, 4).double() + 0.5 for _ in range(4))
    own = mean.clone(), var.clone()
    out = layers.normalise(x, weight, bias, mean, var, training=True)
    for i in range(3):
        module = torch.nn.BatchNorm2d(4, eps=layers.EPS, momentum=layers.MOMENTUM).double()
        module.load_state_dict(
            {
                "weight": weight[i],
                "bias": bias[i],
                "running_mean": own[0][i],
                "running_var": own[1][i],
                "num_batches_tracked": torch.tensor(0),
            }
        )
        torch.testing.assert_close(of_run(out, i), module(of_run(x, i)))
        torch.testing.assert_close(mean[i], module.running_mean)
        torch.testing.assert_close(var[i], module.running_var)
        evaluated = layers.normalise(x, weight, bias, mean, var, training=False)
        torch.testing.assert_close(of_run(evaluated, i), module.eval()(of_run(x, i)))


def test_pooling(x):
    torch.testing.assert_close(of_run(layers.pool(x), 1), F.max_pool2d(of_run(x, 1), 2))


def test_kernels_serve_cuda_alone_and_not_float64(x):
    assert not layers.is_fused(x.float())
    if torch.cuda.is_available():
        assert layers.is_fused(x.float().cuda())
        assert not layers.is_fused(x.cuda())
