"""The q-activation in one pass over memory: a backend per device, plain torch elsewhere."""

from qneurons.kernels.autograd import (
    difference as difference,
    drawn_difference as drawn_difference,
    limit as limit,
)
from qneurons.kernels.dispatch import (
    base_row as base_row,
    find as find,
    is_fused as is_fused,
    kernel_row as kernel_row,
    load as load,
    status as status,
)
