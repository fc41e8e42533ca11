"""The q-activation in one pass over memory: a backend per device, plain torch elsewhere."""

from qneurons.kernels.autograd import difference, drawn_difference
from qneurons.kernels.dispatch import device_type, find, is_fused, kernel_row, status
from qneurons.kernels.ops import draw_seed

__all__ = [
    "device_type",
    "difference",
    "draw_seed",
    "drawn_difference",
    "find",
    "is_fused",
    "kernel_row",
    "status",
]
