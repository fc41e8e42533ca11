"""q-activations as functions: what their arguments may be, the draw, and evaluation."""

import math
from collections.abc import Callable
from numbers import Real
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from qneurons import kernels
from qneurons.activations import Activation, ActivationLike, resolve, rows
from qneurons.kernels import device_type, difference, drawn_difference, kernel_row
from qneurons.noise import draw_delta, draw_seed, seeded_delta
from qneurons.precision import TINY_DELTA, compute_dtype
from qneurons.quadrature import delta_rule
from qneurons.torch_internals import in_func_transform, is_func_tensor

EVAL_MODES = ("limit", "mean", "sample")
# Of the paper's two constants: networks trained with 0.02 could not be told from those trained with
# the limit, and those with 0.1 were better, where they learnt anything (RESULTS.md).
LAM = 0.1


def q_activation(
    x: Tensor,
    activation: ActivationLike,
    lam: float | Tensor = LAM,
    phi: float = 1e-3,
    *,
    training: bool = True,
    eval_mode: str = "limit",
    generator: torch.Generator | None = None,
    seed: Tensor | None = None,
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
        seed: instead of a generator, int64 values of which ε is a function, the same on every
            device: one, or one for each group of elements, in a tensor that broadcasts to the shape
            of ``x`` as in ``seed[:, None]`` for groups of rows. A group draws the same alone and
            beside others. ``lam`` then has one value, or one for each group.

    Example:
        >>> x = torch.tensor([-1.0, -0.5, 1.0])
        >>> q_activation(x, "elu", seed=torch.tensor(0))
        tensor([-0.3906, -0.2997, 1.0000])
        >>> q_activation(x, "elu", training=False)
        tensor([-0.3679, -0.3033, 1.0000])
    """
    check_eval_mode(eval_mode)
    check_x(x)
    lam, phi, row = _check_lam(lam, x), check_nonnegative("phi", phi), resolve(activation)
    if seed is not None:
        _check_seed(seed, x, lam, generator)
    if training or eval_mode == "sample":
        return sample(x, row, lam, phi, generator, seed)
    return q_limit(x, row) if eval_mode == "limit" else q_mean(x, row, lam, phi)


def sample(
    x: Tensor,
    activation: Activation,
    lam: float | Tensor,
    phi: float | Tensor,
    generator: torch.Generator | None = None,
    seed: Tensor | None = None,
) -> Tensor:
    """The draw of :func:`q_activation` for arguments that were checked before."""
    (name, parameters), values = kernel_row(activation), lam if seed is None else seed
    grouping: tuple[int, int] | None = 1, x.numel()
    if isinstance(values, Tensor) and values.numel() > 1:
        grouping = _grouping(values, x.shape)
    # A group draws at least one block of noise, of 4096 elements: many small ones are drawn apart.
    has_groups = grouping is not None and not 1 < grouping[0] > x.numel() / 1024
    is_fused = name != "" and kernels.is_fused(device_type(x), x.dtype, name)
    if seed is None and not (has_groups and is_fused):
        delta = draw_delta(
            x.shape, lam, phi, dtype=compute_dtype(x), device=x.device, generator=generator
        )
        return difference(x, delta, activation)
    assert grouping is not None  # checked where a seed is given
    groups, inner = grouping
    if seed is None:
        draws = _traced_seed if torch.compiler.is_compiling() else draw_seed
        seed = draws(groups, x.device, generator)
    lam, phi = _values(lam, x), _values(phi, x)
    if groups > 1 and lam.numel() < groups:
        lam = lam.expand(groups).contiguous()
    if seed.dim() != 1:
        seed = seed.reshape(-1)
    inner = max(inner, 1)
    if not name:
        delta = seeded_delta(x.shape, seed, lam, phi, inner, dtype=compute_dtype(x))
        return difference(x, delta, activation)
    return drawn_difference(x, seed, lam, phi, inner, name, parameters, activation)


def _traced_seed(num: int, device: torch.device, generator: torch.Generator | None) -> Tensor:
    if generator is not None or in_func_transform():
        return draw_seed(num, device, generator)
    return kernels.draw_seed(num, device=device)


def _grouping(values: Tensor, shape: torch.Size) -> tuple[int, int] | None:
    """How many groups of x the values make, and of how many neighbours; None if they make none."""
    if values.numel() == 1:
        return 1, math.prod(shape)
    padded = torch.Size([1] * (len(shape) - values.dim())) + values.shape
    varied = [dim for dim, size in enumerate(padded) if size > 1]
    if not varied or padded[varied[0] : varied[-1] + 1] != shape[varied[0] : varied[-1] + 1]:
        return None
    return values.numel(), math.prod(shape[varied[-1] + 1 :])


def _values(value: float | Tensor, x: Tensor) -> Tensor:
    """λ or φ as a tensor, which a kernel reads when it runs: CUDA graphs do not freeze it."""
    dtype = compute_dtype(x)
    if isinstance(value, Tensor):
        is_beside = value.is_cpu if x.is_cpu else value.device == x.device
        if value.dtype is not dtype or not is_beside:
            value = value.to(x.device, dtype)
        value = value.resolve_neg()  # the kernels read its memory
        return value if value.dim() == 1 else value.reshape(-1)
    if torch.compiler.is_compiling():  # full would be compiled again for every value
        return torch.ones(1, dtype=dtype, device=x.device) * value
    return torch.full((1,), value, dtype=dtype, device=x.device)


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
    if not isinstance(delta, Tensor | float | int) or (
        isinstance(delta, Tensor) and delta.is_complex()
    ):
        kind = delta.dtype if isinstance(delta, Tensor) else type(delta).__name__
        raise TypeError(f"delta must be a number or a real tensor, got {kind}")
    given = torch.as_tensor(delta, dtype=compute_dtype(x), device=x.device)
    if given.requires_grad:
        raise ValueError("delta requires grad, but no gradient flows to it; pass delta.detach()")
    try:
        x, given = torch.broadcast_tensors(x, given)
    except RuntimeError as error:
        raise ValueError(
            f"delta must broadcast against x, got shapes {tuple(given.shape)} and {tuple(x.shape)}"
        ) from error
    sign = torch.where(given == 0, x.detach(), given)  # b > x at δ = 0: kinks go by the right slope
    nonzero = given.abs().clamp(min=TINY_DELTA[given.dtype]).copysign(sign)
    return difference(x, nonzero, resolve(activation))


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
    wide = x.to(compute_dtype(x))
    return (wide * row.derivative(wide, **row.parameters)).to(x.dtype)


def q_mean(x: Tensor, activation: ActivationLike, lam: float | Tensor, phi: float = 1e-3) -> Tensor:
    r"""Computes :math:`E_q[g_q(x)]` by quadrature.

    In float64 the error is about 1e-9 of the root mean square of g for |x| ≤ 3, and 1e-5 of it
    beyond, where g is mostly tiny. Of sin, which oscillates, the mean is good to 1e-5 for |x| ≤ 3
    and λ ≤ 5 only; :func:`qneurons.moments.mean` is right beyond.

    Args:
        x: the input, of a floating dtype.
        activation: f, as in :func:`q_activation`.
        lam: λ ≥ 0. A number up to 0.1 costs 16 evaluations of g where f has no kink but at zero;
            otherwise, and for a tensor, it is two hundred or more.
        phi: φ ≥ 0.

    Example:
        >>> q_mean(torch.tensor([-1.0, 1.0]), "tanh", lam=1.0)
        tensor([-0.4511, 0.4511])
    """
    check_x(x)
    lam, phi, row = _check_lam(lam, x), check_nonnegative("phi", phi), resolve(activation)
    wide = x.to(compute_dtype(x))
    lam = lam.to(wide) if isinstance(lam, Tensor) else lam
    total = torch.zeros_like(wide)
    for delta, weight in delta_rule(wide.detach(), lam, phi, row.kinks(**row.parameters)):
        delta = torch.as_tensor(delta, dtype=wide.dtype, device=x.device).expand_as(wide)
        total = total + weight * difference(wide, delta, row)
    return total.to(x.dtype)


def _short_name(row: Activation) -> Callable[..., Tensor]:
    def short(
        x: Tensor,
        lam: float | Tensor = LAM,
        phi: float = 1e-3,
        *,
        training: bool = True,
        eval_mode: str = "limit",
        generator: torch.Generator | None = None,
        seed: Tensor | None = None,
        **parameters: float,
    ) -> Tensor:
        return q_activation(
            x,
            row.with_parameters(**parameters),
            lam,
            phi,
            training=training,
            eval_mode=eval_mode,
            generator=generator,
            seed=seed,
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
    if x.layout != torch.strided:
        raise TypeError(f"x must be a dense tensor, got layout {x.layout}; pass x.to_dense()")


def check_nonnegative(name: str, value: float) -> float:
    is_number = isinstance(value, Real) and not isinstance(value, bool)
    if not is_number or not 0 <= value <= torch.finfo(torch.float32).max:
        raise ValueError(
            f"{name} must be a finite number, 0 or more, got {value!r}; for example {name}=0.01"
        )
    return float(value)


def _check_lam(lam: float | Tensor, x: Tensor) -> float | Tensor:
    if not isinstance(lam, Tensor):
        return check_nonnegative("lam", lam)
    if not lam.is_floating_point() or lam.requires_grad:
        raise TypeError(
            f"lam must be a floating tensor without gradient, got {lam.dtype} with "
            f"requires_grad={lam.requires_grad}; pass lam.detach().float()"
        )
    if not _broadcasts(lam, x):
        raise ValueError(
            f"lam must broadcast to the shape of x, got {tuple(lam.shape)} for {tuple(x.shape)}; "
            "reshape it, to (channels, 1, 1) for example"
        )
    _check_lam_values(lam)
    return lam


def _check_seed(
    seed: Tensor, x: Tensor, lam: float | Tensor, generator: torch.Generator | None
) -> None:
    if not isinstance(seed, Tensor) or seed.dtype != torch.int64:
        kind = seed.dtype if isinstance(seed, Tensor) else type(seed).__name__
        raise TypeError(f"seed must be a tensor of int64, got {kind}; for example torch.tensor(7)")
    if generator is not None:
        raise ValueError("seed and generator exclude each other; pass one of them")
    if seed.device != x.device:
        raise ValueError(
            f"seed must be on the device of x, {x.device}, got {seed.device}; "
            "pass seed.to(x.device)"
        )
    if not _broadcasts(seed, x) or _grouping(seed, x.shape) is None:
        raise ValueError(
            f"seed must be one value or broadcast to the shape of x, {tuple(x.shape)}, without a "
            f"dimension of size 1 between larger ones, got {tuple(seed.shape)}"
        )
    if not isinstance(lam, Tensor) or lam.numel() == 1:
        return
    if _grouping(lam, x.shape) != _grouping(seed, x.shape):
        raise ValueError(
            "lam must have one value, or one for each group as seed has, got shapes "
            f"{tuple(lam.shape)} and {tuple(seed.shape)}"
        )


def _broadcasts(values: Tensor, x: Tensor) -> bool:
    try:
        return torch.broadcast_shapes(values.shape, x.shape) == x.shape
    except RuntimeError:
        return False


def _check_lam_values(lam: Tensor) -> None:
    # Values are looked at only where that neither waits for a device nor breaks a trace.
    if lam.device.type != "cpu" or torch.compiler.is_compiling() or is_func_tensor(lam):
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
