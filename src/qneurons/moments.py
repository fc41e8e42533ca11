"""Moments of g_q(x) at fixed x: density, cdf, point masses, mean and variance."""

import functools

import torch
from torch import Tensor

from qneurons.activations import ActivationLike, resolve
from qneurons.arguments import check_nonnegative
from qneurons.output_law import OutputLaw

__all__ = ["atoms", "cdf", "density", "mean", "variance"]

Real = float | Tensor


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


def _law(
    x: Real,
    activation: ActivationLike,
    lam: Real,
    phi: float,
    y: Real = 0.0,
    *,
    has_density: bool = True,
) -> tuple[OutputLaw, Tensor, torch.dtype]:
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
    return (
        OutputLaw(resolve(activation), wide_x, wide_lam, check_nonnegative("phi", phi)),
        wide_y,
        dtype,
    )
