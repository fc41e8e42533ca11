"""The q-activation on the CPU. cpu.c gets addresses only, so one build works with every torch."""

import ctypes
import os
from collections.abc import Sequence
from functools import partial
from importlib.machinery import EXTENSION_SUFFIXES, ExtensionFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from qneurons.kernels.layout import IN_ORDER, as_matrices
from qneurons.torch_internals import EXTENSION_FILE

_BUILDS = ("portable", "avx2", "avx512")  # qneurons_best_build returns an index of this
_DTYPES = {torch.float32: 0, torch.float16: 1, torch.bfloat16: 2}
# Up to this many elements one thread is faster. torch's own loops use more threads from 2^15 on,
# but an element costs less there.
_LARGEST_ALONE = 2**13
_VERSION = 4  # of the functions of cpu.c and their arguments

_pointer, _size, _float = ctypes.c_void_p, ctypes.c_int64, ctypes.c_float
_ARGUMENTS: list[Any] = [
    *(ctypes.c_int, ctypes.c_int),  # row, dtype
    *(_pointer, _pointer, _pointer, _pointer, _pointer, _pointer),  # grad, x, out, seed, lam, phi
    *(_size, _size, _size, _size, _size),  # num, groups, inner, height, width
    *(_float, _float),  # the row's parameters
    *(_pointer, ctypes.c_int),  # team, num_threads
]


def why_unavailable() -> str:
    """Why there is no kernel, or "" if there is one."""
    return _why_unavailable


def details() -> str:
    return f"built for {_instruction_set}, {'many threads' if _team else 'one thread'}"


def supports(dtype: torch.dtype, name: str) -> bool:
    return dtype in _DTYPES and name in _rows


def normals(seed: Tensor, num: int) -> Tensor:
    """The noise alone, as :func:`qneurons.noise.normals`."""
    as_kernel: dict[str, Any] = {"dtype": torch.float32, "device": "cpu"}
    x = torch.empty(seed.numel(), num, **as_kernel)
    lam, phi = torch.ones(seed.numel(), **as_kernel), torch.zeros(1, **as_kernel)
    return forward(x, seed.flatten(), lam, phi, max(num, 1), "q_delta", ())


def backward(
    grad: Tensor | None,
    x: Tensor,
    seed: Tensor,
    lam: Tensor,
    phi: Tensor,
    inner: int,
    name: str,
    parameters: Sequence[float],
    *,
    out: Tensor | None = None,
) -> Tensor:
    """As :func:`qneurons.kernels.plain.backward`."""
    if out is None:
        out = torch.empty_like(x)
    num = x.numel()
    if not num:
        return out
    groups = seed.numel()
    matrices = as_matrices(x)
    if matrices != IN_ORDER and (matrices is None or groups > 1 or out.stride() != x.stride()):
        if grad is not None:
            grad = grad.contiguous()
        dense = x.contiguous()
        return out.copy_(backward(grad, dense, seed, lam, phi, inner, name, parameters))
    if grad is not None and not (grad.dtype is x.dtype and grad.stride() == x.stride()):
        grad = torch.empty_like(x).copy_(grad)
    if lam.dtype is not torch.float32:
        lam = lam.float()
    if phi.dtype is not torch.float32:
        phi = phi.float()
    if groups > 1:
        seed, lam = seed.contiguous(), lam.contiguous()
    first, second = (*parameters, 0.0, 0.0)[:2]
    _apply(
        _rows[name],
        _DTYPES[x.dtype],
        0 if grad is None else grad.data_ptr(),
        x.data_ptr(),
        out.data_ptr(),
        seed.data_ptr(),
        lam.data_ptr(),
        phi.data_ptr(),
        num,
        groups,
        inner,
        *matrices,
        first,
        second,
        _team,
        torch.get_num_threads() if num > _LARGEST_ALONE and _team else 1,
    )
    return out


forward = partial(backward, None)


def limit_backward(
    grad: Tensor | None, x: Tensor, name: str, parameters: Sequence[float]
) -> Tensor:
    """As :func:`qneurons.kernels.plain.limit_backward`."""
    out = torch.empty_like(x)
    num = x.numel()
    if not num:
        return out
    if not x.is_contiguous() and out.stride() != x.stride():  # there are gaps in the memory
        grad = None if grad is None else grad.contiguous()
        return out.copy_(limit_backward(grad, x.contiguous(), name, parameters))
    if grad is not None and not (grad.dtype is x.dtype and grad.stride() == x.stride()):
        grad = torch.empty_like(x).copy_(grad)
    first, second = (*parameters, 0.0, 0.0)[:2]
    _apply(
        _rows[name],
        _DTYPES[x.dtype],
        0 if grad is None else grad.data_ptr(),
        x.data_ptr(),
        out.data_ptr(),
        *(0, 0, 0),  # no seed, lam and phi
        *(num, 1, num, *IN_ORDER),
        first,
        second,
        _team,
        torch.get_num_threads() if num > _LARGEST_ALONE and _team else 1,
    )
    return out


limit = partial(limit_backward, None)


def look_up(x: Tensor, pieces: Tensor, centres: Tensor) -> Tensor:
    """As ``mean_table.look_up``, for a contiguous x and tables in float32."""
    wide = x.float()
    out, (_, num_tables, num_pieces) = torch.empty_like(wide), pieces.shape
    if num := x.numel():
        _library.qneurons_look_up(
            *(tensor.data_ptr() for tensor in (wide, pieces, centres, out)),
            *(num, num_tables, num_pieces, centres.shape[1]),
            _team,
            torch.get_num_threads() if num > _LARGEST_ALONE and _team else 1,
        )
    return out.to(x.dtype)


# --- loading --------------------------------------------------------------------------------------


def _load(build: str) -> ctypes.CDLL:
    for suffix in EXTENSION_SUFFIXES:
        path = Path(__file__).with_name(f"_native_{build}{suffix}")
        if path.exists():
            return ctypes.CDLL(str(path))
    raise FileNotFoundError(f"the package was built without a C compiler: no {build} kernel")


def _load_best(wanted: str) -> tuple[ctypes.CDLL, str]:
    """The wanted or the fastest build for this processor; if it is missing, the next slower one."""
    if wanted == "off":
        raise OSError("switched off by QNEURONS_NATIVE=off")
    portable = _load("portable")
    if portable.qneurons_version() != _VERSION:
        raise OSError("the library was built from another version; install the package again")
    best = portable.qneurons_best_build()
    if wanted:
        known = _BUILDS[: best + 1]
        if wanted not in known:
            raise ValueError(
                f"QNEURONS_NATIVE must be one of off, {', '.join(known)} on this processor, "
                f"got {wanted!r}"
            )
        best = known.index(wanted)
    for build in reversed(_BUILDS[1 : best + 1]):
        try:
            return _load(build), build
        except OSError:
            continue
    return portable, "portable"


def _find_team() -> int:
    """The address of GOMP_parallel in the OpenMP library that torch runs on, or 0.

    It runs our loop in the threads of torch's own loops, which are awake between operations and
    obey torch.set_num_threads. Threads of our own would compete with torch's, which wait for the
    next operation in a busy loop.
    """
    try:
        return ctypes.cast(ctypes.CDLL(EXTENSION_FILE).GOMP_parallel, _pointer).value or 0
    except (AttributeError, OSError):
        return 0


def _forget_team() -> None:
    # A forked child has none of its parent's threads, and the library would wait for them.
    global _team
    _team = 0


def _bind(library: ctypes.CDLL) -> Any:
    """The function that runs the kernel: a Python function if the build had Python's headers."""
    path = Path(library._name)
    name = path.name.partition(".")[0]
    loader = ExtensionFileLoader(name, str(path))
    spec = spec_from_loader(name, loader)
    if hasattr(library, f"PyInit_{name}") and spec is not None:
        return module_from_spec(spec).apply
    library.qneurons_apply.argtypes = _ARGUMENTS
    library.qneurons_apply.errcheck = _raise_if_failed
    return library.qneurons_apply


def _raise_if_failed(failed: Any, *_: Any) -> Any:
    if failed:
        raise MemoryError


def _names(library: ctypes.CDLL) -> dict[str, int]:
    library.qneurons_row.restype = ctypes.c_char_p
    names: dict[str, int] = {}
    while name := library.qneurons_row(len(names)):
        names[name.decode()] = len(names)
    return names


_why_unavailable, _instruction_set = "", ""
_rows: dict[str, int] = {}
_team = _find_team()
_apply: Any = None
try:
    _library, _instruction_set = _load_best(os.environ.get("QNEURONS_NATIVE", ""))
except (OSError, AttributeError) as error:  # AttributeError: a library without qneurons_version
    _why_unavailable = str(error)
else:
    _apply, _rows = _bind(_library), _names(_library)
    _library.qneurons_look_up.argtypes = [*[_pointer] * 4, *[_size] * 4, _pointer, ctypes.c_int]
    _library.qneurons_look_up.restype = None
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=_forget_team)
