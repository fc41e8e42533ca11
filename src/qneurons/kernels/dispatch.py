"""Chooses the backend of a device, and the name of a row in the backends.

A backend is a module with ``forward``, ``backward``, ``limit``, ``limit_backward`` and
``supports``. The backend of a device also has ``look_up``, ``why_unavailable`` and ``details``,
and that of CUDA ``pool`` and ``pool_backward``.
``plain`` is used where there is no other backend, and every other backend is tested against it.
"""

import functools
import importlib
from types import ModuleType
from typing import NamedTuple

import torch

from qneurons import closed_forms
from qneurons.activations import Activation, rows
from qneurons.kernels import plain
from qneurons.torch_internals import constant_for_dynamo


class Backend(NamedTuple):
    title: str  # as users read it
    module: str  # imported when first needed


BACKENDS = {  # by device type
    "cuda": Backend("Triton", "qneurons.kernels.cuda"),
    "cpu": Backend("C", "qneurons.kernels.cpu"),
}

BASE = "base_"  # begins the name of f itself


def kernel_row(activation: Activation) -> tuple[str, list[float]]:
    """The name of a row's closed form, which backends look up, and the row's parameters.

    The name is empty for a row that is not in the backends, such as one without a closed form.
    """
    name = getattr(activation.difference, "__name__", "")
    is_known = getattr(closed_forms, name, None) is activation.difference
    return name if is_known else "", list(activation.parameters.values())


@functools.cache
def known_rows() -> dict[str, Activation]:
    """By the name of its closed form, every row that has one, with the default parameters."""
    return {name: row for row in rows() if (name := kernel_row(row)[0])}


def base_row(activation: Activation) -> tuple[str, list[float]]:
    """The same for f itself, in the backends that have it; two parameters and f(0).

    The name is also empty for a row with kinks, where PyTorch's slope is not the kernels'.
    """
    name, parameters = kernel_row(activation)
    if not name or activation.kinks(**activation.parameters):
        return "", []
    at_zero = activation(torch.zeros((), dtype=torch.float64)).item()
    return BASE + name, [*(*parameters, 0.0, 0.0)[:2], at_zero]


@functools.cache
def find(device_type: str, dtype: torch.dtype, name: str) -> ModuleType:
    """The backend for a row on a device."""
    backend = load(device_type)
    return backend if isinstance(backend, ModuleType) and backend.supports(dtype, name) else plain


@constant_for_dynamo
def is_fused(device_type: str, dtype: torch.dtype, name: str) -> bool:
    """True if the backend for a row on a device is not plain torch."""
    return find(device_type, dtype, name) is not plain


def status() -> list[tuple[str, str, str]]:
    """Each device type with the name of its backend, and details or why it has none."""
    rows = []
    for device_type, (title, _) in BACKENDS.items():
        backend = load(device_type)
        if isinstance(backend, ModuleType):
            rows.append((device_type, title, backend.details()))
        else:
            rows.append((device_type, "plain PyTorch", backend))
    return rows


@functools.cache
def load(device_type: str) -> ModuleType | str:
    """The backend of a device type, or why there is none."""
    if device_type not in BACKENDS:
        return f"there is no kernel for {device_type}"
    try:
        backend = importlib.import_module(BACKENDS[device_type].module)
    except ImportError as error:
        return str(error)
    return backend.why_unavailable() or backend
