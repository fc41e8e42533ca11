"""CUDA kernels that save memory traffic: batch normalisation of a pack."""
# mypy: disable-error-code="no-untyped-def, import-untyped, assignment"

import torch
import triton
import triton.language as tl
from torch import Tensor


@triton.jit
def _read(ptr, begin, start, is_row, LENGTH: tl.constexpr, BLOCK_L: tl.constexpr):
    """A block of rows from column ``start``, its offsets, and which elements exist."""
    column = start + tl.arange(0, BLOCK_L)[None, :]
    at, inside = begin[:, None] + column, is_row[:, None] & (column < LENGTH)
    return tl.load(ptr + at, inside, 0.0).to(tl.float32), at, inside


@triton.jit
def _normalise(
    x_ptr, out_ptr, weight_ptr, bias_ptr, running_mean_ptr, running_var_ptr, mean_ptr, scale_ptr,
    num_rows, momentum, eps,
    LENGTH: tl.constexpr, BLOCK_R: tl.constexpr, BLOCK_L: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0) * BLOCK_R + tl.arange(0, BLOCK_R)
    is_row = row < num_rows
    begin = row.to(tl.int64) * LENGTH
    # Moments about the first element, which is near the mean: squares of x itself would cancel.
    origin = tl.load(x_ptr + begin, is_row, 0.0).to(tl.float32)
    first = tl.zeros((BLOCK_R, BLOCK_L), tl.float32)
    second = tl.zeros((BLOCK_R, BLOCK_L), tl.float32)
    if LENGTH <= BLOCK_L:
        x, at, inside = _read(x_ptr, begin, 0, is_row, LENGTH, BLOCK_L)
    for start in range(0, LENGTH, BLOCK_L):
        if LENGTH > BLOCK_L:
            x, at, inside = _read(x_ptr, begin, start, is_row, LENGTH, BLOCK_L)
        moved = tl.where(inside, x - origin[:, None], 0.0)
        first += moved
        second += moved * moved
    shift = tl.sum(first, 1) / LENGTH
    variance = tl.maximum(tl.sum(second, 1) / LENGTH - shift * shift, 0.0)
    mean, scale = origin + shift, 1 / tl.sqrt(variance + eps)
    tl.store(mean_ptr + row, mean, is_row)
    tl.store(scale_ptr + row, scale, is_row)
    running_mean = tl.load(running_mean_ptr + row, is_row)
    running_var = tl.load(running_var_ptr + row, is_row)
    unbiased = variance * (LENGTH / (LENGTH - 1))
    tl.store(running_mean_ptr + row, running_mean + momentum * (mean - running_mean), is_row)
    tl.store(running_var_ptr + row, running_var + momentum * (unbiased - running_var), is_row)
    scale *= tl.load(weight_ptr + row, is_row, 0.0)
    bias = tl.load(bias_ptr + row, is_row, 0.0)
    for start in range(0, LENGTH, BLOCK_L):
        if LENGTH > BLOCK_L:
            x, at, inside = _read(x_ptr, begin, start, is_row, LENGTH, BLOCK_L)
        out = (x - mean[:, None]) * scale[:, None] + bias[:, None]
        tl.store(out_ptr + at, out.to(out_ptr.dtype.element_ty), inside)


@triton.jit
def _normalise_backward(
    grad_ptr, x_ptr, out_ptr, weight_ptr, mean_ptr, scale_ptr, grad_weight_ptr, grad_bias_ptr,
    num_rows, LENGTH: tl.constexpr, BLOCK_R: tl.constexpr, BLOCK_L: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0) * BLOCK_R + tl.arange(0, BLOCK_R)
    is_row = row < num_rows
    begin = row.to(tl.int64) * LENGTH
    mean, scale = tl.load(mean_ptr + row, is_row, 0.0), tl.load(scale_ptr + row, is_row, 0.0)
    plain = tl.zeros((BLOCK_R, BLOCK_L), tl.float32)
    scaled = tl.zeros((BLOCK_R, BLOCK_L), tl.float32)
    if LENGTH <= BLOCK_L:
        x, at, inside = _read(x_ptr, begin, 0, is_row, LENGTH, BLOCK_L)
        grad, _, _ = _read(grad_ptr, begin, 0, is_row, LENGTH, BLOCK_L)
    for start in range(0, LENGTH, BLOCK_L):
        if LENGTH > BLOCK_L:
            x, at, inside = _read(x_ptr, begin, start, is_row, LENGTH, BLOCK_L)
            grad, _, _ = _read(grad_ptr, begin, start, is_row, LENGTH, BLOCK_L)
        plain += grad
        scaled += grad * (x - mean[:, None])
    grad_bias, grad_weight = tl.sum(plain, 1), tl.sum(scaled, 1) * scale
    tl.store(grad_bias_ptr + row, grad_bias, is_row)
    tl.store(grad_weight_ptr + row, grad_weight, is_row)
    factor = tl.load(weight_ptr + row, is_row, 0.0) * scale
    offset, slope = grad_bias / LENGTH, grad_weight * scale / LENGTH
    for start in range(0, LENGTH, BLOCK_L):
        if LENGTH > BLOCK_L:
            x, at, inside = _read(x_ptr, begin, start, is_row, LENGTH, BLOCK_L)
            grad, _, _ = _read(grad_ptr, begin, start, is_row, LENGTH, BLOCK_L)
        out = factor[:, None] * (grad - offset[:, None] - slope[:, None] * (x - mean[:, None]))
        tl.store(out_ptr + at, out.to(out_ptr.dtype.element_ty), inside)


def _blocks(length: int, largest: int) -> dict[str, int]:
    """Rows and columns of a block: the fastest that were tried.

    A row is read once and whole, up to the ``largest`` length for which registers do not spill. Of
    longer rows, so few are processed at a time that they are still cached at the second reading.
    """
    columns = triton.next_power_of_2(length)
    if columns > largest:
        columns = 16384
    num_warps = 4 if columns < 1024 else 8 if length <= 16384 else 32
    return {"BLOCK_R": max(1, 1024 // columns), "BLOCK_L": columns, "num_warps": num_warps}


def normalise(
    x: Tensor, weight: Tensor, bias: Tensor, running: tuple[Tensor, Tensor],
    momentum: float, eps: float,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """The normalised rows of x, their means, and one over their standard deviations."""
    num_rows, length = x.shape
    out = torch.empty_like(x)
    mean, scale = (torch.empty(num_rows, dtype=torch.float32, device=x.device) for _ in range(2))
    blocks = _blocks(length, 65536)
    _normalise[(triton.cdiv(num_rows, blocks["BLOCK_R"]),)](
        x, out, weight, bias, *running, mean, scale, num_rows, momentum, eps, length, **blocks
    )
    return out, mean, scale


def normalise_backward(
    grad: Tensor, x: Tensor, weight: Tensor, mean: Tensor, scale: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """The gradients of x, weight and bias."""
    num_rows, length = x.shape
    out, grad_weight, grad_bias = (torch.empty_like(tensor) for tensor in (x, mean, mean))
    blocks = _blocks(length, 16384)
    _normalise_backward[(triton.cdiv(num_rows, blocks["BLOCK_R"]),)](
        grad, x, out, weight, mean, scale, grad_weight, grad_bias, num_rows, length, **blocks
    )
    return out, grad_weight, grad_bias
