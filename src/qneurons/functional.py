"""q-activations as functions: the draw, the limit, the mean, and one function for every row."""

import inspect
from typing import Unpack

import torch
from torch import Tensor

from qneurons import kernels
from qneurons.activations import Activation, ActivationLike, resolve
from qneurons.arguments import (
    Mode,
    Options,
    check_lam,
    check_nonnegative,
    check_options,
    check_seed,
    check_x,
    find_grouping,
)
from qneurons.closed_forms import unless_nan
from qneurons.containers import is_container, map_inside, map_with_seed
from qneurons.kernels import difference, drawn_difference, kernel_row
from qneurons.noise import draw_delta, draw_seed, seeded_delta
from qneurons.precision import TINY_DELTA, compute_dtype
from qneurons.quadrature import crossing_moment, delta_rule
from qneurons.torch_internals import device_type

# The larger of the paper's constants. Training with 0.02 did not differ measurably from training
# with the limit, nor 0.1 from 0.02; annealing from a larger λ was better (RESULTS.md).
LAM = 0.1


def q_activation(
    x: Tensor,
    activation: ActivationLike,
    lam: float | Tensor = LAM,
    phi: float = 1e-3,
    *,
    training: bool = True,
    eval_mode: Mode = "limit",
    generator: torch.Generator | None = None,
    seed: Tensor | None = None,
) -> Tensor:
    r"""Applies a stochastic q-activation elementwise.

    .. math::
        g_q(x) = \frac{f(x) - f(qx)}{1 - q}, \qquad
        q = 1 + \mathrm{sign}(\varepsilon)(\lambda|\varepsilon| + \phi), \quad
        \varepsilon \sim N(0, 1)

    with a fresh ε for every element and every call. It is drawn from ``generator``, or else from
    the default generator of the device of ``x``, as dropout's is. In evaluation the result is
    deterministic unless ``eval_mode`` is ``"sample"``. If the numbers λ and φ are both 0 nothing is
    drawn, and the result is the limit :math:`f'(x)x`, in training too.

    Args:
        x: the input, of a floating dtype. The result has the same dtype; it is computed in float32
            (float64 for float64) and rounded once. It may be a jagged nested tensor, or a DTensor:
            its shards draw different noise, and its replicas the same.
        activation: f, as a name, a function, a module or any elementwise callable; see
            :func:`qneurons.resolve`.
        lam: λ ≥ 0, a number or a tensor that broadcasts to the shape of ``x``. The values of a
            tensor are checked on the CPU only: reading them would wait for another device.
        phi: φ ≥ 0, the smallest :math:`|q - 1|`; 0 is allowed.
        training: True to draw, False to evaluate by ``eval_mode``.
        eval_mode: what evaluation returns: ``"limit"``, :math:`f'(x)x`; ``"mean"``,
            :math:`E_q[g_q(x)]`; ``"sample"``, a draw as in training.
        generator: the source of ε. Not supported inside ``torch.compile``.
        seed: an int64 tensor, instead of a generator. ε is then a function of the seed, the same on
            every device. It has one value, or one for each group of elements: it broadcasts to the
            shape of ``x``, as ``seed[:, None]`` does with one group per row. The noise of a group
            does not depend on other groups. ``lam`` then has one value, or one for each group.

    Example:
        >>> x = torch.tensor([-1.0, -0.5, 1.0])
        >>> q_activation(x, "elu", seed=torch.tensor(0))
        tensor([-0.3906, -0.2997, 1.0000])
        >>> q_activation(x, "elu", training=False)
        tensor([-0.3679, -0.3033, 1.0000])
    """
    check_options(training, eval_mode, generator)
    check_x(x)
    lam, phi, row = check_lam(lam, x), check_nonnegative("phi", phi), resolve(activation)
    if seed is not None:
        check_seed(seed, x, lam, generator)
    if not isinstance(lam, Tensor) and lam == 0 == phi:
        return limit(x, row)
    if training or eval_mode == "sample":
        return sample(x, row, lam, phi, generator, seed)
    return limit(x, row) if eval_mode == "limit" else q_mean(x, row, lam, phi)


def sample(
    x: Tensor,
    activation: Activation,
    lam: float | Tensor,
    phi: float | Tensor,
    generator: torch.Generator | None = None,
    seed: Tensor | None = None,
) -> Tensor:
    """The draw of :func:`q_activation`, without its checks of the arguments."""
    if is_container(x):
        return map_with_seed(
            x, lambda part, seed: sample(part, activation, lam, phi, generator, seed), seed
        )
    (name, parameters), values = kernel_row(activation), lam if seed is None else seed
    grouping: tuple[int, int] | None = 1, x.numel()
    if isinstance(values, Tensor) and values.numel() != 1:
        if not values.numel():  # x has no element
            return limit(x, activation)
        grouping = find_grouping(values, x.shape)
    # A group draws whole blocks of noise, 4096 elements each. Many small groups use randn instead.
    has_groups = grouping is not None and not 1 < grouping[0] > x.numel() / 1024
    is_fused = name != "" and kernels.is_fused(device_type(x), x.dtype, name)
    if seed is None and not (has_groups and is_fused):
        delta = draw_delta(
            x.shape, lam, phi, dtype=compute_dtype(x), device=x.device, generator=generator
        )
        return difference(x, delta, activation)
    assert grouping is not None  # check_seed refuses such a seed
    groups, inner = grouping
    if seed is None:
        seed = draw_seed(groups, x.device, generator)
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


def _values(value: float | Tensor, x: Tensor) -> Tensor:
    """λ or φ as a tensor, which a CUDA graph reads at every replay; a number would be frozen."""
    dtype = compute_dtype(x)
    if isinstance(value, Tensor):
        is_beside = value.is_cpu if x.is_cpu else value.device == x.device
        if value.dtype is not dtype or not is_beside:
            value = value.to(x.device, dtype)
        value = value.resolve_neg()  # the kernels read its memory
        return value if value.dim() == 1 else value.reshape(-1)
    if torch.compiler.is_compiling():  # torch.full would be compiled again for every value
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
    sign = torch.where(given == 0, x.detach(), given)  # b > x at δ = 0: the right slope at kinks
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
    return limit(x, resolve(activation))


def limit(x: Tensor, activation: Activation) -> Tensor:
    """:func:`q_limit` without its checks of the arguments."""
    if is_container(x):
        return map_inside(x, lambda part: limit(part, activation))
    name, parameters = kernel_row(activation)
    if name:
        return kernels.limit(x, name, parameters, activation)
    wide = x.to(compute_dtype(x))
    return (wide * activation.derivative(wide, **activation.parameters)).to(x.dtype)


def q_mean(x: Tensor, activation: ActivationLike, lam: float | Tensor, phi: float = 1e-3) -> Tensor:
    r"""Computes :math:`E_q[g_q(x)]`, by quadrature unless f is a power on each side of zero.

    For relu, leaky_relu, identity and relu2, :math:`f(y) = a y^k` below zero and :math:`b y^k`
    above, and so is the mean, with other constants. The constants are computed first; then the mean
    costs a few elementwise operations.

    By quadrature the error in float64, relative to the root mean square of g, is at most 1e-9 for
    abs(x) ≤ 3 and 3e-9 for abs(x) ≤ 50. For λ above 0.02 and up to 0.1, where 16 evaluations of g
    are made, it grows to 2e-5 beyond abs(x) = 3. For sin, which oscillates, it is 1e-5 for
    abs(x) ≤ 3 and λ ≤ 5, and larger beyond; there use :func:`qneurons.moments.mean`. At ±inf the
    result is the limit, if there is one.

    Args:
        x: the input, of a floating dtype.
        activation: f, as in :func:`q_activation`.
        lam: λ ≥ 0. By quadrature a number up to 0.1 costs 16 evaluations of g if f has no kink
            except at zero. A larger number, a tensor or a kink elsewhere costs 200 or more.
        phi: φ ≥ 0.

    Example:
        >>> q_mean(torch.tensor([-1.0, 1.0]), "tanh", lam=1.0)
        tensor([-0.4511, 0.4511])
    """
    check_x(x)
    lam, phi, row = check_lam(lam, x), check_nonnegative("phi", phi), resolve(activation)
    if is_container(x):
        return map_inside(x, lambda part: q_mean(part, row, lam, phi))
    wide = x.to(compute_dtype(x))
    lam = lam.to(wide) if isinstance(lam, Tensor) else lam
    if row.powers is not None:
        if not isinstance(lam, Tensor):  # which would be compiled again for every value
            lam = lam * wide.new_ones(())
        power, below, above = powers_of_mean(row, lam, phi)
        value = unless_nan(wide.detach(), torch.where(wide < 0, below, above))
        wide = torch.where(value == 0, 0.0, wide)  # 0 · inf would be NaN
        for _ in range(power):
            value = value * wide
        return value.to(x.dtype)
    total = torch.zeros_like(wide)
    for delta, weight in delta_rule(wide.detach(), lam, phi, row.kinks(**row.parameters)):
        delta = torch.as_tensor(delta, dtype=wide.dtype, device=x.device).expand_as(wide)
        term = weight * difference(wide, delta, row)
        if isinstance(weight, Tensor):  # an empty panel at x = ±inf
            term = torch.where(weight == 0, 0.0, term)
        total = total + term
    return total.to(x.dtype)


def powers_of_mean(row: Activation, lam: Tensor, phi: float) -> tuple[int, Tensor, Tensor]:
    r"""k, and the a and b with which the mean is :math:`a x^k` below zero and :math:`b x^k` above.

    Where x(1 + δ) lies on the same side of zero as x, g is f(x)(k + (k - 1)δ), and δ has mean 0.
    Where it crosses zero from above, :math:`(a - b)(1 + δ)^k x^k / δ` is added, with f's a and b.
    """
    assert row.powers is not None
    power, below, above = row.powers(**row.parameters)
    shift = (-1) ** power * (above - below) * crossing_moment(power, lam, phi)
    return power, power * below - shift, power * above + shift


# --- one function for every row of the table ------------------------------------------------------


def q_sigmoid(
    x: Tensor, lam: float | Tensor = LAM, phi: float = 1e-3, **options: Unpack[Options]
) -> Tensor:
    """The q-activation of f(x) = 1 / (1 + exp(-x)). See :func:`q_activation`."""
    return q_activation(x, "sigmoid", lam, phi, **options)


def q_tanh(
    x: Tensor, lam: float | Tensor = LAM, phi: float = 1e-3, **options: Unpack[Options]
) -> Tensor:
    """The q-activation of f(x) = tanh(x). See :func:`q_activation`."""
    return q_activation(x, "tanh", lam, phi, **options)


def q_relu(
    x: Tensor, lam: float | Tensor = LAM, phi: float = 1e-3, **options: Unpack[Options]
) -> Tensor:
    """The q-activation of f(x) = max(0, x). See :func:`q_activation`."""
    return q_activation(x, "relu", lam, phi, **options)


def q_relu2(
    x: Tensor, lam: float | Tensor = LAM, phi: float = 1e-3, **options: Unpack[Options]
) -> Tensor:
    """The q-activation of f(x) = max(0, x)². See :func:`q_activation`."""
    return q_activation(x, "relu2", lam, phi, **options)


def q_leaky_relu(
    x: Tensor,
    lam: float | Tensor = LAM,
    phi: float = 1e-3,
    *,
    negative_slope: float = 0.01,
    **options: Unpack[Options],
) -> Tensor:
    """The q-activation of f(x) = x where x ≥ 0 and negative_slope x elsewhere.

    Args:
        x, lam, phi, training, eval_mode, generator, seed: see :func:`q_activation`.
        negative_slope: the slope of f where x < 0.
    """
    return q_activation(
        x, resolve("leaky_relu", negative_slope=negative_slope), lam, phi, **options
    )


def q_elu(
    x: Tensor,
    lam: float | Tensor = LAM,
    phi: float = 1e-3,
    *,
    alpha: float = 1.0,
    **options: Unpack[Options],
) -> Tensor:
    """The q-activation of f(x) = x where x > 0 and α (exp(x) - 1) elsewhere.

    Args:
        x, lam, phi, training, eval_mode, generator, seed: see :func:`q_activation`.
        alpha: α; f tends to -α as x goes to -∞.

    Example:
        >>> q_elu(torch.tensor([-1.0, 1.0]), training=False, alpha=0.5)
        tensor([-0.1839, 1.0000])
    """
    return q_activation(x, resolve("elu", alpha=alpha), lam, phi, **options)


def q_selu(
    x: Tensor, lam: float | Tensor = LAM, phi: float = 1e-3, **options: Unpack[Options]
) -> Tensor:
    """The q-activation of f(x) = 1.0507 x where x > 0 and 1.7581 (exp(x) - 1) elsewhere."""
    return q_activation(x, "selu", lam, phi, **options)


def q_celu(
    x: Tensor,
    lam: float | Tensor = LAM,
    phi: float = 1e-3,
    *,
    alpha: float = 1.0,
    **options: Unpack[Options],
) -> Tensor:
    """The q-activation of f(x) = x where x > 0 and α (exp(x / α) - 1) elsewhere.

    Args:
        x, lam, phi, training, eval_mode, generator, seed: see :func:`q_activation`.
        alpha: α > 0.
    """
    return q_activation(x, resolve("celu", alpha=alpha), lam, phi, **options)


def q_softplus(
    x: Tensor,
    lam: float | Tensor = LAM,
    phi: float = 1e-3,
    *,
    beta: float = 1.0,
    **options: Unpack[Options],
) -> Tensor:
    """The q-activation of f(x) = log(1 + exp(βx)) / β.

    Args:
        x, lam, phi, training, eval_mode, generator, seed: see :func:`q_activation`.
        beta: β > 0.
    """
    return q_activation(x, resolve("softplus", beta=beta), lam, phi, **options)


def q_silu(
    x: Tensor, lam: float | Tensor = LAM, phi: float = 1e-3, **options: Unpack[Options]
) -> Tensor:
    """The q-activation of f(x) = x / (1 + exp(-x)). See :func:`q_activation`."""
    return q_activation(x, "silu", lam, phi, **options)


def q_gelu(
    x: Tensor, lam: float | Tensor = LAM, phi: float = 1e-3, **options: Unpack[Options]
) -> Tensor:
    """The q-activation of f(x) = x Φ(x), with Φ the normal cdf. See :func:`q_activation`."""
    return q_activation(x, "gelu", lam, phi, **options)


def q_gelu_tanh(
    x: Tensor, lam: float | Tensor = LAM, phi: float = 1e-3, **options: Unpack[Options]
) -> Tensor:
    """The q-activation of f(x) = x (1 + tanh(√(2/π) (x + 0.044715 x³))) / 2."""
    return q_activation(x, "gelu_tanh", lam, phi, **options)


def q_quick_gelu(
    x: Tensor, lam: float | Tensor = LAM, phi: float = 1e-3, **options: Unpack[Options]
) -> Tensor:
    """The q-activation of f(x) = x / (1 + exp(-1.702 x)). See :func:`q_activation`."""
    return q_activation(x, "quick_gelu", lam, phi, **options)


def q_mish(
    x: Tensor, lam: float | Tensor = LAM, phi: float = 1e-3, **options: Unpack[Options]
) -> Tensor:
    """The q-activation of f(x) = x tanh(log(1 + exp(x))). See :func:`q_activation`."""
    return q_activation(x, "mish", lam, phi, **options)


def q_hardtanh(
    x: Tensor,
    lam: float | Tensor = LAM,
    phi: float = 1e-3,
    *,
    min_val: float = -1.0,
    max_val: float = 1.0,
    **options: Unpack[Options],
) -> Tensor:
    """The q-activation of f(x) = min(max(x, min_val), max_val).

    Args:
        x, lam, phi, training, eval_mode, generator, seed: see :func:`q_activation`.
        min_val: the smallest value of f.
        max_val: the largest value of f, above ``min_val``.
    """
    return q_activation(
        x, resolve("hardtanh", min_val=min_val, max_val=max_val), lam, phi, **options
    )


def q_relu6(
    x: Tensor, lam: float | Tensor = LAM, phi: float = 1e-3, **options: Unpack[Options]
) -> Tensor:
    """The q-activation of f(x) = min(max(0, x), 6). See :func:`q_activation`."""
    return q_activation(x, "relu6", lam, phi, **options)


def q_hardsigmoid(
    x: Tensor, lam: float | Tensor = LAM, phi: float = 1e-3, **options: Unpack[Options]
) -> Tensor:
    """The q-activation of f(x) = min(max(0, x + 3), 6) / 6. See :func:`q_activation`."""
    return q_activation(x, "hardsigmoid", lam, phi, **options)


def q_hardswish(
    x: Tensor, lam: float | Tensor = LAM, phi: float = 1e-3, **options: Unpack[Options]
) -> Tensor:
    """The q-activation of f(x) = x min(max(0, x + 3), 6) / 6. See :func:`q_activation`."""
    return q_activation(x, "hardswish", lam, phi, **options)


def q_softsign(
    x: Tensor, lam: float | Tensor = LAM, phi: float = 1e-3, **options: Unpack[Options]
) -> Tensor:
    """The q-activation of f(x) = x / (1 + abs(x)). See :func:`q_activation`."""
    return q_activation(x, "softsign", lam, phi, **options)


def q_sin(
    x: Tensor, lam: float | Tensor = LAM, phi: float = 1e-3, **options: Unpack[Options]
) -> Tensor:
    """The q-activation of f(x) = sin(x). See :func:`q_activation`."""
    return q_activation(x, "sin", lam, phi, **options)


def q_identity(
    x: Tensor, lam: float | Tensor = LAM, phi: float = 1e-3, **options: Unpack[Options]
) -> Tensor:
    """The q-activation of f(x) = x, which is x. See :func:`q_activation`."""
    return q_activation(x, "identity", lam, phi, **options)


# Type checkers read the keywords from Options; help() and inspect.signature read them from here.
_signature = inspect.signature(q_activation)
_keywords = [p for p in _signature.parameters.values() if p.kind is p.KEYWORD_ONLY]
for _function in [value for name, value in globals().items() if name.startswith("q_")]:
    if "options" in (_own := inspect.signature(_function).parameters):
        _shown = [*(p for p in _own.values() if p.name != "options"), *_keywords]
        _function.__signature__ = _signature.replace(parameters=_shown)
