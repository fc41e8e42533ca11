r"""The law of g_q(x) at fixed x, from the law of δ.

With b = x(1 + δ), the slope of δ -> g(x, δ) has the sign of the Bregman divergence

    B(b) = f(x) - f(b) - (x - b) f'(b) = δ² dg/dδ,    dB/db = (b - x) f''(b).

A *cell* lies between two neighbouring points where f has a kink or f'' changes sign. In a cell B is
monotone, so g turns at most once, and not at all in the cell of x. Each cell is cut into two
*pieces* in which g is monotone, and the law of δ is mapped to g piece by piece. Where f is linear
from x to b, g is constant, which gives an atom.
"""

import itertools
import math
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from qneurons.activations import Activation
from qneurons.given_delta import difference
from qneurons.precision import TINY_DELTA
from qneurons.quadrature import GAUSS_LEGENDRE, LARGEST_EPS, delta_rule

_LAST_Z = 40.0  # here the normal density has underflowed
_SMALL_STEP = 1 / 32  # up to this |δx| dg/dδ is computed as an integral, beyond it as a quotient
_WINDOW = 16.0  # every row except sin has all its bends, where f'' changes sign, in ±16
_MAX_BENDS = 8  # every row except sin has fewer
_FARTHEST = 4096.0  # up to this |b| an oscillating f is integrated from bend to bend
_FINE_SCALES = tuple(sign * 3.0**-k for k in range(1, 6) for sign in (1, -1))


class Cells(NamedTuple):
    """The cells: the δ at both ends, the sign of f'', f' at a point, and whether g is constant."""

    start: Tensor
    end: Tensor
    bend: Tensor
    slope: Tensor
    constant: Tensor


class Pieces(NamedTuple):
    """The pieces: δ and g at both ends, and whether g rises or is constant."""

    start: Tensor
    end: Tensor
    g_start: Tensor
    g_end: Tensor
    rising: Tensor
    constant: Tensor


class OutputLaw(NamedTuple):
    """The laws of δ and of g(x, δ). Tensors are float64; their last dimension counts cells."""

    row: Activation
    x: Tensor
    lam: Tensor
    phi: float

    def g(self, delta: Tensor) -> Tensor:
        x, delta = torch.broadcast_tensors(self.x, delta)
        return difference(x, torch.where(delta == 0, TINY_DELTA[x.dtype], delta), self.row)

    def remainder(self, delta: Tensor) -> Tensor:
        """δ dg/dδ = x f'(b) - g."""
        return self.x * _derivative(self.row)(self.x * (1 + delta)) - self.g(delta)

    def slope(self, delta: Tensor) -> Tensor:
        """dg/dδ = x² ∫ t f''(x + tδx) dt over [0, 1]."""
        h = self.x * delta
        small = h.abs() <= _SMALL_STEP
        for kink in self.row.kinks(**self.row.parameters):
            small = small & ((self.x < kink) == (self.x + h < kink))
        second = _derivative(self.row, order=2)
        integral = torch.zeros_like(h)
        for node, weight in GAUSS_LEGENDRE:
            integral += weight * node * second(self.x + node * h)
        return torch.where(small, self.x.square() * integral, self.remainder(delta) / delta)

    def eps(self, delta: Tensor) -> Tensor:
        """ε as a function of δ, zero in the hole."""
        return (delta - delta.clamp(-self.phi, self.phi)) / self.lam

    def delta_density(self, delta: Tensor) -> Tensor:
        value = torch.exp(-0.5 * self.eps(delta).square()) / (self.lam * math.sqrt(2 * math.pi))
        return torch.where(delta.abs() < self.phi, 0.0, value)

    def mass(self, start: Tensor, end: Tensor) -> Tensor:
        """P(start < δ < end)."""
        low, high = self.eps(start), self.eps(end)
        right = low + high > 0  # then mirrored to the left tail, where erfc does not cancel
        low, high = torch.where(right, -high, low), torch.where(right, -low, high)
        scale = -math.sqrt(0.5)
        return (torch.erfc(high * scale) - torch.erfc(low * scale)) / 2

    def mask(self, result: Tensor, y: Tensor) -> Tensor:
        return result.masked_fill((self.x.isinf() | (self.x + y).isnan())[..., 0], math.nan)

    def cells(self) -> Cells:
        edges, bend, slope = find_cells(self.row, self.x.device)
        reach = self.phi + _LAST_Z * self.lam
        delta = (edges / self.x - 1).clamp(-reach, reach)
        left, right = delta[..., :-1], delta[..., 1:]
        constant = (edges[:-1] <= self.x) & (self.x <= edges[1:]) & (bend == 0)
        return Cells(torch.minimum(left, right), torch.maximum(left, right), bend, slope, constant)

    def atoms(self, cells: Cells) -> tuple[Tensor, Tensor]:
        exists = cells.constant & (self.x != 0)
        masses = torch.where(exists, self.mass(cells.start, cells.end), 0.0)
        values = torch.where(exists, self.x * cells.slope, 0.0).expand_as(masses)
        at_zero = (self.x == 0).to(masses.dtype).expand_as(masses[..., :1])
        return torch.cat([values, 0 * at_zero], -1), torch.cat([masses, at_zero], -1)

    def pieces(self, cells: Cells) -> Pieces:
        def is_before_turn(delta: Tensor) -> Tensor:
            # B rises with δ where δ f'' > 0. In the cell of x g does not turn, and any cut will do.
            return (self.remainder(delta) * delta > 0) != (cells.bend * delta > 0)

        turn = _bisect(cells.start, cells.end, is_before_turn)
        start, end = torch.cat([cells.start, turn], -1), torch.cat([turn, cells.end], -1)
        g_start, g_end = self.g(start), self.g(end)
        constant = torch.cat([cells.constant, cells.constant], -1) | (self.x == 0)
        return Pieces(start, end, g_start, g_end, g_start <= g_end, constant)

    def solve(self, y: Tensor, pieces: Pieces) -> Tensor:
        """The δ of each piece with g(x, δ) = y, or an end of the piece if there is none."""
        return _bisect(pieces.start, pieces.end, lambda d: (self.g(d) <= y) == pieces.rising)

    def points(self) -> tuple[float, ...]:
        """The points within reach of b at which panels of the quadrature end."""
        largest = self.x.abs() * (1 + self.phi + LARGEST_EPS * self.lam)
        finite = [largest[largest.isfinite()], largest.new_tensor([_WINDOW])]
        reach = torch.cat(finite).max().item()
        bends = _bends(self.row, min(reach, _FARTHEST), self.x.device)
        if reach > _FARTHEST and sum(abs(bend) > _FARTHEST / 2 for bend in bends) > _MAX_BENDS:
            raise ValueError(
                f"{self.row.name} oscillates, and its mean and variance are computed only where "
                f"|x| (1 + phi + {LARGEST_EPS} lam) is at most {_FARTHEST:g}, got {reach:g}; "
                "for a larger x average over draws from q_activation"
            )
        num_scales = math.ceil(math.log(reach, 3))
        # For an f whose tail is a power of b, as softsign's.
        far = [sign * 3.0**k for k in range(4, num_scales) for sign in (1, -1)]
        return (*self.row.kinks(**self.row.parameters), *bends, *_FINE_SCALES, *far)

    def expectation(self, h: Callable[[Tensor], Tensor], points: tuple[float, ...]) -> Tensor:
        rule = delta_rule(self.x, self.lam, self.phi, points)
        total = torch.zeros_like(self.x * self.lam)
        while nodes := list(itertools.islice(rule, 64)):
            delta = torch.stack([torch.as_tensor(delta) for delta, _ in nodes])
            weight = torch.stack([torch.as_tensor(weight) for _, weight in nodes])
            total = total + (weight * h(self.g(delta))).sum(0)
        return total


def _bisect(start: Tensor, end: Tensor, is_before: Callable[[Tensor], Tensor]) -> Tensor:
    for _ in range(60):  # to 1e-16 λ
        middle = (start + end) / 2
        before = is_before(middle)
        start, end = torch.where(before, middle, start), torch.where(before, end, middle)
    return (start + end) / 2


def _derivative(row: Activation, order: int = 1) -> Callable[[Tensor], Tensor]:
    if order == 1:
        return lambda b: row.derivative(b, **row.parameters)
    return torch.func.grad(lambda b: row.derivative(b, **row.parameters).sum())


def _bends(row: Activation, reach: float, device: torch.device) -> list[float]:
    """The points of [-reach, reach] where f'' changes sign."""
    second = _derivative(row, order=2)
    num = max(8192, int(8 * reach))
    grid = torch.linspace(-reach, reach, num, dtype=torch.float64, device=device)
    value = second(grid)
    # In the far tails of a callable the sign may be rounding noise.
    sign = torch.where(value.abs() > 1e-9 * value.abs().max(), value.sign(), 0.0)
    changes = sign[:-1] * sign[1:] < 0
    left, right, before = grid[:-1][changes], grid[1:][changes], sign[:-1][changes]
    bends = _bisect(left, right, lambda b: second(b).sign() == before)
    return [round(bend, 14) for bend in bends.tolist()]


def find_cells(row: Activation, device: torch.device) -> tuple[Tensor, Tensor, Tensor]:
    """The edges of the cells in b; for each cell the sign of f'', and f' at a point."""
    bends, kinks = _bends(row, _WINDOW, device), row.kinks(**row.parameters)
    if row.difference is None or len(bends) > _MAX_BENDS:
        why = "g has infinitely many extrema" if row.difference else "a callable may bend anywhere"
        raise ValueError(
            f"no density, cdf or atoms for {row.name}: {why}; "
            "use mean and variance, or draw from q_activation"
        )
    points = sorted({0.0, *kinks, *bends})
    anchors = torch.tensor([points[0], *points], dtype=torch.float64, device=device)
    widths = anchors.diff(append=anchors[-1:] + 1)
    widths[0] = -1.0
    fractions = anchors.new_tensor([2.0**-12, 2.0**-6, 0.5])  # f'' may underflow far from a point
    inside = anchors[:, None] + widths[:, None] * fractions
    bend = _derivative(row, order=2)(inside).sum(-1).sign()
    slope = _derivative(row)(inside[:, -1])

    def changes(k: int) -> bool:
        if bend[k] == bend[k + 1] == 0:
            return bool(slope[k] != slope[k + 1])
        return bool(bend[k] != bend[k + 1]) or points[k] in kinks

    # Zero is an edge if f becomes linear there without a kink, as elu does.
    kept = [k for k in range(len(points)) if changes(k)]
    edges = anchors.new_tensor([-math.inf, *(points[k] for k in kept), math.inf])
    kept.append(len(points))
    return edges, bend[kept], slope[kept]
