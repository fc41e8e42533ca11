"""The q-activation on CUDA: one Triton kernel reads x, draws δ in registers and writes."""
# mypy: disable-error-code="no-untyped-def, import-untyped, assignment, var-annotated"

from collections.abc import Sequence
from functools import partial
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from qneurons.kernels import cuda_forms, cuda_limits
from qneurons.kernels.cuda_draw import (
    BLOCK,
    CALLS,
    THREADS,
    box_muller,
    form,
    normal_at,
    result,
    words_of_threads,
)
from qneurons.kernels.cuda_launch import Launcher, cdiv
from qneurons.kernels.cuda_means import look_up as look_up
from qneurons.kernels.cuda_pooling import pool as pool, pool_backward as pool_backward
from qneurons.kernels.dispatch import BASE
from qneurons.kernels.layout import as_matrices

_DTYPES = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
_SIZE = 1024  # of a block without noise in its order
_MANY_BLOCKS = 512  # a few for each multiprocessor
_MAX_GROUPS = 65535  # CUDA's limit for the second axis of a grid


@triton.jit
def _write_slots(
    x_ptr, grad_ptr, result_ptr, offset, left, eps, lam, phi, NUM_SLOTS: tl.constexpr,
    DIFFERENCE: tl.constexpr, P0: tl.constexpr, P1: tl.constexpr,
    TINY: tl.constexpr, COMPUTE: tl.constexpr, BACKWARD: tl.constexpr,
):  # fmt: skip
    """Loads a few neighbouring slots, then computes and writes their results one by one.

    To write them all at the end takes 5 to 8 % longer.
    """
    xs, grads = (), ()
    for slot in tl.static_range(NUM_SLOTS):
        at = offset + slot * CALLS
        xs += (tl.load(x_ptr + at, at < left),)
        if BACKWARD:
            grads += (tl.load(grad_ptr + at, at < left),)
    for slot in tl.static_range(NUM_SLOTS):
        at = offset + slot * CALLS
        x, e, grad = xs[slot], eps[slot], grads[slot] if BACKWARD else None
        found = result(x, grad, e, lam, phi, DIFFERENCE, P0, P1, TINY, COMPUTE, BACKWARD)
        tl.store(result_ptr + at, found.to(result_ptr.dtype.element_ty), at < left)


@triton.jit
def _kernel_in_order(
    x_ptr, grad_ptr, result_ptr, seed_ptr, lam_ptr, phi_ptr,
    num,
    DIFFERENCE: tl.constexpr, P0: tl.constexpr, P1: tl.constexpr,
    TINY: tl.constexpr, COMPUTE: tl.constexpr, BACKWARD: tl.constexpr,
    WHOLE: tl.constexpr,
):  # fmt: skip
    """One block of a group, or two slots of it; its elements are contiguous in memory."""
    program, group = tl.program_id(0), tl.program_id(1)
    block = (program if WHOLE else program // 4).to(tl.int64)
    begin = group.to(tl.int64) * num + block * BLOCK
    left = num - block * BLOCK
    call = 4 * tl.arange(0, THREADS)
    offset = call[:, None] + tl.arange(0, 4)[None, :]
    w0, w1, w2, w3 = words_of_threads(block * CALLS + call, tl.load(seed_ptr + group))
    lam, phi = tl.load(lam_ptr + group), tl.load(phi_ptr)
    x_ptr += begin
    result_ptr += begin
    if BACKWARD:
        grad_ptr += begin
    if WHOLE:  # four slots at a time: eight take more registers, two leave the memory idle
        for half in tl.static_range(2):
            pairs = box_muller(w2 if half else w0) + box_muller(w3 if half else w1)
            at = offset + half * 4 * CALLS
            _write_slots(
                x_ptr, grad_ptr, result_ptr, at, left, pairs, lam, phi, 4,
                DIFFERENCE, P0, P1, TINY, COMPUTE, BACKWARD,
            )  # fmt: skip
    else:  # a small tensor: more threads with less work each are faster
        part = program % 4
        word = tl.where(part < 2, tl.where(part == 0, w0, w1), tl.where(part == 2, w2, w3))
        at = offset + part * 2 * CALLS
        _write_slots(
            x_ptr, grad_ptr, result_ptr, at, left, box_muller(word), lam, phi, 2,
            DIFFERENCE, P0, P1, TINY, COMPUTE, BACKWARD,
        )  # fmt: skip


@triton.jit
def _kernel_out_of_order(
    x_ptr, grad_ptr, result_ptr, seed_ptr, lam_ptr, phi_ptr,
    num, groups, inner, height, width,
    DIFFERENCE: tl.constexpr, P0: tl.constexpr, P1: tl.constexpr,
    TINY: tl.constexpr, COMPUTE: tl.constexpr, BACKWARD: tl.constexpr,
    SIZE: tl.constexpr, WIDE: tl.constexpr,
):  # fmt: skip
    """Elements in the order of memory, each with a Philox call of its own.

    The memory is a batch of matrices of ``height`` rows and ``width`` columns, and the logical
    order runs down the columns.
    """
    position = tl.program_id(0).to(tl.int64) * SIZE + tl.arange(0, SIZE)
    inside = position < num
    x = tl.load(x_ptr + position, inside)
    grad = tl.load(grad_ptr + position, inside) if BACKWARD else None
    logical = position if WIDE else position.to(tl.int32)
    column, row = logical % width, logical // width % height
    logical += column * height + row - row * width - column
    group = logical // inner % groups
    index = (logical // (inner * groups) * inner + logical % inner).to(tl.int64)
    eps = normal_at(index, tl.load(seed_ptr + group, inside))
    lam, phi = tl.load(lam_ptr + group, inside), tl.load(phi_ptr)
    found = result(x, grad, eps, lam, phi, DIFFERENCE, P0, P1, TINY, COMPUTE, BACKWARD)
    tl.store(result_ptr + position, found.to(result_ptr.dtype.element_ty), inside)


@triton.jit
def _kernel_limit(
    x_ptr, grad_ptr, result_ptr, num,
    LIMIT: tl.constexpr, P0: tl.constexpr, P1: tl.constexpr,
    COMPUTE: tl.constexpr, BACKWARD: tl.constexpr, SIZE: tl.constexpr,
):  # fmt: skip
    """Elements in the order of memory: the limit has no noise that depends on a position."""
    position = tl.program_id(0).to(tl.int64) * SIZE + tl.arange(0, SIZE)
    inside = position < num
    x = tl.load(x_ptr + position, inside).to(COMPUTE)
    value, slope = LIMIT(x, P0, P1)
    if BACKWARD:
        value = tl.load(grad_ptr + position, inside).to(COMPUTE) * slope
    tl.store(result_ptr + position, value.to(result_ptr.dtype.element_ty), inside)


def _options(x: Tensor, name: str, parameters: tuple[float, ...], **flags: Any) -> dict[str, Any]:
    return {
        **form(x, name, parameters),
        **flags,
        "num_warps": THREADS.value // 32,
        "enable_fp_fusion": True,
    }


def _options_of_limit(
    x: Tensor, name: str, parameters: tuple[float, ...], is_backward: bool
) -> dict[str, Any]:
    p0, p1, *_ = (*parameters, 0.0, 0.0)
    return {
        "LIMIT": getattr(cuda_limits, name),
        "P0": p0,
        "P1": p1,
        "COMPUTE": tl.float64 if x.dtype == torch.float64 else tl.float32,
        "BACKWARD": is_backward,
        "SIZE": _SIZE,
        "num_warps": 4,
        "enable_fp_fusion": True,
    }


_in_order = Launcher(
    _kernel_in_order,
    lambda x, name, parameters, is_backward, is_whole: _options(
        x, name, parameters, BACKWARD=is_backward, WHOLE=is_whole
    ),
)
_out_of_order = Launcher(
    _kernel_out_of_order,
    lambda x, name, parameters, is_backward, is_wide: _options(
        x, name, parameters, BACKWARD=is_backward, WIDE=is_wide, SIZE=_SIZE
    ),
)
_limit = Launcher(_kernel_limit, _options_of_limit)


def normals(seed: Tensor, num: int) -> Tensor:
    """The noise alone, as :func:`qneurons.noise.normals`."""
    x = torch.empty(seed.numel(), num, device=seed.device)
    lam, phi = torch.ones(seed.numel(), device=seed.device), torch.zeros(1, device=seed.device)
    return forward(x, seed.flatten(), lam, phi, max(num, 1), "q_delta", ())


def supports(dtype: torch.dtype, name: str) -> bool:
    return dtype in _DTYPES and hasattr(cuda_forms, name.removeprefix(BASE))


def why_unavailable() -> str:
    return "the kernels use instructions of NVIDIA GPUs" if torch.version.hip else ""


def details() -> str:
    return f"Triton {triton.__version__}"


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
    result = torch.empty_like(x) if out is None else out
    if x.numel() == 0:
        return result
    matrices = as_matrices(x)
    if matrices is None:
        if grad is not None:
            grad = grad.contiguous()
        dense = x.contiguous()
        return result.copy_(backward(grad, dense, seed, lam, phi, inner, name, parameters))
    if grad is not None and grad.stride() != x.stride():
        grad = torch.empty_like(x).copy_(grad)
    height, width = matrices
    groups = seed.numel()
    num = x.numel() // groups
    tensors = (x, grad, result, seed.contiguous(), lam.contiguous(), phi)
    key = name, tuple(parameters), grad is not None
    if height == 1 and (groups == 1 or inner == num) and groups <= _MAX_GROUPS:
        num_blocks = cdiv(num, BLOCK.value)
        is_whole = num_blocks * groups >= _MANY_BLOCKS
        grid = num_blocks if is_whole else 4 * num_blocks, groups, 1
        _in_order(grid, tensors, (num,), *key, is_whole)
    else:
        grid = cdiv(x.numel(), _SIZE), 1, 1
        numbers = x.numel(), groups, inner, height, width
        _out_of_order(grid, tensors, numbers, *key, x.numel() >= 2**31)
    return result


forward = partial(backward, None)


def limit_backward(
    grad: Tensor | None, x: Tensor, name: str, parameters: Sequence[float]
) -> Tensor:
    """As :func:`qneurons.kernels.plain.limit_backward`."""
    result, num = torch.empty_like(x), x.numel()
    if num == 0:
        return result
    if result.stride() != x.stride():  # there are gaps in the memory
        grad = None if grad is None else grad.contiguous()
        return result.copy_(limit_backward(grad, x.contiguous(), name, parameters))
    if grad is not None and grad.stride() != x.stride():
        grad = torch.empty_like(x).copy_(grad)
    grid = cdiv(num, _SIZE), 1, 1
    _limit(grid, (x, grad, result), (num,), name, tuple(parameters), grad is not None)
    return result


limit = partial(limit_backward, None)
