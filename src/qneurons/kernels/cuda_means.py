"""Means from a table of pieces on CUDA: one Triton kernel reads x, finds its piece and writes."""
# mypy: disable-error-code="no-untyped-def, import-untyped, assignment"

import torch
import triton
import triton.language as tl
from torch import Tensor

from qneurons.kernels.cuda_launch import Launcher, cdiv
from qneurons.kernels.cuda_math import times

_SIZE = 1024  # of a block
FLOAT32_MAX = tl.constexpr(torch.finfo(torch.float32).max)


@triton.jit
def _look_up(
    x_ptr, pieces_ptr, centres_ptr, out_ptr, num,
    NUM_PIECES: tl.constexpr, NUM_CENTRES: tl.constexpr, SIZE: tl.constexpr,
):  # fmt: skip
    table, num_tables = tl.program_id(1).to(tl.int64), tl.num_programs(1)
    at = tl.program_id(0).to(tl.int64) * SIZE + tl.arange(0, SIZE)
    inside = at < num
    x = tl.load(x_ptr + table * num + at, inside, 0.0).to(tl.float32)
    row = num_tables.to(tl.int64) * NUM_PIECES
    if NUM_PIECES == 2:  # about zero, where all other coefficients are 0
        low_ptr, below = pieces_ptr + table * 2, x < 0
        slope = tl.where(below, tl.load(low_ptr + 2 * row), tl.load(low_ptr + 2 * row + 1))
        curvature = tl.where(below, tl.load(low_ptr + 3 * row), tl.load(low_ptr + 3 * row + 1))
        finite = tl.clamp(x, -FLOAT32_MAX, FLOAT32_MAX, tl.PropagateNan.ALL)
        out = times(x, slope + finite * curvature)
    else:
        position = tl.zeros_like(x)
        for centre in tl.static_range(NUM_CENTRES):
            distance = x - tl.load(centres_ptr + centre)
            size = tl.abs(distance) * tl.load(centres_ptr + NUM_CENTRES + centre)
            term = tl.log(1 + size) * tl.load(centres_ptr + 2 * NUM_CENTRES + centre)
            term = tl.maximum(term, 1e-30)  # so that a tiny negative x keeps its sign
            position += tl.where(distance < 0, -term, term)
        piece = tl.floor(position) + NUM_PIECES // 2
        piece = tl.where(piece >= 0, piece, 0.0)  # also for NaN
        piece = table * NUM_PIECES + tl.minimum(piece, NUM_PIECES - 1.0).to(tl.int32)
        step = x - tl.load(pieces_ptr + piece, inside, 0.0)
        finite = tl.clamp(step, -FLOAT32_MAX, FLOAT32_MAX, tl.PropagateNan.ALL)
        slope = tl.load(pieces_ptr + 4 * row + piece, inside, 0.0)
        for done in tl.static_range(2):
            slope = tl.load(pieces_ptr + (3 - done) * row + piece, inside, 0.0) + finite * slope
        out = tl.load(pieces_ptr + row + piece, inside, 0.0) + times(step, slope)
    tl.store(out_ptr + table * num + at, out.to(out_ptr.dtype.element_ty), inside)


_launch = Launcher(
    _look_up,
    lambda x, num_pieces, num_centres: {
        "NUM_PIECES": num_pieces,
        "NUM_CENTRES": num_centres,
        "SIZE": _SIZE,
    },
)


def look_up(x: Tensor, pieces: Tensor, centres: Tensor) -> Tensor:
    """As ``mean_table.look_up``, for a contiguous x and tables in float32."""
    out, (_, num_tables, num_pieces) = torch.empty_like(x), pieces.shape
    num = x.numel() // num_tables
    if num:
        grid = cdiv(num, _SIZE), num_tables, 1
        _launch(grid, (x, pieces, centres, out), (num,), num_pieces, centres.shape[1])
    return out
