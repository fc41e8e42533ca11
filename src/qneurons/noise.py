"""The law of q = 1 + sign(ε)(λ|ε| + φ), ε ~ N(0, 1), and the draw of δ = q - 1.

δ is drawn from torch's generators, or computed from a seed and an index by the counter-based
generator at the end of this file, which is the specification of the kernels' noise.
"""

import math
from collections.abc import Sequence
from typing import Any, ClassVar, Self

import torch
from torch import Tensor
from torch.distributions import Distribution, constraints
from torch.distributions.utils import broadcast_all

from qneurons.precision import TINY_DELTA

__all__ = ["QLaw", "box_muller", "draw_delta", "draw_seed", "normals", "philox", "seeded_delta"]


class _OutsideInterval(constraints.Constraint):
    """The union of the half lines ``(-inf, lower_bound]`` and ``[upper_bound, inf)``."""

    is_discrete = False
    event_dim = 0

    def __init__(self, lower_bound: Tensor, upper_bound: Tensor) -> None:
        self.lower_bound = lower_bound
        self.upper_bound = upper_bound
        super().__init__()

    def check(self, value: Tensor) -> Tensor:
        return (value <= self.lower_bound) | (value >= self.upper_bound)

    def __repr__(self) -> str:
        return f"OutsideInterval(lower_bound={self.lower_bound}, upper_bound={self.upper_bound})"


class QLaw(Distribution):
    r"""The law of the random q of a q-activation: two half-normals pushed apart by :math:`2\phi`.

    .. math::
        q = 1 + \mathrm{sign}(\varepsilon)\,(\lambda |\varepsilon| + \phi), \qquad
        \varepsilon \sim N(0, 1), \quad \mathrm{sign}(0) = +1,

    with density :math:`\frac{1}{\lambda}\varphi\!\left(\frac{|q - 1| - \phi}{\lambda}\right)`
    where :math:`|q - 1| \ge \phi`, and zero in the hole :math:`(1 - \phi, 1 + \phi)`. At
    :math:`\phi = 0` it is :math:`N(1, \lambda^2)`.

    The entropy does not depend on :math:`\phi`; the two modes :math:`1 \pm \phi` are the edges of
    the hole. :meth:`rsample` is differentiable in ``lam`` and ``phi``. Every sample lies in
    :attr:`support`, whose edges are rounded as the samples are.

    Args:
        lam: :math:`\lambda > 0`. At zero the law is two atoms at
            :math:`1 \pm \phi` and has no density, so zero is an error.
        phi: :math:`\phi \ge 0`, half the width of the hole. Default: ``1e-3``
        validate_args: check the parameters and the argument of :meth:`log_prob`.
            Default: torch's own, on until ``torch.compile`` is first used, then off.

    Example:
        >>> law = QLaw(lam=1.0, phi=1e-3)
        >>> law.variance
        tensor(1.0016)
        >>> law.cdf(torch.tensor([0.0, 1.0]))  # P(q < 0), and one half in the hole
        tensor([0.1589, 0.5000])
    """

    arg_constraints: ClassVar = {"lam": constraints.positive, "phi": constraints.nonnegative}
    has_rsample = True

    def __init__(
        self, lam: float | Tensor, phi: float | Tensor = 1e-3, *, validate_args: bool | None = None
    ) -> None:
        self.lam, self.phi = broadcast_all(lam, phi)
        # broadcast_all gives a number the dtype of the tensor beside it: an integer lam would
        # silently make phi zero.
        if not (self.lam.is_floating_point() and self.phi.is_floating_point()):
            raise TypeError(
                f"lam and phi must be floating point, got {lam!r} and {phi!r}; "
                "convert integer tensors with .float()"
            )
        super().__init__(self.lam.shape, validate_args=validate_args)

    def expand(self, batch_shape: Sequence[int], _instance: Any = None) -> Self:
        new = self._get_checked_instance(QLaw, _instance)
        new.lam = self.lam.expand(batch_shape)
        new.phi = self.phi.expand(batch_shape)
        super(QLaw, new).__init__(new.lam.shape, validate_args=False)
        new._validate_args = self._validate_args
        return new

    @constraints.dependent_property(is_discrete=False, event_dim=0)
    def support(self) -> constraints.Constraint:
        return _OutsideInterval(1 - self.phi, 1 + self.phi)

    @property
    def mean(self) -> Tensor:
        return torch.ones_like(self.lam)

    @property
    def variance(self) -> Tensor:
        mean_abs_eps = math.sqrt(2 / math.pi)
        return self.lam.square() + 2 * mean_abs_eps * self.lam * self.phi + self.phi.square()

    def entropy(self) -> Tensor:
        return 0.5 * math.log(2 * math.pi * math.e) + self.lam.log()

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        shape = self._extended_shape(torch.Size(sample_shape))
        eps = torch.randn(shape, dtype=self.lam.dtype, device=self.lam.device)
        return self._from_normal(eps, is_left=eps < 0)

    def log_prob(self, value: Tensor) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        log_density = (
            -0.5 * self._to_normal(value).square() - self.lam.log() - 0.5 * math.log(2 * math.pi)
        )
        in_hole = (value > 1 - self.phi) & (value < 1 + self.phi)
        return log_density.masked_fill(in_hole, -math.inf)

    def cdf(self, value: Tensor) -> Tensor:
        """P(q <= value) at any real value, inside the hole too, where it is one half."""
        # Not torch.special.ndtr, which is 1 + erf and so loses the left tail.
        return 0.5 * torch.special.erfc(self._to_normal(value) * -math.sqrt(0.5))

    def icdf(self, value: Tensor) -> Tensor:
        """The smallest q whose cdf reaches ``value``: ``1 - phi`` at one half."""
        return self._from_normal(torch.special.ndtri(value), is_left=value <= 0.5)

    def _from_normal(self, eps: Tensor, *, is_left: Tensor) -> Tensor:
        # δ is summed before the 1 is added: rounding is monotone, so q cannot enter the hole.
        return 1 + (self.lam * eps + torch.where(is_left, -self.phi, self.phi))

    def _to_normal(self, q: Tensor) -> Tensor:
        # The inverse of _from_normal; zero in the hole.
        delta = q - 1
        return (delta - delta.clamp(-self.phi, self.phi)) / self.lam


def draw_delta(
    shape: Sequence[int],
    lam: float | Tensor,
    phi: float | Tensor,
    *,
    dtype: torch.dtype,
    device: torch.device | str | None,
    generator: torch.Generator | None = None,
) -> Tensor:
    r"""Draws :math:`\delta = q - 1` for every element, never exactly zero.

    .. math::
        \delta = \mathrm{sign}(\varepsilon)\,(\lambda |\varepsilon| + \max(\phi, \text{tiny}))

    q itself is not formed, because subtracting 1 from it would lose the low bits of
    :math:`\delta`. At :math:`\phi = 0` the floor tiny = ``TINY_DELTA[dtype]`` keeps the quotient of
    a q-activation defined, and equal to its limit up to rounding. The noise does not depend on the
    memory layout of an input. Checkpoints, ``fork_rng``, ``manual_seed``, vmap's ``randomness`` and
    ``torch.compile`` treat it as they treat dropout's.

    Args:
        shape (sequence of int): shape of the result.
        lam: :math:`\lambda \ge 0`, broadcast against ``shape``; not checked.
        phi: :math:`\phi \ge 0`, one value; not checked.
        dtype (torch.dtype): ``torch.float32`` or ``torch.float64``.
        device (torch.device): where to draw.
        generator (torch.Generator, optional): source of the noise. Default: the global one.

    Example:
        >>> delta = draw_delta((2, 3), 0.02, 1e-3, dtype=torch.float32, device="cpu")
        >>> delta.shape, bool((delta.abs() >= 1e-3).all())
        (torch.Size([2, 3]), True)
    """
    # With dynamic shapes, randn does not accept the keyword generator, not even as None.
    source: dict[str, Any] = {} if generator is None else {"generator": generator}
    eps = torch.randn(shape, dtype=dtype, device=device, **source)
    if isinstance(lam, Tensor):
        lam = lam.to(eps)
        lam = lam.reshape(()) if lam.numel() == 1 else lam  # a 0-d eps stays 0-d
    if not isinstance(phi, Tensor):
        phi = torch.full((), phi, dtype=dtype, device=device)
    return _delta(lam * eps, phi.to(eps).reshape(()))


def _delta(scaled: Tensor, phi: Tensor) -> Tensor:
    floor = phi.clamp(min=TINY_DELTA[scaled.dtype])
    return scaled + torch.copysign(floor, scaled.detach())


# --- noise as a function of a seed and an index ---------------------------------------------------

PHILOX_ROUNDS = 7
PHILOX_MULTIPLIERS = 0xD2511F53, 0xCD9E8D57
PHILOX_KEY_STEPS = 0x9E3779B9, 0xBB67AE85
CALLS = 512  # in a block, of 8 normals each: a block has 4096 elements
RADIUS_ROTATION = 19
_MASK = 0xFFFFFFFF


def philox(counter: tuple[Tensor, Tensor, Tensor, Tensor], key: tuple[Tensor, Tensor]) -> Tensor:
    """Philox4x32-7 (Salmon et al. 2011): four words, stacked first, in int64 tensors."""
    (c0, c1, c2, c3), (k0, k1) = counter, key
    (m0, m1), (w0, w1) = PHILOX_MULTIPLIERS, PHILOX_KEY_STEPS
    for number in range(PHILOX_ROUNDS):
        p0, p1 = m0 * c0, m1 * c2  # the top bit becomes the sign, which the mask removes
        c0 = (p1 >> 32) & _MASK ^ c1 ^ (k0 + number * w0) & _MASK
        c2 = (p0 >> 32) & _MASK ^ c3 ^ (k1 + number * w1) & _MASK
        c1, c3 = p1 & _MASK, p0 & _MASK
    return torch.stack(torch.broadcast_tensors(c0, c1, c2, c3))


def normals(seed: Tensor, num: int, start: int = 0) -> Tensor:
    r"""The float32 normal numbers of every int64 seed, in a last dimension.

    The first has the index ``start``, a multiple of 4096.

    Number i is in block :math:`i // 4096`. It is in slot :math:`(i // 512) \bmod 8` of the Philox
    call with the counter :math:`512\,(i // 4096) + i \bmod 512` and the seed as key. So neighbours
    come from neighbouring calls, and a vector unit needs no shuffles. Each of the four words of a
    call fills two slots, by Box and Muller:

    .. math::
        u = 1 - 2^{-23} m(w \ggg 19), \quad a = 2^{-22} m(w) - 1, \qquad
        \sqrt{-2 \ln u}\,(\cos \pi a, \sin \pi a)

    with :math:`m` the low 23 bits. The rotation makes the 19 leading bits of the radius and the 13
    of the angle different bits of the word; the low bits of each repeat bits of the other. The
    largest number is 5.6; docs/noise.md has the exact law over all :math:`2^{32}` words.

    Example:
        >>> normals(torch.tensor([1, 2]), 3).shape
        torch.Size([2, 3])
    """
    num_blocks = -(-num // (8 * CALLS))
    call = torch.arange(num_blocks * CALLS, device=seed.device) + start // 8
    zero, key = torch.zeros_like(call), seed.unsqueeze(-1)
    words = philox((call & _MASK, call >> 32, zero, zero), (key & _MASK, (key >> 32) & _MASK))
    # [half, word, *seed, block, call] to [*seed, block, word, half, call]
    pairs = box_muller(words).unflatten(-1, (num_blocks, CALLS)).movedim((1, 0), (-3, -2))
    return pairs.flatten(-4)[..., :num]


def box_muller(words: Tensor) -> Tensor:
    """The two normal numbers of every 32-bit word, stacked first; see :func:`normals`."""
    rotated = words >> RADIUS_ROTATION | words << (32 - RADIUS_ROTATION)
    u = 1 - (rotated & 0x7FFFFF).float() / 2**23
    angle = math.pi * ((words & 0x7FFFFF).float() / 2**22 - 1)
    return (-2 * u.log()).sqrt() * torch.stack([angle.cos(), angle.sin()])


def seeded_delta(
    shape: Sequence[int], seed: Tensor, lam: Tensor, phi: Tensor, inner: int, *, dtype: torch.dtype
) -> Tensor:
    r"""δ of every element as a function of the seed and λ of its group.

    ``seed`` (int64) and ``lam`` have one value per group, ``phi`` has one value. Element i in
    row-major order belongs to group :math:`(i // \text{inner}) \bmod \text{groups}`. Its noise
    depends only on the group's seed and on its position within the group, so other groups do not
    change what a group draws. ``dtype`` is ``torch.float32`` or ``torch.float64``.
    """
    groups = seed.numel()
    num = math.prod(shape) // groups
    scaled = lam.to(dtype).unsqueeze(-1) * normals(seed, num).to(dtype)
    delta = _delta(scaled, phi.to(dtype))
    return delta.reshape(groups, num // inner, inner).transpose(0, 1).reshape(shape)


def draw_seed(
    num: int, device: torch.device | str | None, generator: torch.Generator | None = None
) -> Tensor:
    """Draws ``num`` seeds by one ordinary torch op, so every replay of a CUDA graph draws anew.

    It must be an op of torch: AOTAutograd merges equal calls of an op of our own, whatever its
    tags, so that all activations of a compiled model would have the same noise.
    """
    if generator is None:
        return torch.randint(2**63 - 1, (num,), device=device)
    return torch.randint(2**63 - 1, (num,), device=device, generator=generator)
