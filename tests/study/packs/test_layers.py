"""The layers of a pack against PyTorch's own, run by run."""

import pytest
import torch
import torch.nn.functional as F

from qneurons.study.packs import layers


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


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_every_run_has_a_matrix_of_its_own_which_backward_changes(dtype):
    generator = torch.Generator().manual_seed(0)
    x, weight, bias = (
        torch.randn(*shape, generator=generator).to(dtype).double().requires_grad_()
        for shape in [(3, 4, 5), (3, 6, 4), (3, 6)]
    )
    expected = torch.baddbmm(bias.unsqueeze(2), weight, x)
    grad = torch.randn(expected.shape, generator=generator).to(dtype)
    grads = torch.autograd.grad(expected, (x, weight, bias), grad.double())
    after = weight.detach() + grads[1]
    with torch.autocast("cpu", dtype, enabled=dtype != torch.float64):
        out = layers.updating_dense(x, weight, bias)
    found = torch.autograd.grad(out, (x, weight, bias), grad, allow_unused=True)
    assert out.dtype == dtype
    assert found[1] is None
    tolerance = {"rtol": 0, "atol": 1e-12 if dtype == torch.float64 else 0.05}
    pairs = (out, expected), (found[0], grads[0]), (found[2], grads[2]), (weight, after)
    for ours, reference in pairs:
        torch.testing.assert_close(ours.double(), reference, **tolerance)


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_with_a_velocity_backward_changes_that_instead(dtype):
    generator = torch.Generator().manual_seed(0)
    x, weight, bias, velocity = (
        torch.randn(*shape, generator=generator).to(dtype).double()
        for shape in [(3, 4, 5), (3, 6, 4), (3, 6), (3, 6, 4)]
    )
    before, after = weight.clone(), 0.25 * velocity
    grad = torch.randn(3, 6, 5, generator=generator).to(dtype)
    after += grad.double() @ x.transpose(1, 2)
    with torch.autocast("cpu", dtype, enabled=dtype != torch.float64):
        out = layers.updating_dense(x, weight.requires_grad_(), bias, velocity, 0.25)
    out.backward(grad)
    assert weight.grad is None
    assert torch.equal(weight, before)
    tolerance = 1e-12 if dtype == torch.float64 else 0.05
    torch.testing.assert_close(velocity, after, rtol=0, atol=tolerance)


def norm_of(weight, bias, mean, var):
    module = torch.nn.BatchNorm2d(len(mean), layers.EPS, layers.MOMENTUM).double()
    values = {"weight": weight, "bias": bias, "running_mean": mean, "running_var": var}
    module.load_state_dict(values, strict=False)
    return module


def test_every_run_is_normalised_by_its_own_statistics(x):
    state = [torch.rand(3, 4).double() + 0.5 for _ in range(4)]
    modules = [norm_of(*(t[i] for t in state)) for i in range(3)]
    out = layers.normalise(x, *state)
    for i, module in enumerate(modules):
        torch.testing.assert_close(of_run(out, i), module(of_run(x, i)))
        torch.testing.assert_close(state[2][i], module.running_mean)
        torch.testing.assert_close(state[3][i], module.running_var)


def test_a_batch_normalisation_is_folded_into_the_layer_after_it(x):
    state = [torch.rand(3, 4).double() + 0.5 for _ in range(4)]
    modules = [norm_of(*(t[i] for t in state)).eval() for i in range(3)]
    pairs = enumerate(modules)
    normalised = torch.stack([module(of_run(x, i)).transpose(0, 1) for i, module in pairs])
    weight, bias = torch.randn(3, 6, 4, 3, 3).double(), torch.randn(3, 6).double()
    torch.testing.assert_close(
        layers.convolve(x, *layers.fold_batch_norm(weight, bias, *state), padding=0),
        layers.convolve(normalised, weight, bias, padding=0),
    )
    dense, folded = weight[..., 0, 0], layers.fold_batch_norm(weight[..., 0, 0], bias, *state)
    torch.testing.assert_close(
        torch.baddbmm(folded[1].unsqueeze(2), folded[0], x[..., 0, 0]),
        torch.baddbmm(bias.unsqueeze(2), dense, normalised[..., 0, 0]),
    )


def test_pooling(x):
    torch.testing.assert_close(of_run(layers.pool(x), 1), F.max_pool2d(of_run(x, 1), 2))


def test_kernels_serve_cuda_alone_and_not_float64(x):
    assert not layers.is_fused(x.float())
    if torch.cuda.is_available():
        assert layers.is_fused(x.float().cuda())
        assert not layers.is_fused(x.cuda())
