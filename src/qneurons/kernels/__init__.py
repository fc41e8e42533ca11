"""Fused kernels: which backend serves a device, and by which name it knows a row.

A backend is a module with ``forward``, ``backward`` and ``supports``; one of a device also says
``why_unavailable`` and ``details``. ``plain`` is the one that every other is tested against, and it
serves what no other does.
"""

import functools
import importlib
from types import ModuleType

import torch
from torch import Tensor

from qneurons import closed_forms
from qneurons.activations import Activation
from qneurons.kernels import plain

_BACKENDS = {"cuda": "cuda", "cpu": "cpu"}


def kernel_name(activation: Activation) -> str | None:
    """The name of a row's difference, under which a backend has its own form of it."""
    name = getattr(activation.difference, "__name__", None)
    return name if name and getattr(closed_forms, name, None) is activation.difference else None


def device_type(x: Tensor) -> str:
    """As ``x.device.type``, which takes half a microsecond."""
    return "cpu" if x.is_cpu else x.device.type


@functools.cache
def find(device_type: str, dtype: torch.dtype, name: str) -> ModuleType:
    """The backend that serves a row on a device."""
    backend = _load(device_type)
    return backend if isinstance(backend, ModuleType) and backend.supports(dtype, name) else plain


def is_fused(device_type: str, dtype: torch.dtype, name: str) -> bool:
    """Whether a backend other than plain torch serves a row on a device."""
    return find(device_type, dtype, name) is not plain


# As torch.compiler.assume_constant_result, which would import Dynamo.
is_fused._dynamo_marked_constant = True  # type: ignore[attr-defined]


def status() -> list[tuple[str, str, str]]:
    """The backend of each device type: the device, the backend, and what is to be said of it."""
    rows = []
    for device_type, name in _BACKENDS.items():
        backend = _load(device_type)
        if isinstance(backend, ModuleType):
            rows.append((device_type, name, backend.details()))
        else:
            rows.append((device_type, "plain", backend))
    return rows


@functools.cache
def _load(device_type: str) -> ModuleType | str:
    """The backend of a device, or why there is none."""
    if device_type not in _BACKENDS:
        return f"there is no kernel for {device_type}"
    try:
        backend = importlib.import_module(f"qneurons.kernels.{_BACKENDS[device_type]}")
    except ImportError as error:
        return str(error)
    return backend.why_unavailable() or backend
