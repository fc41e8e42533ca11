"""E[g_q(x)] as a table, for the evaluation of whole networks."""

import math
from collections.abc import Iterable, Sequence

import torch
from torch import Tensor

from qneurons.activations import Activation
from qneurons.functional import q_mean
from qneurons.quadrature import SMALL_LAMBDA
from qneurons.study.packs.layers import is_fused

Means = tuple[Tensor, Tensor]  # offsets and slopes of the pieces
_SCALE, _LARGEST, _NUM_PIECES = 0.05, 32.0, 2048


class MeanTable:
    """E[g_q(x)] as a piecewise linear function of x, for every activation and λ.

    Quadrature for each element would evaluate g hundreds of times. The pieces are dense near zero,
    where a large λ bends the mean most. The error within a piece is about 1e-5; near a kink other
    than zero, where a small λ makes the mean almost jump, it is several 1e-2. Beyond ±32 the
    outermost pieces are extended. The tables have the dtype and the device of ``like``.
    """

    def __init__(self, phi: float, like: Tensor) -> None:
        self.phi = phi
        end = math.asinh(_LARGEST / _SCALE)
        steps = torch.linspace(-end, end, _NUM_PIECES + 1, dtype=torch.float64)
        self.points = (_SCALE * steps.sinh()).to(like.device)
        self.like = like
        self.known: dict[tuple[str, float], Means] = {}

    def add(self, activation: Activation, lam: Iterable[float]) -> None:
        """Computes the missing tables together."""
        missing = sorted({value for value in lam if (activation.name, value) not in self.known})
        if not missing:
            return
        small = [
            q_mean(self.points, activation, value, self.phi)
            for value in missing
            if value <= SMALL_LAMBDA
        ]
        large = self.points.new_tensor(missing[len(small) :])[:, None]  # slower, so all at once
        means = q_mean(self.points.expand(len(large), -1), activation, large, self.phi)
        means = torch.stack([*small, *means])
        slopes = means.diff() / self.points.diff()
        offsets = means[:, :-1] - slopes * self.points[:-1]
        pairs = zip(offsets.to(self.like.dtype), slopes.to(self.like.dtype), strict=True)
        self.known |= {(activation.name, v): p for v, p in zip(missing, pairs, strict=True)}

    def rows(self, activation: Activation, lam: Sequence[float]) -> Means:
        """Offsets and slopes, one row per run."""
        self.add(activation, lam)
        offsets, slopes = zip(*(self.known[activation.name, value] for value in lam), strict=True)
        return torch.stack(offsets), torch.stack(slopes)


def look_up(x: Tensor, offsets: Tensor, slopes: Tensor) -> Tensor:
    """The means of x, whose first dimension is the run."""
    density = _NUM_PIECES / (2 * math.asinh(_LARGEST / _SCALE))
    if is_fused(x):
        from qneurons.study.packs import cuda_layers

        return cuda_layers.look_up(x, offsets, slopes, _SCALE, density)
    flat = x.flatten(1).to(offsets.dtype)
    piece = (flat / _SCALE).asinh().mul_(density).add_(_NUM_PIECES / 2)
    piece = piece.nan_to_num_(0.0).clamp_(0, _NUM_PIECES - 1).long()
    means = torch.addcmul(offsets.gather(1, piece), slopes.gather(1, piece), flat)
    return means.view(x.shape).to(x.dtype)
