"""E[g_q(x)] as a table of cubic pieces, which costs a few elementwise operations for each x.

Quadrature evaluates g up to hundreds of times for each x. A table does so once, for some thousand
points. Its pieces are short near zero, where a large λ bends the mean most, and near every other
kink of f, where a small λ makes the mean almost jump. An f that is a power on each side of zero has
only two pieces.
"""

import functools
import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.compiler import is_compiling

from qneurons import kernels
from qneurons.activations import Activation
from qneurons.closed_forms import times
from qneurons.containers import is_container, map_inside
from qneurons.functional import powers_of_mean, q_mean
from qneurons.quadrature import SMALL_LAMBDA
from qneurons.torch_internals import device_type, is_transformed, is_unobserved

Table = tuple[Tensor, Tensor]
"""The pieces of one or more tables, 5 × table × piece: the point about which the piece is expanded,
and four coefficients. Then what :func:`_position` needs, 3 × centre."""

BOUND = 1e-6
r"""A table in float32 errs by less than this times max(|E[g]|, min(|x|, 1) max|f'|, BOUND)."""

_LAST = 2.0**24  # beyond, the mean is a straight line
_NODES = 4  # of the interpolation in a piece


# --- building -------------------------------------------------------------------------------------


def find(activation: Activation, lam: float, phi: float) -> Table | None:
    """One table in float32 on the CPU, or None where quadrature is needed.

    Without a closed form, f may have parameters of its own, which change. The mean of sin never
    becomes a straight line. At λ = 0 the mean jumps at a kink.
    """
    jumps = lam == 0 and any(activation.kinks(**activation.parameters))
    if activation.difference is None or jumps:
        return None
    if activation.powers is not None:
        return _two_pieces(activation, lam, phi)
    return _checked(activation, lam, phi)


def _two_pieces(activation: Activation, lam: float, phi: float) -> Table:
    """The table of a mean that is a power of x on each side of zero."""
    with torch.inference_mode(False), torch.device("cpu"):
        wide = torch.tensor(lam, dtype=torch.float64)
        power, below, above = powers_of_mean(activation, wide, phi)
        pieces = torch.zeros(5, 1, 2, dtype=torch.float32)
        pieces[1 + power, 0] = torch.stack([below, above])
        return pieces, pieces.new_tensor([[0.0], [1.0], [1.0]])


@functools.lru_cache(maxsize=64)
def _checked(activation: Activation, lam: float, phi: float) -> Table | None:
    # A table that is built in inference mode may be needed for a gradient later.
    with torch.inference_mode(False), torch.no_grad():
        pieces, centres = build(activation, [lam], phi, torch.device("cpu"))
        table = pieces.float(), centres.float()
        points = _points(centres)
        # Next to an end of each piece: there the error is as large as anywhere in it.
        x = points[:-1].lerp(points[1:], 0.02).float()
        exact = q_mean(x.double(), activation, lam, phi)
        steepest = activation.derivative(x, **activation.parameters).abs().max()
        scale = torch.maximum(exact.abs(), x.abs().clamp(max=1) * steepest).clamp(min=BOUND)
        return table if ((look_up(x, table) - exact).abs() <= BOUND * scale).all() else None


def build(activation: Activation, lam: Sequence[float], phi: float, device: torch.device) -> Table:
    """Computes a table for each λ, in float64."""
    centres = _centres(activation, phi, device)
    points = _points(centres)
    start, width = points[:-1, None], points.diff()[:, None]
    angles = torch.arange(0.5, _NODES, dtype=torch.float64, device=device) * (math.pi / _NODES)
    x = start + width * (1 - angles.cos()) / 2
    # The end nearer to zero, so that the first coefficient is not much larger than the mean.
    origin = torch.where(start.abs() < points[1:, None].abs(), start, points[1:, None])
    origin = origin.float().double()  # else x minus the rounded origin would be off
    ends = origin[[0, -1], 0]
    means = _means(torch.cat([x.flatten(), ends, ends * 2**20]), activation, lam, phi).T
    means, near, far = means.split([x.numel(), 2, 2])
    powers = torch.arange(_NODES, dtype=torch.float64, device=device)
    monomials = ((x - origin) / width)[..., None] ** powers
    pieces = torch.linalg.solve(monomials, means.unflatten(0, x.shape))
    pieces /= width[..., None] ** powers[:, None]
    pieces[origin[:, 0] == 0, 0] = 0
    slopes = (far - near) / (ends * (2**20 - 1))[:, None]
    slopes[slopes.abs() < 1e-9 * pieces[:, 1].abs().max()] = 0  # a huge x would magnify rounding
    pieces[[0, -1]] = torch.stack([near, slopes, 0 * near, 0 * near], 1)
    origins = origin.expand(-1, len(lam))[:, None]
    return torch.cat([origins, pieces], 1).permute(1, 2, 0).contiguous(), centres


def _centres(activation: Activation, phi: float, device: torch.device) -> Tensor:
    """Where pieces are shortest, one over their length there, and how many make a factor e.

    Around a kink, |x / kink - 1| < φ is a hole in which δ never reaches the kink. The mean bends
    at both ends of it.
    """
    kinks = [kink for kink in activation.kinks(**activation.parameters) if kink]
    # A kink at zero needs no short pieces, because two pieces meet there if there are no others.
    at_zero, per_octave = (2.0**-36 * min(map(abs, kinks)), 8) if kinks else (2.0**-12, 16)
    rows = [(0.0, 1 / at_zero, per_octave / math.log(2))]
    for kink in kinks:
        for end in (kink / (1 + phi), kink / (1 - phi) if phi != 1 else kink):
            rows.append((end, 2.0**36 / abs(kink), 4 / math.log(2)))
    # Rounded here, so that a table in float32 has the same pieces.
    return torch.tensor(rows, dtype=torch.float32, device=device).double().T.contiguous()


def _points(centres: Tensor) -> Tensor:
    """The ends of the pieces: where :func:`_position` is an integer."""
    num = (torch.log1p(_LAST * centres[1]) * centres[2]).sum().item() // 1
    position = torch.arange(-num, num + 1, dtype=torch.float64, device=centres.device)
    high = torch.full_like(position, 2 * _LAST)
    low = -high
    for _ in range(100):
        middle = (low + high) / 2
        is_before = _position(middle, centres) < position
        low, high = torch.where(is_before, middle, low), torch.where(is_before, high, middle)
    return high  # which may be exactly zero, as low may not


def _means(x: Tensor, activation: Activation, lam: Sequence[float], phi: float) -> Tensor:
    """E[g_q(x)] for each λ; for the large ones at once, because they take longer."""
    is_small = [value <= SMALL_LAMBDA for value in lam]
    large = [value for value, small in zip(lam, is_small, strict=True) if not small]
    wide = x.new_tensor(large).view(-1, *[1] * x.dim())
    of_large = iter(q_mean(x.expand(len(large), *x.shape), activation, wide, phi))
    pairs = zip(lam, is_small, strict=True)
    return torch.stack([q_mean(x, activation, v, phi) if s else next(of_large) for v, s in pairs])


# --- looking up -----------------------------------------------------------------------------------


def mean(x: Tensor, activation: Activation, lam: float, phi: float, table: Table | None) -> Tensor:
    """E[g_q(x)], by the table where it is accurate enough, else by quadrature.

    The gradient is the slope of the piece. Quadrature computes further derivatives, the transforms
    of torch.func, and float64.
    """
    if is_container(x):
        return map_inside(x, lambda part: mean(part, activation, lam, phi, table))
    if table is None or x.dtype == torch.float64 or is_transformed():
        return q_mean(x, activation, lam, phi)
    if table[0].device != x.device:
        table = table[0].to(x.device), table[1].to(x.device)
    if is_compiling():
        return _look_up(x, *table)
    if x.requires_grad and torch.is_grad_enabled():
        return _LookUp.apply(x, *table, activation, lam, phi)
    return look_up(x, table)


def look_up(x: Tensor, table: Table) -> Tensor:
    """The means of x. If there are several tables, the first dimension of x counts them."""
    pieces, centres = table
    backend = kernels.load(device_type(x))
    is_plain = is_unobserved(x) and type(pieces) is type(centres) is Tensor
    is_readable = is_plain and pieces.dtype == torch.float32
    needs_gradient = x.requires_grad and torch.is_grad_enabled()  # which no kernel computes
    if isinstance(backend, str) or not is_readable or needs_gradient:
        return _look_up(x, pieces, centres)
    return _as_laid_out(x, backend.look_up(x.contiguous(), pieces, centres))


def _look_up(x: Tensor, pieces: Tensor, centres: Tensor) -> Tensor:
    wide = x.to(pieces.dtype)
    largest = torch.finfo(wide.dtype).max
    _, num_tables, num = pieces.shape
    if num == 2:  # about zero, where all other coefficients are 0
        slope, curvature = (torch.where(wide < 0, low, high) for low, high in pieces[2:4, 0])
        return times(wide, slope + wide.clamp(-largest, largest) * curvature).to(x.dtype)
    position = _position(wide.detach(), centres).nan_to_num(0.0)
    piece = position.clamp(-num // 2, num // 2 - 1).floor().long() + num // 2
    if num_tables > 1:
        piece += num * torch.arange(num_tables, device=x.device).view(-1, *[1] * (x.dim() - 1))
    rows = pieces.flatten(1)  # with five calls, because rows[:, piece] takes longer
    chosen = [row.index_select(0, piece.flatten()).view(x.shape) for row in rows]
    origin, mean, slope, curvature, third = chosen
    step = wide - origin
    finite = step.clamp(-largest, largest)
    slope = slope + finite * (curvature + finite * third)
    means = mean + times(step, slope)
    return _as_laid_out(x, means.to(x.dtype))


def _as_laid_out(x: Tensor, result: Tensor) -> Tensor:
    return result if x.is_contiguous() else torch.empty_like(x).copy_(result)


def _position(x: Tensor, centres: Tensor) -> Tensor:
    """It grows with x, by one from piece to piece."""
    total: Tensor | None = None
    for point, scale, density in centres.unbind(1):
        distance = x - point
        term = torch.log1p(distance.abs() * scale) * density * distance.sign()
        total = term if total is None else total + term
    assert total is not None
    return total


class _LookUp(torch.autograd.Function):
    """Keeps x for backward, and refers to the table."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, pieces: Tensor, centres: Tensor, *law: Any) -> Tensor:
        ctx.save_for_backward(x, pieces, centres)
        ctx.law = law
        return look_up(x, (pieces, centres))

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        x, *table = ctx.saved_tensors
        if torch.is_grad_enabled():  # it will be differentiated further than a piece can be
            value = q_mean(x, *ctx.law)
            return *torch.autograd.grad(value, x, grads[0], create_graph=True), *[None] * 5
        with torch.enable_grad():
            x = x.detach().requires_grad_()
            return *torch.autograd.grad(_look_up(x, *table), x, grads[0]), *[None] * 5
