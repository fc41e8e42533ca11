"""How the logical order of a tensor lies in memory."""

import math

from torch import Tensor

IN_ORDER = 1, 1  # matrices of height 1


def as_matrices(x: Tensor) -> tuple[int, int] | None:
    """Height and width of matrices in memory whose columns give the logical order.

    In channels_last they are pixels × channels, and in a contiguous tensor of height 1. None means
    that the memory is not a batch of such matrices.
    """
    if x.is_contiguous():
        return IN_ORDER
    sizes: list[int] = []
    strides: list[int] = []
    for size, stride in zip(x.shape, x.stride(), strict=True):
        if size == 1:
            continue
        if strides and strides[-1] == stride * size:  # continues the dimension before
            sizes[-1] *= size
            strides[-1] = stride
        else:
            sizes.append(size)
            strides.append(stride)
    if len(sizes) == 2:
        sizes, strides = [1, *sizes], [math.prod(sizes), *strides]
    if len(sizes) == 3:
        _, width, height = sizes
        if strides == [width * height, 1, width]:
            return height, width
    return None
