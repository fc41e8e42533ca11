"""Segments of a pack, and their activations side by side against each alone."""

import pytest
import torch

from qneurons import kernels, q_activation
from qneurons.activations import resolve
from qneurons.kernels import base_row, kernel_row
from qneurons.study.packs.layers import pool
from qneurons.study.packs.segments import (
    ByAutograd,
    ByKernel,
    _ActivateAndPool,
    activate,
    segments,
)
from qneurons.study.runs import Run


def run(setting, activation="elu"):
    return Run("digits", "mnist-mlp", False, activation, setting, 0, 64, 0.05)


def test_segments_are_neighbours_alike():
    settings = ["base", "n0.1", "limit", "m1", "c0.1", "a1"]
    found = segments([run(s) for s in settings] + [run("a1", activation="tanh")])
    assert [(s.activation.name, s.kind, s.runs) for s in found] == [
        ("elu", "base", slice(0, 2)),
        ("elu", "limit", slice(2, 3)),
        ("elu", "mean", slice(3, 4)),
        ("elu", "q", slice(4, 6)),
        ("tanh", "q", slice(6, 7)),
    ]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16], ids=str)
def test_every_part_is_computed_as_alone(dtype):
    torch.manual_seed(0)
    x = torch.randn(5, 6, 70, dtype=dtype, requires_grad=True)
    law = torch.float64 if dtype == torch.float64 else torch.float32
    seed, lam = torch.tensor([3, 4]), torch.tensor([0.1, 0.7], dtype=law)
    phi, zero = torch.tensor([1e-3], dtype=law), torch.zeros(2, dtype=law)
    relu, tanh, elu = map(resolve, ("relu", "tanh", "elu"))
    parts = [
        (slice(0, 1), ByAutograd(relu)),
        (slice(1, 3), ByKernel(kernel_row(elu), seed, lam, phi)),
        (slice(3, 5), ByKernel(kernel_row(tanh), seed, zero, zero[:1])),
    ]
    out = activate(x, parts)
    alone = [
        relu(x[:1]),
        q_activation(x[1:3], elu, lam[:, None, None], 1e-3, seed=seed[:, None, None]),
        q_activation(x[3:], tanh, training=False),
    ]
    tolerance = {torch.float64: 1e-12, torch.float32: 1e-6, torch.bfloat16: 1e-2}[dtype]
    expected = torch.cat(alone)
    torch.testing.assert_close(out, expected, rtol=tolerance, atol=tolerance)
    grad = torch.randn_like(out).transpose(1, 2).contiguous().transpose(1, 2)
    torch.testing.assert_close(
        *torch.autograd.grad(out, x, grad, retain_graph=True),
        *torch.autograd.grad(expected, x, grad),
        rtol=tolerance,
        atol=tolerance,
    )


def test_pooled_parts_are_those_pooled_after_the_activation(monkeypatch):
    pytest.importorskip("triton")
    from qneurons.kernels import cuda

    device = "cuda" if torch.cuda.is_available() else "cpu"
    monkeypatch.setattr(kernels, "find", lambda *_: cuda)
    monkeypatch.setattr(cuda, "_MAX_GROUPS", 0)  # faster in the interpreter
    zero = torch.zeros(1, device=device)
    law = torch.tensor([3], device=device), zero, zero
    parts = [
        (slice(0, 2), ByAutograd(resolve("relu"))),
        (slice(2, 3), ByKernel(base_row(resolve("elu")), *law)),
        (slice(3, 4), ByKernel(kernel_row(resolve("tanh")), *law)),
    ]
    x = torch.randn(4, 2, 3, 5, 7, device=device, requires_grad=True)
    out, expected = _ActivateAndPool.apply(x, parts, cuda), pool(activate(x, parts))
    assert torch.equal(out, expected)
    grad = torch.randn_like(out).mT.contiguous().mT
    assert torch.equal(*torch.autograd.grad(out, x, grad), *torch.autograd.grad(expected, x, grad))


def test_relu_has_pytorch_s_gradient_at_zero():
    x = torch.zeros(2, 3, requires_grad=True)
    activate(x, [(slice(0, 2), ByAutograd(resolve("relu")))]).sum().backward()
    assert torch.equal(x.grad, torch.zeros(2, 3))


def test_a_kernel_gets_one_seed_and_one_lambda_for_each_run():
    x, row, ones = torch.randn(3, 4), kernel_row(resolve("elu")), torch.ones(3)
    for seed, lam in ((torch.arange(2), ones), (torch.arange(3), ones[:2])):
        with pytest.raises(AssertionError, match="one seed and one λ for each run"):
            activate(x, [(slice(0, 3), ByKernel(row, seed, lam, ones[:1]))])
