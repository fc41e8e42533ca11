"""CUDA kernels for the convolutions of a pack, as products of patches that are never stored.

The products sum over k = (tap, channel). At every position of the output the patch under the kernel
has one element for each k, and every run multiplies it by its own matrix.
"""
# mypy: disable-error-code="no-untyped-def, import-untyped, assignment"

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

_KERNEL = tl.constexpr(3)
_TAPS = tl.constexpr(9)


@triton.jit
def _patches(
    x_ptr, position, k, stride_c, stride_b, num_positions,
    CHANNELS: tl.constexpr, HEIGHT: tl.constexpr, WIDTH: tl.constexpr, PADDING: tl.constexpr,
):  # fmt: skip
    """The elements of patches for some positions and some k, which broadcast."""
    out_height: tl.constexpr = HEIGHT + 2 * PADDING - (_KERNEL - 1)
    out_width: tl.constexpr = WIDTH + 2 * PADDING - (_KERNEL - 1)
    column, row = position % out_width, position // out_width % out_height
    image = position // (out_width * out_height)
    tap, channel = k // CHANNELS, k % CHANNELS
    down, right = tap // _KERNEL, tap % _KERNEL
    start = image.to(tl.int64) * stride_b + (row - PADDING) * WIDTH + (column - PADDING)
    inside = (position < num_positions) & (k < _TAPS * CHANNELS)
    if PADDING > 0:
        y, x = row - PADDING + down, column - PADDING + right
        inside = inside & (y >= 0) & (y < HEIGHT) & (x >= 0) & (x < WIDTH)
    return tl.load(x_ptr + start + (channel * stride_c + down * WIDTH + right), inside, 0.0)


@triton.jit
def _correlate(
    x_ptr, matrix_ptr, bias_ptr, out_ptr,
    stride_r, stride_c, stride_b, num_positions,
    CHANNELS: tl.constexpr, FEATURES: tl.constexpr,
    HEIGHT: tl.constexpr, WIDTH: tl.constexpr, PADDING: tl.constexpr,
    BIAS: tl.constexpr, PRECISION: tl.constexpr,
    BLOCK_P: tl.constexpr, BLOCK_K: tl.constexpr, BLOCK_F: tl.constexpr,
):  # fmt: skip
    run = tl.program_id(2).to(tl.int64)
    position = tl.program_id(0) * BLOCK_P + tl.arange(0, BLOCK_P)
    feature = tl.program_id(1) * BLOCK_F + tl.arange(0, BLOCK_F)
    depth: tl.constexpr = _TAPS * CHANNELS
    x_ptr += run * stride_r
    matrix_ptr += run * depth * FEATURES
    total = tl.zeros((BLOCK_P, BLOCK_F), tl.float32)
    for begin in range(0, depth, BLOCK_K):
        k = begin + tl.arange(0, BLOCK_K)
        patches = _patches(
            x_ptr, position[:, None], k[None, :], stride_c, stride_b, num_positions,
            CHANNELS, HEIGHT, WIDTH, PADDING,
        )  # fmt: skip
        inside = (k[:, None] < depth) & (feature[None, :] < FEATURES)
        matrix = tl.load(matrix_ptr + k[:, None] * FEATURES + feature[None, :], inside, 0.0)
        total = tl.dot(patches, matrix, total, input_precision=PRECISION)
    if BIAS:
        total += tl.load(bias_ptr + run * FEATURES + feature, feature < FEATURES, 0.0)[None, :]
    out_ptr += run * FEATURES * num_positions
    at = feature[None, :].to(tl.int64) * num_positions + position[:, None]
    inside = (position[:, None] < num_positions) & (feature[None, :] < FEATURES)
    tl.store(out_ptr + at, total.to(out_ptr.dtype.element_ty), inside)


@triton.jit
def _correlate_gradients(
    x_ptr, grad_ptr, out_ptr, bias_ptr,
    stride_r, stride_c, stride_b, num_positions,
    CHANNELS: tl.constexpr, FEATURES: tl.constexpr,
    HEIGHT: tl.constexpr, WIDTH: tl.constexpr, PADDING: tl.constexpr,
    PRECISION: tl.constexpr, SHARE: tl.constexpr,
    BLOCK_P: tl.constexpr, BLOCK_K: tl.constexpr, BLOCK_F: tl.constexpr,
):  # fmt: skip
    """The gradients of matrices and biases, summed over a share of the positions."""
    part, run = tl.program_id(1), tl.program_id(2).to(tl.int64)
    depth: tl.constexpr = _TAPS * CHANNELS
    k = tl.program_id(0) * BLOCK_K + tl.arange(0, BLOCK_K)
    feature = tl.arange(0, BLOCK_F)
    x_ptr += run * stride_r
    grad_ptr += run * FEATURES * num_positions
    total = tl.zeros((BLOCK_K, BLOCK_F), tl.float32)
    grads = tl.zeros((BLOCK_P, BLOCK_F), tl.float32)
    for begin in range(0, SHARE, BLOCK_P):
        position = part * SHARE + begin + tl.arange(0, BLOCK_P)
        patches = _patches(
            x_ptr, position[None, :], k[:, None], stride_c, stride_b, num_positions,
            CHANNELS, HEIGHT, WIDTH, PADDING,
        )  # fmt: skip
        inside = (position[:, None] < num_positions) & (feature[None, :] < FEATURES)
        at = feature[None, :].to(tl.int64) * num_positions + position[:, None]
        grad = tl.load(grad_ptr + at, inside, 0.0)
        total = tl.dot(patches, grad, total, input_precision=PRECISION)
        if tl.program_id(0) == 0:
            grads += grad.to(tl.float32)
    if tl.program_id(0) == 0:
        bias_ptr += (part * tl.num_programs(2) + run) * FEATURES
        tl.store(bias_ptr + feature, tl.sum(grads, 0), feature < FEATURES)
    out_ptr += (part * tl.num_programs(2) + run) * depth * FEATURES
    inside = (k[:, None] < depth) & (feature[None, :] < FEATURES)
    tl.store(out_ptr + k[:, None] * FEATURES + feature[None, :], total, inside)


def convolve(x: Tensor, weight: Tensor, bias: Tensor | None, padding: int) -> Tensor:
    """x, run × channel × batch × height × width, by run × feature × channel × 3 × 3."""
    runs, _, batch, height, width = x.shape
    features = weight.shape[1]
    matrix = weight.to(x.dtype).permute(0, 3, 4, 2, 1).contiguous()  # (tap, channel) × feature
    size = height + 2 * padding - 2, width + 2 * padding - 2
    out = torch.empty(runs, features, batch, *size, dtype=x.dtype, device=x.device)
    num_positions = batch * size[0] * size[1]
    block_f = max(16, min(64, triton.next_power_of_2(features)))
    block_p, block_k, num_warps = _blocks(x, block_f)
    grid = triton.cdiv(num_positions, block_p), triton.cdiv(features, block_f), runs
    _correlate[grid](
        x, matrix, bias, out, *x.stride()[:3], num_positions,
        **_constants(x, features, padding), BIAS=bias is not None,
        BLOCK_P=block_p, BLOCK_K=block_k, BLOCK_F=block_f, num_warps=num_warps, num_stages=1,
    )  # fmt: skip
    return out


def _blocks(x: Tensor, block_f: int) -> tuple[int, int, int]:
    """Positions, k and warps of a block: the fastest that were tried for the paper's layers.

    There is no pipelining: in float32 the products need k contiguous, and pipelining copies it
    element by element (with 128 positions and k of 16 this takes 1.5 times as long).
    """
    if x.dtype == torch.bfloat16:
        return 128, (64 if block_f == 32 and x.shape[1] >= 32 else 32), 4
    return (128, 32, 4) if block_f == 64 else (256, 16, 8)


def convolve_gradients(x: Tensor, grad: Tensor, padding: int) -> tuple[Tensor, Tensor]:
    """The gradients of weights and biases, in float32."""
    runs, channels = x.shape[:2]
    features, num_positions = grad.shape[1], grad[0, 0].numel()
    # The fastest that were tried for the paper's layers, as in _blocks.
    if 9 * channels <= 16:
        block_k, block_p, num_stages = 16, 256, 1
    else:
        block_k = 32 if 9 * channels <= 32 else 64
        block_p = 128 if x.dtype == torch.bfloat16 else 32 if features > 32 else 64
        num_stages = 3
    blocks = triton.cdiv(9 * channels, block_k)
    # Enough programs to fill the device. Each part is summed in a fixed order: reproducible.
    parts = max(1, min(triton.cdiv(1024, blocks * runs), num_positions // 1024))
    share = triton.cdiv(triton.cdiv(num_positions, parts), block_p) * block_p
    matrix = x.new_empty(parts, runs, 9 * channels, features, dtype=torch.float32)
    bias = x.new_empty(parts, runs, features, dtype=torch.float32)
    _correlate_gradients[blocks, parts, runs](
        x, grad, matrix, bias, *x.stride()[:3], num_positions,
        **_constants(x, features, padding), SHARE=share,
        BLOCK_P=block_p, BLOCK_K=block_k, BLOCK_F=max(16, triton.next_power_of_2(features)),
        num_warps=4, num_stages=num_stages,
    )  # fmt: skip
    of_weight = matrix.sum(0).unflatten(1, (3, 3, channels)).permute(0, 4, 3, 1, 2)
    # Contiguous like the weights: only then are additions to many tensors fused.
    return of_weight.contiguous(), bias.sum(0)


def _constants(x: Tensor, features: int, padding: int) -> dict[str, Any]:
    height, width = x.shape[3:]
    return {
        "CHANNELS": x.shape[1],
        "FEATURES": features,
        "HEIGHT": height,
        "WIDTH": width,
        "PADDING": padding,
        "PRECISION": "tf32" if torch.backends.cuda.matmul.allow_tf32 else "ieee",
    }
