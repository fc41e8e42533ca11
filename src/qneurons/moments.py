r"""The law of g_q(x) at fixed x: density, cdf, point masses, mean and variance.

With b = x(1 + δ), the slope of δ -> g(x, δ) has the sign of the Bregman divergence

    B(b) = f(x) - f(b) - (x - b) f'(b) = δ² dg/dδ,    dB/db = (b - x) f''(b).

A *cell* lies between two neighbouring points where f has a kink or f'' changes sign. In a cell B is
monotone, so g turns at most once, and not at all in the cell of x. Each cell is cut into two
*pieces* in which g is monotone, and the law of δ is mapped to g piece by piece. Where f is linear
from x to b, g is constant, which gives an atom.
"""

import functools
import itertools
import math
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from qneurons.activations import Activation, ActivationLike, resolve
from qneurons.arguments import check_nonnegative
from qneurons.given_delta import difference
from qneurons.precision import TINY_DELTA
from qneurons.quadrature import GAUSS_LEGENDRE, LARGEST_EPS, delta_rule

__all__ = ["atoms", "cdf", "density", "mean", "variance"]

Real = float | Tensor

_LAST_Z = 40.0  # here the normal density has underflowed
_SMALL_STEP = 1 / 32  # up to this |δx| dg/dδ is computed as an integral, beyond it as a quotient
_WINDOW = 16.0  # every row except sin has all its bends, where f'' changes sign, in ±16
_MAX_BENDS = 8  # every row except sin has fewer
_FARTHEST = 4096.0  # up to this |b| an oscillating f is integrated from bend to bend
_FINE_SCALES = tuple(sign * 3.0**-k for k in range(1, 6) for sign in (1, -1))


@torch.no_grad()
def density(y: Real, x: Real, activation: ActivationLike, lam: Real, phi: float = 1e-3) -> Tensor:
    r"""Computes the density of the continuous part of :math:`g_q(x)` at y.

    .. math::
        p(y) = \sum_{\delta:\ g(x, \delta) = y} p_\delta(\delta)
        \left|\frac{\partial g}{\partial \delta}\right|^{-1}

    It integrates to one minus the masses of :func:`atoms`. At an extreme value of
    :math:`\delta \mapsto g(x, \delta)` it has an integrable singularity.

    Args:
        y: where to evaluate.
        x: the input of the q-activation.
        activation: a row of the table, in any form that :func:`qneurons.resolve` takes, except
            sin, for which g has infinitely many extrema.
        lam: λ > 0.
        phi: φ ≥ 0, a number.

    Shape:
        y, x and lam broadcast. Numbers and float64 give float64, other tensors their common dtype.

    Example:
        >>> density(torch.tensor([0.45, 0.5]), x=1.0, activation="tanh", lam=1.0)
        tensor([1.1776, 1.0816])
    """
    law, y, dtype = _law(x, activation, lam, phi, y)
    pieces = law.pieces(law.cells())
    delta = law.solve(y, pieces)
    to_start, to_end = (y - pieces.g_start).sign(), (y - pieces.g_end).sign()
    # Half open, so that a value at which two pieces meet is counted once.
    reached = (to_start != to_end) & (to_end != 0) & ~pieces.constant
    weight = law.delta_density(delta)
    # The margin keeps f' on this side of a kink.
    margin = 2.0**-40 * (pieces.end - pieces.start)
    inner = torch.minimum(torch.maximum(delta, pieces.start + margin), pieces.end - margin)
    terms = torch.where(reached & (weight > 0), weight / law.slope(inner).abs(), 0.0)
    return law.mask(terms.sum(-1), y).to(dtype)


@torch.no_grad()
def cdf(y: Real, x: Real, activation: ActivationLike, lam: Real, phi: float = 1e-3) -> Tensor:
    r"""Computes :math:`P(g_q(x) \le y)`, atoms included; the arguments are :func:`density`'s.

    Example:
        >>> cdf(torch.tensor([0.999, 1.0]), x=1.0, activation="relu", lam=1.0)  # a jump at y = x
        tensor([0.1587, 1.0000])
    """
    law, y, dtype = _law(x, activation, lam, phi, y)
    cells = law.cells()
    pieces, (values, masses) = law.pieces(cells), law.atoms(cells)
    delta = law.solve(y, pieces)
    below = law.mass(
        torch.where(pieces.rising, pieces.start, delta),
        torch.where(pieces.rising, delta, pieces.end),
    )
    total = torch.where(pieces.constant, 0.0, below).sum(-1)
    total = total + torch.where(values <= y, masses, 0.0).sum(-1)
    return law.mask(total.clamp(0, 1), y).to(dtype)


@torch.no_grad()
def atoms(
    x: Real, activation: ActivationLike, lam: Real, phi: float = 1e-3
) -> tuple[Tensor, Tensor]:
    r"""Computes the values that :math:`g_q(x)` takes with positive probability, and their masses.

    There is one atom if f is linear around x, because x(1 + δ) may lie on the same linear part.
    There are two if x is the kink between two linear parts. At x = 0 all the mass is in one atom.
    The arguments are those of :func:`density`.

    Shape:
        Both results are :math:`(*, 2)`, where :math:`*` is the shape of x broadcast with lam; the
        larger mass comes first, and a mass of 0 means that there is no such atom.

    Example:
        >>> values, masses = atoms(torch.tensor([-1.0, 2.0]), "elu", lam=1.0)
        >>> values[:, 0], masses[:, 0]
        (tensor([0., 2.]), tensor([0.0000, 0.8411]))
    """
    law, _, dtype = _law(x, activation, lam, phi)
    values, masses = law.atoms(law.cells())
    masses, index = masses.topk(2)
    return values.gather(-1, index).to(dtype), masses.to(dtype)


@torch.no_grad()
def mean(x: Real, activation: ActivationLike, lam: Real, phi: float = 1e-3) -> Tensor:
    r"""Computes :math:`E[g_q(x)]` by quadrature, to about 1e-9 of the root mean square of g.

    An f that oscillates, as sin does, is refused where :math:`|x| (1 + φ + 8.5 λ) > 4096`.

    Args:
        x: the input of the q-activation.
        activation: any row of the table, or an elementwise callable, which must be smooth.
        lam: λ ≥ 0.
        phi: φ ≥ 0, a number.

    Shape:
        x and lam broadcast. Numbers and float64 give float64, other tensors their own dtype.

    Example:
        >>> mean(torch.tensor([-1.0, 1.0]), "tanh", lam=1.0)
        tensor([-0.4511,  0.4511])
    """
    law, _, dtype = _law(x, activation, lam, phi, has_density=False)
    return law.expectation(lambda g: g, law.points())[..., 0].to(dtype)


@torch.no_grad()
def variance(x: Real, activation: ActivationLike, lam: Real, phi: float = 1e-3) -> Tensor:
    r"""Computes :math:`\mathrm{Var}[g_q(x)]` by quadrature; the arguments are :func:`mean`'s.

    Example:
        >>> variance(torch.tensor([1.0, 2.0]), lambda x: x * x, lam=1.0, phi=0.0)  # x⁴ Var q
        tensor([ 1., 16.])
    """
    law, _, dtype = _law(x, activation, lam, phi, has_density=False)
    points = law.points()
    centre = law.expectation(lambda g: g, points)
    return law.expectation(lambda g: (g - centre).square(), points)[..., 0].to(dtype)


class _Cells(NamedTuple):
    """The cells: the δ at both ends, the sign of f'', f' at a point, and whether g is constant."""

    start: Tensor
    end: Tensor
    bend: Tensor
    slope: Tensor
    constant: Tensor


class _Pieces(NamedTuple):
    """The pieces: δ and g at both ends, and whether g rises or is constant."""

    start: Tensor
    end: Tensor
    g_start: Tensor
    g_end: Tensor
    rising: Tensor
    constant: Tensor


class _Law(NamedTuple):
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

    def cells(self) -> _Cells:
        edges, bend, slope = _cells(self.row, self.x.device)
        reach = self.phi + _LAST_Z * self.lam
        delta = (edges / self.x - 1).clamp(-reach, reach)
        left, right = delta[..., :-1], delta[..., 1:]
        constant = (edges[:-1] <= self.x) & (self.x <= edges[1:]) & (bend == 0)
        return _Cells(torch.minimum(left, right), torch.maximum(left, right), bend, slope, constant)

    def atoms(self, cells: _Cells) -> tuple[Tensor, Tensor]:
        exists = cells.constant & (self.x != 0)
        masses = torch.where(exists, self.mass(cells.start, cells.end), 0.0)
        values = torch.where(exists, self.x * cells.slope, 0.0).expand_as(masses)
        at_zero = (self.x == 0).to(masses.dtype).expand_as(masses[..., :1])
        return torch.cat([values, 0 * at_zero], -1), torch.cat([masses, at_zero], -1)

    def pieces(self, cells: _Cells) -> _Pieces:
        def is_before_turn(delta: Tensor) -> Tensor:
            # B rises with δ where δ f'' > 0. In the cell of x g does not turn, and any cut will do.
            return (self.remainder(delta) * delta > 0) != (cells.bend * delta > 0)

        turn = _bisect(cells.start, cells.end, is_before_turn)
        start, end = torch.cat([cells.start, turn], -1), torch.cat([turn, cells.end], -1)
        g_start, g_end = self.g(start), self.g(end)
        constant = torch.cat([cells.constant, cells.constant], -1) | (self.x == 0)
        return _Pieces(start, end, g_start, g_end, g_start <= g_end, constant)

    def solve(self, y: Tensor, pieces: _Pieces) -> Tensor:
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


def _law(
    x: Real,
    activation: ActivationLike,
    lam: Real,
    phi: float,
    y: Real = 0.0,
    *,
    has_density: bool = True,
) -> tuple[_Law, Tensor, torch.dtype]:
    """Checks the arguments; returns the law, y in its dtype, and the dtype of the result."""
    given = [value for value in (x, y) if isinstance(value, Tensor)]
    for tensor in given:
        if not tensor.is_floating_point():
            raise TypeError(
                f"x and y must be numbers or of a floating dtype, got {tensor.dtype}; "
                "convert integers with .double()"
            )
    device = given[0].device if given else None
    wide_x, wide_y, wide_lam = (
        torch.as_tensor(value, dtype=torch.float64, device=device)[..., None]
        for value in (x, y, lam)
    )
    if not (wide_lam.isfinite() & (wide_lam > 0 if has_density else wide_lam >= 0)).all():
        rule = "positive (at 0 there is no density)" if has_density else "0 or more"
        raise ValueError(f"lam must be finite and {rule}, got {lam!r}")
    dtype = functools.reduce(torch.promote_types, [v.dtype for v in given] or [torch.float64])
    return _Law(resolve(activation), wide_x, wide_lam, check_nonnegative("phi", phi)), wide_y, dtype


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


def _cells(row: Activation, device: torch.device) -> tuple[Tensor, Tensor, Tensor]:
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
