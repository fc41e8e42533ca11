"""The backends that are present, each with the device that it is tested on."""

from types import ModuleType

import pytest
import torch

from qneurons.kernels import dispatch, plain

HAS_CUDA = torch.cuda.is_available()


@pytest.fixture(params=dispatch.BACKENDS)
def backend(request):
    return find_backend(request.param)


@pytest.fixture(params=["plain", *dispatch.BACKENDS])
def served_by(request, monkeypatch):
    """Has one backend serve every device, in place of the one that would."""
    module = find_backend(request.param)
    monkeypatch.setattr(dispatch, "find", lambda *_: module)
    return module


def find_backend(device_type: str):
    module = plain if device_type == "plain" else dispatch.load(device_type)
    if not isinstance(module, ModuleType):
        pytest.skip(module)
    if device_type == "cuda" and not HAS_CUDA:
        module._MANY_BLOCKS = 0  # the interpreter takes as long for a part of a block as for all
    module.device = "cuda" if device_type != "cpu" and HAS_CUDA else "cpu"
    return module


def find_build(name: str, monkeypatch):
    """Plain torch, Triton, or one build of the C kernel."""
    if name in ("plain", "cuda"):
        return find_backend(name)
    found = find_backend("cpu")
    monkeypatch.setattr(found, "_apply", found._bind(found._load(name)))
    return found
