r"""The q- and (p,q)-calculus built on Jackson's derivative, for any callable on tensors.

All derivatives here are divided differences, which are also means of the ordinary derivative,

.. math::
    D_{p,q} f(x) = \frac{f(px) - f(qx)}{(p - q)x} = \int_0^1 f'\bigl(px + t(q - p)x\bigr)\,dt.

Where px and qx are near each other the quotient cancels, and at x = 0 and p = q it is undefined;
there the mean is used. Autograd differentiates both in x, p and q.
"""

import functools
from collections.abc import Callable

import torch
from torch import Tensor

from qneurons.quadrature import GAUSS_LEGENDRE

__all__ = ["bregman_divergence", "pq_derivative", "pq_differential", "pq_gradient", "q_derivative"]

Function = Callable[[Tensor], Tensor]
Real = Tensor | float

# Nodes in (0, 1/2), each used with both signs, so that the result is symmetric to the last bit.
_GAUSS_LEGENDRE = [(node - 0.5, weight) for node, weight in GAUSS_LEGENDRE if node > 0.5]
_LONGEST_STEP = 1 / 8  # times max(1, |a|, |b|); beyond it the quotient loses a few bits at most
_ROUNDINGS = 32  # a generous bound on the error of f, in units of rounding


def _broadcast(**inputs: Real) -> tuple[Tensor, ...]:
    """Tensors of one shape and dtype. As in torch, numbers and 0-d tensors do not widen it."""
    for name, value in inputs.items():
        if isinstance(value, Tensor):
            is_real, kind = value.is_floating_point(), str(value.dtype)
        else:
            is_real, kind = isinstance(value, int | float), type(value).__name__
        if not is_real:
            raise TypeError(
                f"{name} must be a floating-point tensor or a real number, got {kind}; "
                f"convert it, e.g. with torch.as_tensor({name}, dtype=torch.float32)"
            )
    tensors = [value for value in inputs.values() if isinstance(value, Tensor)]
    leading = [tensor for tensor in tensors if tensor.dim() > 0] or tensors or [torch.tensor(0.0)]
    dtype = functools.reduce(torch.promote_types, [tensor.dtype for tensor in leading])
    promoted = [
        value.to(dtype)
        if isinstance(value, Tensor) and value.dim() > 0
        else torch.as_tensor(value, dtype=dtype, device=leading[0].device)
        for value in inputs.values()
    ]
    try:
        return tuple(torch.broadcast_tensors(*promoted))
    except RuntimeError:
        shapes = zip(inputs, (tuple(tensor.shape) for tensor in promoted), strict=True)
        raise ValueError(
            "the inputs must broadcast against each other, got "
            + ", ".join(f"{name} of shape {shape}" for name, shape in shapes)
            + "; add or drop dimensions, e.g. with unsqueeze"
        ) from None


def _checked(value: object, shape: torch.Size, rule: str) -> Tensor:
    if not isinstance(value, Tensor) or value.shape != shape:
        got = tuple(value.shape) if isinstance(value, Tensor) else type(value).__name__
        raise ValueError(f"{rule}: expected a tensor of shape {tuple(shape)}, got {got}")
    return value


def elementwise(f: Function) -> Function:
    rule = "f must act element by element and keep the shape of its argument"
    # The clone is for an f that works in place, such as nn.ReLU(inplace=True).
    return lambda y: _checked(f(y.clone()), y.shape, rule)


def _slope(f: Function, y: Tensor) -> Tensor:
    """f'(y) of an elementwise f, itself differentiable."""
    value, pullback = torch.func.vjp(f, y)[:2]
    return pullback(torch.ones_like(value))[0]


def divided_difference(f: Function, a: Tensor, b: Tensor) -> Tensor:
    """(f(b) - f(a)) / (b - a), and f'(a) where a = b; symmetric in a and b to the last bit."""
    h = b - a  # not (q - p)x: f is evaluated at the rounded points
    value_a, value_b = f(a), f(b)
    difference = value_b - value_a

    near = h.abs() <= _LONGEST_STEP * torch.maximum(a.abs(), b.abs()).clamp(min=1)
    # Elements that are not near become constants before f' sees them. Masking f' afterwards would
    # give NaN gradients, as 0 times an infinite derivative.
    middle = torch.where(near, (a + b) / 2, a.detach())
    step = torch.where(near, h, torch.zeros_like(h))
    mean_slope = torch.zeros_like(h)
    for node, weight in _GAUSS_LEGENDRE:
        pair = _slope(f, middle + node * step) + _slope(f, middle - node * step)
        mean_slope = mean_slope + weight * pair

    # The rule has converged if it gives the difference up to the rounding of f. Across a kink or a
    # jump, or next to a singularity, it has not, and the quotient is right.
    rounding = _ROUNDINGS * torch.finfo(h.dtype).eps * (1 + value_a.abs() + value_b.abs())
    converged = (mean_slope * step - difference).abs() <= rounding
    smooth = near & (converged | (h == 0))
    return torch.where(smooth, mean_slope, difference / torch.where(smooth, torch.ones_like(h), h))


def q_derivative(f: Function, x: Real, q: Real) -> Tensor:
    r"""Jackson's q-derivative of f.

    .. math::
        D_q f(x) = \frac{f(x) - f(qx)}{(1 - q)x}, \qquad
        D_1 f(x) = f'(x), \qquad D_q f(0) = f'(0).

    It is :func:`pq_derivative` with p = 1; the arguments are described there.

    Example::

        >>> x = torch.tensor([0.0, 1.0, 3.0])
        >>> q_derivative(torch.square, x, 2.0)  # (1 + q) x
        tensor([0., 3., 9.])
        >>> q_derivative(torch.square, x, 1.0)  # the ordinary derivative
        tensor([0., 2., 6.])
    """
    return pq_derivative(f, x, 1.0, q)


def pq_derivative(f: Function, x: Real, p: Real, q: Real) -> Tensor:
    r"""(p,q)-derivative of f.

    .. math::
        D_{p,q} f(x) = \frac{f(px) - f(qx)}{(p - q)x}, \qquad
        D_{p,p} f(x) = f'(px), \qquad D_{p,q} f(0) = f'(0).

    The result is differentiable in ``x``, ``p`` and ``q``, at x = 0 and p = q too: there the slope
    in x is :math:`\frac{p + q}{2} f''(0)` and :math:`p f''(px)`.

    Args:
        f: elementwise function of a tensor, built of torch operations. Kinks and jumps between px
            and qx are taken into account unless px and qx differ by little more than rounding. At
            x = 0 and p = q the derivative is autograd's, such as 0 for relu at 0.
        x: where to differentiate, a floating-point tensor or a number.
        p, q: ratios of the two points, broadcast against ``x``.

    Example::

        >>> pq_derivative(torch.square, 3.0, 1.0, 2.0)  # (p + q) x
        tensor(9.)
        >>> pq_derivative(torch.square, 3.0, 2.0, 2.0)  # f'(px)
        tensor(12.)
    """
    x, p, q = _broadcast(x=x, p=p, q=q)
    return divided_difference(elementwise(f), p * x, q * x)


def pq_differential(f: Function, x: Real, p: Real, q: Real) -> Tensor:
    r"""(p,q)-differential of f, :math:`d_{p,q} f(x) = f(qx) - f(px)`.

    The sign depends on the order, :math:`d_{p,q} = -d_{q,p}`, while that of :math:`D_{p,q} f =
    d_{p,q} f / d_{p,q} x` does not. The arguments are those of :func:`pq_derivative`.

    Example::

        >>> pq_differential(torch.square, 3.0, 1.0, 2.0)
        tensor(27.)
    """
    x, p, q = _broadcast(x=x, p=p, q=q)
    f = elementwise(f)
    return f(q * x) - f(p * x)


def pq_gradient(F: Function, x: Tensor, p: Real, q: Real) -> Tensor:
    r"""(p,q)-gradient of a function of d variables, in 18 evaluations of F per coordinate.

    .. math::
        \bigl(\nabla_{p,q} F(x)\bigr)_i =
        \frac{F(\ldots, p_i x_i, \ldots) - F(\ldots, q_i x_i, \ldots)}{(p_i - q_i) x_i},

    and the partial derivative at :math:`(\ldots, p_i x_i, \ldots)` if :math:`p_i = q_i` or
    :math:`x_i = 0`.

    Args:
        F: maps the last dimension of its argument to a value, for each batch row separately.
        x: the point, or a batch of points.
        p, q: ratios of the two points, numbers or one per coordinate, broadcast against ``x``.

    Shape:
        - ``x``: :math:`(*, d)`; ``F(x)``: :math:`(*)`; output: :math:`(*, d)`.

    Example::

        >>> x = torch.tensor([3.0, 5.0])
        >>> pq_gradient(lambda v: v[0] ** 2 * v[1], x, torch.tensor([2.0, 1.0]), 0.5)
        tensor([37.5000,  9.0000])
    """
    x, p, q = _broadcast(x=x, p=p, q=q)
    if x.dim() == 0 or x.shape[-1] == 0:
        raise ValueError(
            f"x must have a last dimension of coordinates, got shape {tuple(x.shape)}; "
            "use pq_derivative for a function of one variable"
        )
    rule = "F must map the last dimension of its argument to a value"
    coordinates = torch.arange(x.shape[-1], device=x.device)

    def partial(i: int) -> Tensor:
        def along(y: Tensor) -> Tensor:
            point = torch.where(coordinates == i, y.unsqueeze(-1), x)
            return _checked(F(point), y.shape, rule)

        return divided_difference(along, (p * x)[..., i], (q * x)[..., i])

    return torch.stack([partial(i) for i in range(x.shape[-1])], dim=-1)


def bregman_divergence(f: Function, a: Real, b: Real) -> Tensor:
    r"""Bregman divergence of f from b to a.

    .. math::
        B_f(a : b) = f(a) - f(b) - (a - b) f'(b)

    It is computed as :math:`(a - b)` times the divided difference of f minus :math:`f'(b)`. The
    absolute error shrinks with :math:`|a - b|`; the relative error grows, because the divergence
    is of second order. It is a divergence only if f is convex.

    Args:
        f: elementwise function of a tensor.
        a, b: floating-point tensors or numbers that broadcast against each other.

    Example::

        >>> bregman_divergence(torch.square, 5.0, torch.tensor([2.0, 5.0]))  # (a - b)^2
        tensor([9., 0.])
    """
    a, b = _broadcast(a=a, b=b)
    f = elementwise(f)
    return (a - b) * (divided_difference(f, a, b) - _slope(f, b))
