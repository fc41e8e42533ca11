"""The backends that are present, each with the device that it is tested on."""

import importlib

import pytest
import torch

from qneurons import kernels

HAS_CUDA = torch.cuda.is_available()


@pytest.fixture(params=["cuda", "cpu"])
def backend(request):
    return find_backend(request.param)


@pytest.fixture(params=["plain", "cuda", "cpu"])
def served_by(request, monkeypatch):
    """Has one backend serve every device, in place of the one that would."""
    module = find_backend(request.param)
    monkeypatch.setattr(kernels, "find", lambda *_: module)
    return module


def find_backend(name: str):
    if name == "cuda":
        pytest.importorskip("triton")
    module = importlib.import_module(f"qneurons.kernels.{name}")
    if name == "cpu" and module.why_unavailable():
        pytest.skip(module.why_unavailable())
    if name == "cuda" and not HAS_CUDA:
        module._MANY_BLOCKS = 0  # the interpreter takes as long for a part of a block as for all
    module.device = "cuda" if name != "cpu" and HAS_CUDA else "cpu"
    return module
