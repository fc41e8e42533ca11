"""The Triton backend's own choices: whole blocks or parts of them, and which memory is in order."""

import pytest
import torch

triton = pytest.importorskip("triton")

from qneurons.kernels import cuda as backend, plain

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def law(groups: int = 1):
    seed = torch.arange(groups, device=DEVICE)
    return seed, torch.full((groups,), 0.5, device=DEVICE), torch.zeros(1, device=DEVICE)


@pytest.mark.parametrize(
    ("shape", "dtype"),
    [
        ((1,), torch.float32),
        ((1025,), torch.bfloat16),
        ((1025,), torch.float64),
        ((2, 4100), torch.float32),
    ],
    ids=str,
)
def test_whole_blocks_and_parts_of_them_agree(shape, dtype, monkeypatch):
    x = torch.randn(shape, device=DEVICE).to(dtype)
    groups, inner = (1, x.numel()) if len(shape) == 1 else shape
    arguments = (*law(groups), inner, "q_elu", [1.0])
    monkeypatch.setattr(backend, "_MANY_BLOCKS", 10**9)
    parts = backend.forward(x, *arguments), backend.backward(x, x, *arguments)
    monkeypatch.setattr(backend, "_MANY_BLOCKS", 0)
    whole = backend.forward(x, *arguments), backend.backward(x, x, *arguments)
    assert all(torch.equal(a, b) for a, b in zip(parts, whole, strict=True))
    torch.testing.assert_close(whole[0], plain.forward(x, *arguments), rtol=1e-2, atol=1e-5)


def test_more_groups_than_a_grid_has_rows(monkeypatch):
    x = torch.randn(3, 700, device=DEVICE)
    arguments = (*law(3), 700, "q_elu", [1.0])
    want = backend.forward(x, *arguments)
    monkeypatch.setattr(backend, "_MAX_GROUPS", 2)
    torch.testing.assert_close(backend.forward(x, *arguments), want)
