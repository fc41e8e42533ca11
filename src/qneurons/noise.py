"""The law of q = 1 + sign(ε)(λ|ε| + φ), ε ~ N(0, 1), and the draw of δ = q - 1."""

import math
from collections.abc import Sequence
from typing import Any, ClassVar, Self

import torch
from torch import Tensor
from torch.distributions import Distribution, constraints
from torch.distributions.utils import broadcast_all

from qneurons.quadrature import TINY_DELTA

__all__ = ["QLaw", "draw_delta"]


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

    The mean is 1, the entropy does not depend on :math:`\phi`, and the two modes
    :math:`1 \pm \phi` are the edges of the hole. Samples are reparametrised: :meth:`rsample` is
    differentiable in ``lam`` and ``phi``. Every sample lies in :attr:`support`, whose edges are
    rounded as the samples are.

    Args:
        lam (float or Tensor): :math:`\lambda > 0`. At zero the law is two atoms at
            :math:`1 \pm \phi` and has no density, so zero is refused.
        phi (float or Tensor): :math:`\phi \ge 0`, half the width of the hole. Default: ``1e-3``

    Keyword args:
        validate_args (bool, optional): check the parameters, and the argument of
            :meth:`log_prob`. Default: torch's own, which is on until ``torch.compile`` is first
            used and off from then.

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
        self,
        lam: float | Tensor,
        phi: float | Tensor = 1e-3,
        *,
        validate_args: bool | None = None,
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
        # The inverse of _from_normal, and zero in the hole.
        delta = q - 1
        return (delta - delta.clamp(-self.phi, self.phi)) / self.lam


def draw_delta(
    shape: Sequence[int],
    lam: float | Tensor,
    phi: float,
    *,
    dtype: torch.dtype,
    device: torch.device | str | None,
    generator: torch.Generator | None = None,
) -> Tensor:
    r"""Draws :math:`\delta = q - 1` for every element, never exactly zero.

    .. math::
        \delta = \mathrm{sign}(\varepsilon)\,(\lambda |\varepsilon| + \max(\phi, \text{tiny}))

    Forming q and subtracting 1 again would lose the low bits of :math:`\delta`; here there is no
    q. At :math:`\phi = 0` the floor ``TINY_DELTA[dtype]`` keeps the quotient of a q-activation
    defined, and its value there is the limit to rounding.

    The noise is drawn in logical (row-major) order, so the memory layout of an input does not
    change it, and it consumes the global generator or ``generator`` and nothing else:
    ``checkpoint``, ``fork_rng``, ``manual_seed``, vmap's ``randomness`` and ``torch.compile``
    treat it as they treat dropout's.

    Args:
        shape (sequence of int): shape of the result.
        lam (float or Tensor): :math:`\lambda \ge 0`, broadcast against ``shape``; not checked.
        phi (float): :math:`\phi \ge 0`; not checked.

    Keyword args:
        dtype (torch.dtype): ``torch.float32`` or ``torch.float64``.
        device (torch.device): where to draw.
        generator (torch.Generator, optional): source of the noise. Default: the global one.

    Example:
        >>> generator = torch.Generator().manual_seed(0)
        >>> delta = draw_delta(
        ...     (2, 3), 0.02, 1e-3, dtype=torch.float32, device="cpu", generator=generator
        ... )
        >>> delta.shape, bool((delta.abs() >= 1e-3).all())
        (torch.Size([2, 3]), True)
    """
    # Dynamic shapes reach randn only where no generator is named, not even None.
    source: dict[str, Any] = {} if generator is None else {"generator": generator}
    eps = torch.randn(shape, dtype=dtype, device=device, **source)
    in_place = not torch._C._are_functorch_transforms_active()  # else lam may be batched, eps not
    if isinstance(lam, Tensor):
        lam = lam.to(device=device, dtype=dtype)
        in_place = in_place and lam.dim() == 0
    scaled = eps.mul_(lam) if in_place else eps * lam
    floor = torch.full_like(scaled, max(phi, TINY_DELTA[dtype]))
    return floor.copysign_(scaled.detach()).add_(scaled)
