"""CUDA kernels for an activation and the max pooling after it, which write no result between them.

Forward notes which element of every window is the first maximum, in a byte. Backward draws again,
but for these elements alone.
"""
# mypy: disable-error-code="no-untyped-def, import-untyped, assignment, misc, var-annotated"

from collections.abc import Sequence
from typing import Any

import triton
import triton.language as tl
from torch import Tensor

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

_SIZE = 1024  # windows of a block of an elementwise kernel
Law = tuple[Tensor, Tensor, Tensor, int, str, Sequence[float]]  # as a backend takes it


@triton.jit
def _larger(a, b):
    return tl.maximum(a, b, propagate_nan=tl.PropagateNan.ALL)


@triton.jit
def _corner(window, HEIGHT: tl.constexpr, WIDTH: tl.constexpr):
    """Where a window begins in a run."""
    column, row = window % (WIDTH // 2), window // (WIDTH // 2) % (HEIGHT // 2)
    plane = window // (WIDTH // 2 * (HEIGHT // 2))
    return plane * (HEIGHT * WIDTH) + 2 * row * WIDTH + 2 * column


@triton.jit
def _windows_before(index, HEIGHT: tl.constexpr, WIDTH: tl.constexpr):
    """How many windows of a run begin before an index."""
    plane, row, column = index // (HEIGHT * WIDTH), index // WIDTH % HEIGHT, index % WIDTH
    columns: tl.constexpr = WIDTH // 2
    size: tl.constexpr = HEIGHT // 2 * columns
    in_row = tl.where(row % 2 == 0, tl.minimum((column + 1) // 2, columns), columns)
    return plane * size + tl.minimum(row // 2 * columns + in_row, size)


@triton.jit
def _elements(corner, WIDTH: tl.constexpr):
    """Where the elements of windows are, [windows, columns, rows]."""
    return tl.join(tl.join(corner, corner + 1), tl.join(corner + WIDTH, corner + WIDTH + 1))


@triton.jit
def _write(out_ptr, choice_ptr, at, inside, elements):
    """The maxima of windows, and which element is the first maximum."""
    upper, lower = tl.split(elements.to(tl.float32))  # the interpreter compares bfloat16 as bits
    a, b = tl.split(upper)
    c, d = tl.split(lower)
    largest = _larger(_larger(a, b), _larger(c, d))
    choice = tl.where(a == largest, 0, tl.where(b == largest, 1, tl.where(c == largest, 2, 3)))
    tl.store(out_ptr + at, largest.to(out_ptr.dtype.element_ty), inside)
    tl.store(choice_ptr + at, choice.to(tl.uint8), inside)


@triton.jit
def _pool(
    x_ptr, out_ptr, choice_ptr, num, num_windows,
    HEIGHT: tl.constexpr, WIDTH: tl.constexpr, SIZE: tl.constexpr,
):  # fmt: skip
    run = tl.program_id(1).to(tl.int64)
    at = tl.program_id(0) * SIZE + tl.arange(0, SIZE)
    inside = at < num_windows
    # In pairs, because a thread reads neighbours at once.
    pair = _corner(at, HEIGHT, WIDTH)[:, None] + tl.arange(0, 2)[None, :]
    x_ptr += run * num
    upper = tl.load(x_ptr + pair, inside[:, None])
    lower = tl.load(x_ptr + WIDTH + pair, inside[:, None])
    begin = run * num_windows
    _write(out_ptr + begin, choice_ptr + begin, at, inside, tl.join(upper, lower))


@triton.jit
def _activate_and_pool(
    x_ptr, out_ptr, choice_ptr, seed_ptr, lam_ptr, phi_ptr, num, num_windows,
    HEIGHT: tl.constexpr, WIDTH: tl.constexpr, MOST_CROSSING: tl.constexpr,
    DIFFERENCE: tl.constexpr, P0: tl.constexpr, P1: tl.constexpr,
    TINY: tl.constexpr, COMPUTE: tl.constexpr,
):  # fmt: skip
    """The windows that begin in one block of the noise.

    The block's results are computed in its order, where a Philox call serves eight of them, and
    gathered through shared memory. The windows that end in the next block, at most a row of them,
    draw each element for itself.
    """
    begin, run = tl.program_id(0) * BLOCK, tl.program_id(1).to(tl.int64)
    x_ptr += run * num
    out_ptr += run * num_windows
    choice_ptr += run * num_windows
    dtype = out_ptr.dtype.element_ty
    seed, lam, phi = tl.load(seed_ptr + run), tl.load(lam_ptr + run), tl.load(phi_ptr)
    call = 4 * tl.arange(0, THREADS)
    offset = begin + call[:, None] + tl.arange(0, 4)[None, :]
    w0, w1, w2, w3 = words_of_threads((begin // 8 + call).to(tl.int64), seed)
    slots = ()
    for half in tl.static_range(2):
        eps = box_muller(w2 if half else w0) + box_muller(w3 if half else w1)
        xs = ()
        for slot in tl.static_range(4):
            at = offset + (half * 4 + slot) * CALLS
            xs += (tl.load(x_ptr + at, at < num),)
        for slot in tl.static_range(4):
            x, e = xs[slot], eps[slot]
            slots += (result(x, None, e, lam, phi, DIFFERENCE, P0, P1, TINY, COMPUTE, False),)
    even = tl.join(tl.join(slots[0], slots[4]), tl.join(slots[2], slots[6]))
    odd = tl.join(tl.join(slots[1], slots[5]), tl.join(slots[3], slots[7]))
    in_order = tl.permute(tl.join(even, odd), (2, 3, 4, 0, 1))  # the bits of a slot come first
    block = tl.reshape(in_order, (BLOCK,)).to(dtype)

    at = _windows_before(begin, HEIGHT, WIDTH) + tl.arange(0, BLOCK // 4)
    corner = _corner(at, HEIGHT, WIDTH) - begin
    inside = (corner + WIDTH + 1 < BLOCK) & (at < num_windows)
    places = _elements(tl.where(inside, corner, 0), WIDTH)
    found = tl.gather(block, tl.reshape(places, (BLOCK,)), 0)
    _write(out_ptr, choice_ptr, at, inside, tl.reshape(found, (BLOCK // 4, 2, 2)))

    end = begin + BLOCK
    at = _windows_before(end - WIDTH - 1, HEIGHT, WIDTH) + tl.arange(0, MOST_CROSSING)
    corner = _corner(at, HEIGHT, WIDTH)
    inside = (corner < end) & (at < num_windows)
    places = _elements(corner, WIDTH)
    x = tl.load(x_ptr + places, inside[:, None, None])
    eps = normal_at(places, seed)
    found = result(x, None, eps, lam, phi, DIFFERENCE, P0, P1, TINY, COMPUTE, False)
    _write(out_ptr, choice_ptr, at, inside, found.to(dtype))


@triton.jit
def _pool_backward(
    grad_ptr, choice_ptr, x_ptr, out_ptr, seed_ptr, lam_ptr, phi_ptr, num, num_windows,
    HEIGHT: tl.constexpr, WIDTH: tl.constexpr, SIZE: tl.constexpr,
    DIFFERENCE: tl.constexpr, P0: tl.constexpr, P1: tl.constexpr,
    TINY: tl.constexpr, COMPUTE: tl.constexpr,
):  # fmt: skip
    """Writes whole windows, and at odd borders parts of windows, which have no gradient."""
    run = tl.program_id(1).to(tl.int64)
    at = tl.program_id(0) * SIZE + tl.arange(0, SIZE)
    columns: tl.constexpr = (WIDTH + 1) // 2
    rows: tl.constexpr = (HEIGHT + 1) // 2
    column, row, plane = at % columns, at // columns % rows, at // (columns * rows)
    corner = plane * (HEIGHT * WIDTH) + 2 * row * WIDTH + 2 * column
    inside = corner < num
    is_whole = inside & (column < WIDTH // 2) & (row < HEIGHT // 2)
    window = run * num_windows + (plane * (HEIGHT // 2) + row) * (WIDTH // 2) + column
    grad = tl.load(grad_ptr + window, is_whole, 0.0)
    choice = tl.load(choice_ptr + window, is_whole, 0).to(tl.int32)
    if DIFFERENCE is not None:
        place = corner + choice % 2 + choice // 2 * WIDTH
        x = tl.load(x_ptr + run * num + place, is_whole, 0.0)
        eps = normal_at(place, tl.load(seed_ptr + run))
        lam, phi = tl.load(lam_ptr + run), tl.load(phi_ptr)
        grad = result(x, grad, eps, lam, phi, DIFFERENCE, P0, P1, TINY, COMPUTE, True)
    grad = grad.to(out_ptr.dtype.element_ty)
    upper = tl.join(tl.where(choice == 0, grad, 0.0), tl.where(choice == 1, grad, 0.0))
    lower = tl.join(tl.where(choice == 2, grad, 0.0), tl.where(choice == 3, grad, 0.0))
    side = tl.arange(0, 2)[None, :]
    pair, mask = corner[:, None] + side, inside[:, None]
    if WIDTH % 2:
        mask &= 2 * column[:, None] + side < WIDTH
    out_ptr += run * num
    tl.store(out_ptr + pair, upper, mask)
    if HEIGHT % 2:
        mask &= (2 * row + 1 < HEIGHT)[:, None]
    tl.store(out_ptr + WIDTH + pair, lower, mask)


def pool(x: Tensor, out: Tensor, choice: Tensor, law: Law | None = None) -> None:
    """Max pooling over 2 × 2 in the last two dimensions of x, or of its activation by a law.

    The first dimension is the run, and everything is contiguous. In ``choice``, of bytes, goes
    which element of a window is the first maximum.
    """
    height, width = x.shape[-2:]
    num, num_windows = x[0].numel(), out[0].numel()
    if law is None:
        _pool[triton.cdiv(num_windows, _SIZE), len(x)](
            x, out, choice, num, num_windows, HEIGHT=height, WIDTH=width, SIZE=_SIZE
        )
        return
    seed, lam, phi, _, name, parameters = law
    _activate_and_pool[triton.cdiv(num, BLOCK.value), len(x)](
        *(x, out, choice, seed, lam, phi, num, num_windows),
        HEIGHT=height,
        WIDTH=width,
        MOST_CROSSING=triton.next_power_of_2(width // 2),
        num_warps=THREADS.value // 32,
        enable_fp_fusion=True,
        **form(x, name, parameters),
    )


def pool_backward(
    grad: Tensor, x: Tensor, choice: Tensor, out: Tensor, law: Law | None = None
) -> None:
    """The gradient with respect to x, for the ``choice`` that :func:`pool` has made."""
    height, width = x.shape[-2:]
    num = x[0].numel()
    num_parts = num // (height * width) * ((height + 1) // 2) * ((width + 1) // 2)
    options: dict[str, Any] = dict.fromkeys(("DIFFERENCE", "P0", "P1", "TINY", "COMPUTE"))
    seed = lam = phi = None
    if law is not None:
        seed, lam, phi, _, name, parameters = law
        options = form(x, name, parameters)
    _pool_backward[triton.cdiv(num_parts, _SIZE), len(x)](
        *(grad, choice, x, out, seed, lam, phi, num, grad[0].numel()),
        HEIGHT=height,
        WIDTH=width,
        SIZE=_SIZE,
        enable_fp_fusion=True,
        **options,
    )
