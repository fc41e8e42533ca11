"""The dtype in which a q-activation is computed, and the smallest step δ."""

import torch
from torch import Tensor

TINY_DELTA = {torch.float32: 2.0**-40, torch.float64: 2.0**-100}
"""The smallest |δ|: g(x, δ) equals its limit at δ = 0 to rounding, and dividing by it is safe."""


def compute_dtype(x: Tensor) -> torch.dtype:
    return torch.float64 if x.dtype == torch.float64 else torch.float32
