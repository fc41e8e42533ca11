"""Quadrature: Gauss rules as (node, weight) pairs, and the rule for expectations over δ = q - 1."""

import itertools
import math
from collections.abc import Iterator

import torch
from torch import Tensor

from qneurons.precision import TINY_DELTA

GAUSS_LEGENDRE = (
    (0.01985507175123188416, 0.05061426814518812958),
    (0.1016667612931866302, 0.1111905172266872353),
    (0.2372337950418355071, 0.1568533229389436437),
    (0.4082826787521750975, 0.1813418916891809915),
    (0.5917173212478249025, 0.1813418916891809915),
    (0.7627662049581644929, 0.1568533229389436437),
    (0.8983332387068133698, 0.1111905172266872353),
    (0.9801449282487681158, 0.05061426814518812958),
)
"""For the uniform law on [0, 1]."""

HALF_NORMAL = (
    (0.07492311676455893922, 0.1513260143668569882),
    (0.3781584044761421078, 0.3027788332379469054),
    (0.8715838973404047791, 0.3113800653793519098),
    (1.505071568300313929, 0.1776613620020095211),
    (2.246981509078310538, 0.05056730802279356714),
    (3.088530913861651684, 0.006057066877406086473),
    (4.049082769229911424, 0.0002280044121083095515),
    (5.212801320529213983, 1.345701526712321992e-6),
)
"""For the law of |ε|, ε ~ N(0, 1). A rule for ε itself would have to integrate across the jump of q
at ε = 0."""

SMALL_LAMBDA = 0.1
"""For λ up to this, HALF_NORMAL is right to 1e-10 for |x| ≤ 3 if f has no kink except at zero."""

LARGEST_EPS = 8.5
"""Panels end at this |ε|, beyond which the probability is 2e-17."""

# The ends of panels in |ε|, in |δ| and in |b|, b = x(1 + δ). For large |δ|, and everywhere beyond a
# kink, g is nearly a constant divided by δ. Panels that triple |δ| stay away from the pole at 0.
_Z = (1.25, 2.75, 4.5, 6.5, LARGEST_EPS)
_DELTA = (3.0, 9.0, 27.0)
_SMALL_DELTA = tuple(3.0**-k for k in range(9))
_B = (0.0, 1.0, 3.0, 9.0, 27.0, -1.0, -3.0, -9.0, -27.0)


def delta_rule(
    x: Tensor, lam: float | Tensor, phi: float, kinks: tuple[float, ...] = ()
) -> Iterator[tuple[float | Tensor, float | Tensor]]:
    r"""Iterates over (δ, weight) such that E[h(x, δ)] = Σ weight · h(x, δ).

    If λ is a number up to ``SMALL_LAMBDA`` and f has no kink except at zero, there are 16 nodes.
    Otherwise ε is integrated in panels of 8 nodes, which end where x(1 + δ) is zero, a kink or a
    change of scale: 25 panels, some of them empty, and up to twice as many with kinks. A tensor λ
    always takes panels, because its values are not read.
    """
    phi = max(phi, TINY_DELTA[x.dtype])
    has_kinks = any(kinks)
    if not isinstance(lam, Tensor) and (lam == 0 or (lam <= SMALL_LAMBDA and not has_kinks)):
        for z, weight in HALF_NORMAL:
            for sign in (1.0, -1.0):
                yield sign * (lam * z + phi), weight / 2
        return
    sizes = _DELTA + _SMALL_DELTA if has_kinks else _DELTA
    ends: list[float | Tensor] = [*_Z, *((size - phi) / lam for size in sizes)]
    ends += [0.0, *(-end for end in ends)]
    for point in sorted({*kinks, *_B}):
        delta = point / x - 1
        ends.append((delta - delta.clamp(-phi, phi)) / lam)
    within = [end for end in ends if isinstance(end, Tensor) or abs(end) <= LARGEST_EPS]
    columns = [end if isinstance(end, Tensor) else torch.full_like(x, end) for end in within]
    ordered = torch.stack(torch.broadcast_tensors(*columns)).nan_to_num(0.0)
    ordered = ordered.clamp(-LARGEST_EPS, LARGEST_EPS).sort(dim=0).values
    for start, end in itertools.pairwise(ordered.unbind()):
        for node, weight in GAUSS_LEGENDRE:
            eps = start + (end - start) * node
            density = torch.exp(-0.5 * eps * eps) / math.sqrt(2 * math.pi)
            delta = lam * eps + torch.copysign(torch.full_like(eps, phi), eps)
            yield delta, (end - start) * weight * density


def crossing_moment(power: int, lam: Tensor, phi: float) -> Tensor:
    r"""Computes :math:`E[(|δ| - 1)^k / |δ|]` over the δ < -1, with which x(1 + δ) crosses zero.

    By the tanh-sinh rule in \|ε\|, whose 97 nodes are dense at the ends: if λ is large the
    integrand changes fast just beyond \|δ\| = 1. The error is 1e-13, in float32 1e-6.
    """
    t = torch.arange(-48, 49, dtype=lam.dtype, device=lam.device) / 15
    share, rest = torch.sigmoid(math.pi * t.sinh()), torch.sigmoid(-math.pi * t.sinh())
    weight = math.pi / 15 * t.cosh() * share * rest
    first = max(phi, 1.0)
    lam = lam[..., None].clamp(min=TINY_DELTA[lam.dtype])
    start = (first - phi) / lam
    length = (LARGEST_EPS - start).clamp(min=0)
    size = first + lam * length * share
    eps = start + length * share
    value = (size - 1) ** power / size * torch.exp(-0.5 * eps * eps)
    return (value * weight * length).sum(-1) / math.sqrt(2 * math.pi)
