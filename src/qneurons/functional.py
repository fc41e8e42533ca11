"""q-activations as functions: validation, the draw, and derivatives of every order in x."""

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.autograd import forward_ad

from qneurons import reference
from qneurons.activations import Activation, ActivationLike, resolve, rows
from qneurons.noise import TINY_DELTA, draw_delta
from qneurons.quadrature import delta_rule

EVAL_MODES = ("limit", "mean", "sample")

_BLOCK = 2**16  # elements: the intermediate tensors of one block stay in the cache


def q_activation(
    x: Tensor,
    activation: ActivationLike,
    lam: float | Tensor = 0.02,
    phi: float = 1e-3,
    *,
    training: bool = True,
    eval_mode: str = "limit",
    generator: torch.Generator | None = None,
) -> Tensor:
    r"""Applies a stochastic q-activation elementwise.

    .. math::
        g_q(x) = \frac{f(x) - f(qx)}{1 - q}, \qquad
        q = 1 + \mathrm{sign}(\varepsilon)(\lambda|\varepsilon| + \phi), \quad
        \varepsilon \sim N(0, 1)

    with a fresh ε for every element and every call. In training the draw consumes the default
    generator of the device of ``x``, or ``generator``, as dropout does; in evaluation the result is
    deterministic unless ``eval_mode`` is ``"sample"``.

    Args:
        x: the input, of a floating dtype. The result has the same dtype; it is computed in float32
            (float64 for float64) and rounded once.
        activation: f, as a name, a function, a module or any elementwise callable; see
            :func:`qneurons.activations.resolve`.
        lam: λ ≥ 0, a number or a tensor that broadcasts to the shape of ``x``.
        phi: φ ≥ 0, the smallest :math:`|q - 1|`; 0 is allowed.
        training: whether to draw.
        eval_mode: what to return when not training: ``"limit"``, :math:`f'(x)x`; ``"mean"``,
            :math:`E_q[g_q(x)]`; ``"sample"``, a draw as in training.
        generator: the source of ε. Not supported inside ``torch.compile``.

    Example:
        >>> x = torch.tensor([-1.0, -0.5, 1.0])
        >>> q_activation(x, "elu", generator=torch.Generator().manual_seed(0))
        tensor([-0.3621, -0.3038, 1.0000])
        >>> q_activation(x, "elu", training=False)
        tensor([-0.3679, -0.3033, 1.0000])
    """
    check_eval_mode(eval_mode)
    check_x(x)
    lam, phi, row = _check_lam(lam, x), check_phi(phi), resolve(activation)
    if training or eval_mode == "sample":
        return sample(x, row, lam, phi, generator)
    return q_limit(x, row) if eval_mode == "limit" else q_mean(x, row, lam, phi)


def sample(
    x: Tensor,
    activation: Activation,
    lam: float | Tensor,
    phi: float,
    generator: torch.Generator | None = None,
) -> Tensor:
    """The draw of :func:`q_activation` for arguments that were checked before."""
    delta = draw_delta(
        x.shape,
        lam,
        phi,
        dtype=reference.compute_dtype(x),
        device=x.device,
        generator=generator,
    )
    return _difference(x, delta, activation)


def q_difference(x: Tensor, delta: float | Tensor, activation: ActivationLike) -> Tensor:
    r"""Computes :math:`g(x, δ) = (f(x + δx) - f(x)) / δ`, the q-activation at a given δ = q - 1.

    The result is differentiable in ``x`` to any order, and δ = 0 gives the limit :math:`f'(x)x`.

    Args:
        x: the input, of a floating dtype.
        delta: δ, a number or a tensor that broadcasts against ``x``; no gradient flows to it.
        activation: f, as in :func:`q_activation`.

    Example:
        >>> q_difference(torch.tensor([-1.0, 2.0]), torch.tensor([0.5, -3.0]), "relu")
        tensor([0.0000, 0.6667])
    """
    check_x(x)
    given = torch.as_tensor(delta, dtype=reference.compute_dtype(x), device=x.device)
    if given.requires_grad:
        raise ValueError("delta requires grad, but no gradient flows to it; pass delta.detach()")
    try:
        x, given = torch.broadcast_tensors(x, given)
    except RuntimeError as error:
        raise ValueError(
            f"delta must broadcast against x, got shapes {tuple(given.shape)} and {tuple(x.shape)}"
        ) from error
    nonzero = given.abs().clamp(min=TINY_DELTA[given.dtype]).copysign(given)
    return _difference(x, nonzero, resolve(activation))


def q_limit(x: Tensor, activation: ActivationLike) -> Tensor:
    r"""Computes :math:`f'(x)x`, to which the q-activation tends as λ and φ go to 0.

    Args:
        x: the input, of a floating dtype.
        activation: f, as in :func:`q_activation`.

    Example:
        >>> q_limit(torch.tensor([-1.0, 0.0, 1.0]), "softplus")  # SiLU
        tensor([-0.2689, 0.0000, 0.7311])
    """
    check_x(x)
    row = resolve(activation)
    wide = x.to(reference.compute_dtype(x))
    return (wide * row.derivative(wide, **row.parameters)).to(x.dtype)


def q_mean(x: Tensor, activation: ActivationLike, lam: float | Tensor, phi: float = 1e-3) -> Tensor:
    r"""Computes :math:`E_q[g_q(x)]` by quadrature, to about 1e-9 in float64.

    Args:
        x: the input, of a floating dtype.
        activation: f, as in :func:`q_activation`.
        lam: λ ≥ 0. A number up to 0.1 costs 16 evaluations of g; beyond, and for a tensor, about
            two hundred.
        phi: φ ≥ 0.

    Example:
        >>> q_mean(torch.tensor([-1.0, 1.0]), "tanh", lam=1.0)
        tensor([-0.4511, 0.4511])
    """
    check_x(x)
    lam, phi, row = _check_lam(lam, x), check_phi(phi), resolve(activation)
    wide = x.to(reference.compute_dtype(x))
    lam = lam.to(wide) if isinstance(lam, Tensor) else lam
    total = torch.zeros_like(wide)
    for delta, weight in delta_rule(wide.detach(), lam, phi, row.kinks(**row.parameters)):
        delta = torch.as_tensor(delta, dtype=wide.dtype, device=x.device).expand_as(wide)
        total = total + weight * _difference(wide, delta, row)
    return total.to(x.dtype)


def _difference(x: Tensor, delta: Tensor, activation: Activation) -> Tensor:
    in_transform = torch._C._are_functorch_transforms_active()
    if delta.stride() != x.stride() and not in_transform:
        # Else a row whose first operand is δ would return the layout of δ.
        delta = torch.empty_like(x, dtype=delta.dtype).copy_(delta)
    if activation.difference is None:
        # Autograd sees all of it: a callable may have parameters of its own.
        return reference.difference(x.to(delta.dtype), delta, activation).to(x.dtype)
    if torch.compiler.is_compiling():
        return _Difference.apply(x, delta, activation)
    if x.requires_grad and torch.is_grad_enabled() and not in_transform:
        return _TrainingDifference.apply(x, delta, activation)
    return _ForwardDifference.apply(x, delta, activation)


class _Difference(torch.autograd.Function):
    """g(x, δ), from x and δ alone."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor, delta: Tensor, activation: Activation) -> Tensor:
        return reference.difference(x.to(delta.dtype), delta, activation).to(x.dtype)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        x, delta, ctx.activation = inputs
        ctx.save_for_backward(x, delta)
        ctx.save_for_forward(x, delta)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        x, delta = ctx.saved_tensors
        return (_slope(x, delta, ctx.activation) * grads[0]).to(x.dtype), None, None


class _ForwardDifference(_Difference):
    """With forward mode, for which Dynamo refuses a Function even where it is not asked for."""

    @staticmethod
    def jvp(ctx: Any, *tangents: Any) -> Tensor:
        x, delta = ctx.saved_tensors[:2]
        with _outer_forward_mode(x) as x:
            return (_slope(x, delta, ctx.activation) * tangents[0]).to(x.dtype)


class _TrainingDifference(_ForwardDifference):
    """The slope is computed beside g, with which it shares most of the work, and kept.

    functorch would need ``setup_context``, which costs as much as ten elementwise operations.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, delta: Tensor, activation: Activation) -> Tensor:  # type: ignore[override]
        value, slope = _in_blocks(x, delta, activation)
        ctx.activation = activation
        ctx.save_for_backward(x, delta, slope)
        ctx.save_for_forward(x, delta)
        return value

    setup_context = staticmethod(torch.autograd.Function.setup_context)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        x, delta, slope = ctx.saved_tensors
        if torch.is_grad_enabled():  # create_graph
            slope = _slope(x, delta, ctx.activation)
        return (slope * grads[0]).to(x.dtype), None, None


def _slope(x: Tensor, delta: Tensor, activation: Activation) -> Tensor:
    """dg/dx in the dtype of δ, differentiable."""
    function = _Slope if torch.compiler.is_compiling() else _ForwardSlope
    return function.apply(x, delta, activation)


class _Slope(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor, delta: Tensor, activation: Activation) -> Tensor:
        return reference.difference_and_slope(x.to(delta.dtype), delta, activation)[1]

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        x, delta, ctx.activation = inputs
        ctx.save_for_backward(x, delta)
        ctx.save_for_forward(x, delta)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        x, delta = ctx.saved_tensors
        curvature = reference.curvature(x.to(delta.dtype), delta, ctx.activation)
        return (curvature * grads[0]).to(x.dtype), None, None


class _ForwardSlope(_Slope):
    @staticmethod
    def jvp(ctx: Any, *tangents: Any) -> Tensor:
        x, delta = ctx.saved_tensors
        with _outer_forward_mode(x) as x:
            return reference.curvature(x.to(delta.dtype), delta, ctx.activation) * tangents[0]


@contextmanager
def _outer_forward_mode(x: Tensor) -> Iterator[Tensor]:
    """Yields x without its own tangent, for a jvp that an outer forward mode can differentiate.

    torch runs a jvp with forward mode off, so that ``jacfwd(jacfwd(f))`` would be zero.
    """
    with forward_ad._set_fwd_grad_enabled(True):
        yield forward_ad.unpack_dual(x).primal


def _in_blocks(x: Tensor, delta: Tensor, activation: Activation) -> tuple[Tensor, Tensor]:
    """g in the dtype of x and dg/dx in that of δ, with the strides of x.

    On the CPU a large tensor is worked on in blocks, so that the caches hold what a block needs.
    """
    if x.numel() <= _BLOCK or x.device.type != "cpu":
        value, slope = reference.difference_and_slope(x.to(delta.dtype), delta, activation)
        return value.to(x.dtype), slope
    value, slope = torch.empty_like(x), torch.empty_like(x, dtype=delta.dtype)
    order = sorted(range(x.dim()), key=value.stride, reverse=True)  # of the memory
    tensors = (x, delta, value, slope)
    blocks = (tensor.permute(order).reshape(-1).split(_BLOCK) for tensor in tensors)
    for x_block, delta_block, *results in zip(*blocks, strict=True):
        x_block = x_block.to(delta.dtype)
        computed = reference.difference_and_slope(x_block, delta_block, activation)
        for result, block in zip(results, computed, strict=True):
            result.copy_(block)
    return value, slope


def _short_name(row: Activation) -> Callable[..., Tensor]:
    def short(
        x: Tensor,
        lam: float | Tensor = 0.02,
        phi: float = 1e-3,
        *,
        training: bool = True,
        eval_mode: str = "limit",
        generator: torch.Generator | None = None,
        **parameters: float,
    ) -> Tensor:
        activation = row.with_parameters(**parameters)
        return q_activation(
            x, activation, lam, phi, training=training, eval_mode=eval_mode, generator=generator
        )

    short.__name__ = short.__qualname__ = f"q_{row.name}"
    known = ", ".join(f"``{name}={value:g}``" for name, value in row.parameters.items())
    short.__doc__ = f":func:`q_activation` of {row.name}" + (f", with {known}." if known else ".")
    return short


SHORT_NAMES = {f"q_{row.name}": _short_name(row) for row in rows()}
globals().update(SHORT_NAMES)

if TYPE_CHECKING:

    def __getattr__(name: str) -> Callable[..., Tensor]: ...  # the short names


# --- what arguments may be ------------------------------------------------------------------------


def check_x(x: Tensor) -> None:
    if not isinstance(x, Tensor):
        raise TypeError(f"x must be a tensor, got {type(x).__name__}")
    if not x.is_floating_point():
        raise TypeError(
            f"x must be of a floating dtype, got {x.dtype}; a q-activation is a real function"
            + ("" if x.is_complex() else ": convert with x.float()")
        )


def check_phi(phi: float) -> float:
    if isinstance(phi, Tensor) or not 0 <= phi < math.inf:
        raise ValueError(f"phi must be a finite number, 0 or more, got {phi!r}")
    return phi


def check_lam(lam: float) -> float:
    if isinstance(lam, bool | str) or not 0 <= lam < math.inf:
        raise ValueError(f"lam must be a finite number, 0 or more, got {lam!r}")
    return lam


def _check_lam(lam: float | Tensor, x: Tensor) -> float | Tensor:
    if not isinstance(lam, Tensor):
        return check_lam(lam)
    if not lam.is_floating_point() or lam.requires_grad:
        raise TypeError(
            f"lam must be a floating tensor without gradient, got {lam.dtype} with "
            f"requires_grad={lam.requires_grad}; pass lam.detach().float()"
        )
    try:
        fits = torch.broadcast_shapes(lam.shape, x.shape) == x.shape
    except RuntimeError:
        fits = False
    if not fits:
        raise ValueError(
            f"lam must broadcast to the shape of x, got {tuple(lam.shape)} for {tuple(x.shape)}; "
            "reshape it, to (channels, 1, 1) for example"
        )
    _check_lam_values(lam)
    return lam


def _check_lam_values(lam: Tensor) -> None:
    # Values are looked at only where that neither waits for a device nor breaks a trace.
    if (
        lam.device.type != "cpu"
        or torch.compiler.is_compiling()
        or torch._C._functorch.is_functorch_wrapped_tensor(lam)
    ):
        return
    bad = lam[~((lam >= 0) & (lam < math.inf))]
    if bad.numel():
        raise ValueError(
            f"every value of lam must be finite, 0 or more, got {bad.flatten()[0].item()!r}"
        )


def check_eval_mode(eval_mode: str) -> str:
    if eval_mode not in EVAL_MODES:
        raise ValueError(f"eval_mode must be one of {', '.join(EVAL_MODES)}, got {eval_mode!r}")
    return eval_mode
