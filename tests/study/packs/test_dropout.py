"""Dropout by seeds: its law, its gradient, and the fused kernel against the composition."""

import numpy as np
import pytest
import torch

from qneurons import kernels
from qneurons.kernels import dispatch
from qneurons.study.packs.dropout import seeded_dropout

HAS_CUDA = torch.cuda.is_available()
DEVICE = "cuda" if HAS_CUDA else "cpu"


def test_law():
    x = torch.ones(2, 500, 400)
    out = seeded_dropout(x, 0.2, torch.tensor([5, 6]))
    assert set(out.unique().tolist()) == {0.0, 1.25}
    for kept in (out != 0).double().mean((1, 2)):
        assert abs(kept - 0.8) < 5 * (0.16 / 200_000) ** 0.5
    assert not torch.equal(out[0], out[1])


def test_a_run_drops_the_same_alone():
    x = torch.randn(3, 6, 7)
    seeds = torch.tensor([1, 2, 3])
    alone = seeded_dropout(x[1:2], 0.1, seeds[1:2])
    assert torch.equal(seeded_dropout(x, 0.1, seeds)[1:2], alone)


def test_gradient_is_the_mask():
    x = torch.randn(1, 50, requires_grad=True)
    out = seeded_dropout(x, 0.5 - 1e-6, torch.tensor([1]))
    out.sum().backward()
    torch.testing.assert_close(x.grad * x, out)


def test_every_run_needs_a_seed():
    with pytest.raises(AssertionError, match="one seed for each run"):
        seeded_dropout(torch.randn(3, 4), 0.2, torch.tensor([1, 2]))


class TestFused:
    """The kernel against the composition that it replaces; without a GPU, in the interpreter."""

    @pytest.fixture(autouse=True)
    def triton(self, monkeypatch):
        pytest.importorskip("triton")
        from qneurons.kernels import cuda

        if not HAS_CUDA:  # the interpreter takes as long for a part of a block as for all
            monkeypatch.setattr(cuda, "_MANY_BLOCKS", 0)
        for module in (dispatch, kernels):
            monkeypatch.setattr(module, "find", lambda *_: cuda)
        self.use_kernel = lambda it: monkeypatch.setattr(kernels, "is_fused", lambda *_: it)

    def dropped(self, x, grad, probability, *, fused):
        self.use_kernel(fused)
        x = x.detach().requires_grad_()
        seeds = torch.arange(5, 5 + len(x), device=DEVICE) * 2**40
        with np.errstate(invalid="ignore"):  # of the interpreter
            out = seeded_dropout(x, probability, seeds)
            return out, *torch.autograd.grad(out, x, grad)

    def check(self, x, grad, probability):
        """That results and gradients have the same bits."""
        pairs = [self.dropped(x, grad, probability, fused=fused) for fused in (True, False)]
        for ours, theirs in zip(*pairs, strict=True):
            assert ours.dtype == x.dtype
            torch.testing.assert_close(ours, theirs, rtol=0, atol=0, equal_nan=True)
            assert torch.equal(ours.nan_to_num().signbit(), theirs.nan_to_num().signbit())
        if x.numel() > 1000:
            share = (pairs[0][1] == 0).double().mean().item()
            assert share == pytest.approx(probability, abs=0.05)

    @pytest.mark.parametrize(
        ("dtype", "shape", "probability"),
        [
            (torch.float32, (1, 1), 0.1),
            (torch.float32, (2, 4099), 0.2),
            (torch.float16, (2, 7, 191), 0.1),
            (torch.bfloat16, (3, 7, 91), 0.1),
            (torch.float64, (1, 1025), 0.1),
        ],
        ids=str,
    )
    def test_bits_are_those_of_the_composition(self, dtype, shape, probability):
        x, grad = torch.randn(2, *shape, device=DEVICE).to(dtype)
        if dtype == torch.bfloat16 and not HAS_CUDA:
            x, grad = x.sign(), grad.sign()  # the interpreter does not round to nearest
        self.check(x, grad, probability)

    def test_what_is_not_finite_is_not_hidden(self):
        x = torch.randn(2, 600, device=DEVICE)
        x[:, ::3], x[:, 1::3] = torch.inf, torch.nan
        self.check(x, torch.randn_like(x), 0.2)

    def test_memory_in_another_order(self):
        x = torch.randn(2, 9, 5, 13, device=DEVICE).to(memory_format=torch.channels_last)
        grad = torch.randn(1, 1, 1, 13, device=DEVICE).expand_as(x)
        self.check(x, grad, 0.2)
        one, other = (self.dropped(y, grad, 0.2, fused=True) for y in (x, x.contiguous()))
        assert all(map(torch.equal, one, other))

    def test_backward_needs_one_seed_and_one_lam_a_run_and_phi(self):
        kept = []
        with torch.autograd.graph.saved_tensors_hooks(lambda t: kept.append(t) or t, lambda t: t):
            self.dropped(
                torch.randn(2, 70, device=DEVICE), torch.ones(2, 70, device=DEVICE), 0.2, fused=True
            )
        assert [tensor.shape for tensor in kept] == [(2,), (2,), (1,)]

    @pytest.mark.gpu
    @pytest.mark.skipif(not HAS_CUDA, reason="needs a CUDA device")
    @pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
    def test_bits_of_large_tensors(self, dtype):
        x, grad = torch.randn(2, 40, 64, 3001, device=DEVICE).to(dtype)
        self.check(x, grad, 0.2)


@pytest.mark.gpu
@pytest.mark.skipif(not HAS_CUDA, reason="needs a CUDA device")
def test_the_kernel_serves_cuda():
    assert kernels.is_fused("cuda", torch.float32, "dropout")
    x, seeds = torch.randn(40, 64, 3000), torch.arange(40)
    here, there = seeded_dropout(x, 0.2, seeds), seeded_dropout(x.cuda(), 0.2, seeds.cuda()).cpu()
    assert ((here == 0) != (there == 0)).double().mean() < 1e-5  # where q is 0 but for rounding
