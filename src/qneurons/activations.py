"""The table of activations, which modules, kernels, figures, pages and tests read."""

import difflib
import functools
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from numbers import Real
from typing import Any, SupportsIndex

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from qneurons import closed_forms as d
from qneurons.calculus import elementwise


def _nowhere(**_: float) -> tuple[float, ...]:
    return ()


@dataclass(frozen=True)
class Activation:
    r"""One row of the table: an elementwise f and what its q-activation needs.

    Every function takes the row's ``parameters`` as keywords after its tensors.

    Args:
        name: the row's key, as in ``"elu"``.
        f: the activation.
        derivative: f', differentiable by autograd and accurate in the tails; at a kink, the right
            derivative.
        difference: ``difference(x, delta, with_slope)`` returns g(x, δ) = (f(x + δx) - f(x)) / δ
            for δ ≠ 0, in a form that does not cancel, and its slope dg/dx, or None without
            ``with_slope``. None means the generic path, which is accurate where f is smooth.
        parameters: the values of f's parameters.
        rule: a condition on the parameters, in words and as a function.
        kinks: the points where f' jumps, as a function of the parameters.
        module: the PyTorch module of this activation.
        functions: the PyTorch functions of this activation.
        options: further attributes of ``module`` and keywords of ``functions``, with the values for
            which they compute this row.
        powers: (k, a, b) as a function of the parameters, if f(y) is :math:`a y^k` below zero and
            :math:`b y^k` above, and k is 1 or 2. The mean then needs no quadrature.
    """

    name: str
    f: Callable[..., Tensor]
    derivative: Callable[..., Tensor]
    difference: Callable[..., d.ValueAndSlope] | None = None
    parameters: Mapping[str, float] = field(default_factory=dict, hash=False)
    rule: tuple[str, Callable[..., bool]] | None = None
    kinks: Callable[..., tuple[float, ...]] = _nowhere
    module: type[nn.Module] | None = None
    functions: tuple[Callable[..., Any], ...] = ()
    options: Mapping[str, Any] = field(default_factory=dict, hash=False)
    powers: Callable[..., tuple[int, float, float]] | None = None

    def __call__(self, x: Tensor) -> Tensor:
        return self.f(x, **self.parameters)

    def __repr__(self) -> str:
        return ", ".join([self.name, *(f"{k}={v:g}" for k, v in self.parameters.items())])

    def __reduce_ex__(self, protocol: SupportsIndex) -> str | tuple[Any, ...]:
        known = _TABLE.get(self.name)
        if known is not None and replace(known, parameters=self.parameters) == self:
            return _restore, (self.name, dict(self.parameters))  # lambdas cannot be pickled
        return super().__reduce_ex__(protocol)

    def with_parameters(self, **parameters: float) -> "Activation":
        """Returns this row with other values of its parameters."""
        for name, value in parameters.items():
            if name not in self.parameters:
                known = ", ".join(self.parameters) or "none"
                raise TypeError(f"{self.name} has no parameter {name!r}; its parameters: {known}")
            if not (isinstance(value, Real) and abs(value) < math.inf):  # isfinite is not traced
                raise ValueError(f"{self.name}: {name} must be a finite number, got {value!r}")
        if all(self.parameters[name] == value for name, value in parameters.items()):
            return self  # making a row takes microseconds
        row = replace(self, parameters={**self.parameters, **parameters})
        if self.rule is not None and not self.rule[1](**row.parameters):
            raise ValueError(f"{self.name}: {self.rule[0]} must hold, got {row}")
        return row


def _below_zero(x: Tensor, inside: Tensor) -> Tensor:
    """f' of an activation that is the identity above zero and has the slope ``inside`` below."""
    return torch.where(x < 0, inside, torch.ones((), dtype=x.dtype, device=x.device))


def _at_zero(**_: float) -> tuple[float, ...]:
    return (0.0,)


_ROWS = [
    Activation(
        "sigmoid",
        torch.sigmoid,
        d.sigmoid_derivative,
        d.q_sigmoid,
        module=nn.Sigmoid,
        functions=(torch.sigmoid, F.sigmoid, torch.special.expit, Tensor.sigmoid),
    ),
    Activation(
        "tanh",
        torch.tanh,
        d.tanh_derivative,
        d.q_tanh,
        module=nn.Tanh,
        functions=(torch.tanh, F.tanh, Tensor.tanh),
    ),
    Activation(
        "relu",
        torch.relu,
        lambda x: (x >= 0).to(x.dtype),
        d.q_relu,
        kinks=_at_zero,
        module=nn.ReLU,
        functions=(torch.relu, F.relu, F.relu_, Tensor.relu),
        powers=lambda: (1, 0.0, 1.0),
    ),
    Activation("relu2", d.relu2, lambda x: 2 * x.relu(), d.q_relu2, powers=lambda: (2, 0.0, 1.0)),
    Activation(
        "leaky_relu",
        F.leaky_relu,
        lambda x, negative_slope: _below_zero(x, torch.full_like(x, negative_slope)),
        d.q_leaky_relu,
        parameters={"negative_slope": 0.01},
        kinks=_at_zero,
        module=nn.LeakyReLU,
        functions=(F.leaky_relu, F.leaky_relu_),
        powers=lambda negative_slope: (1, negative_slope, 1.0),
    ),
    Activation(
        "elu",
        F.elu,
        lambda x, alpha: _below_zero(x, alpha * torch.exp(x.clamp(max=0))),
        d.q_elu,
        parameters={"alpha": 1.0},
        kinks=lambda alpha: () if alpha == 1 else (0.0,),
        module=nn.ELU,
        functions=(F.elu, F.elu_),
    ),
    Activation(
        "selu",
        F.selu,
        lambda x: d.SELU_SCALE * _below_zero(x, d.SELU_ALPHA * torch.exp(x.clamp(max=0))),
        d.q_selu,
        kinks=_at_zero,
        module=nn.SELU,
        functions=(F.selu, F.selu_, torch.selu),
    ),
    Activation(
        "celu",
        F.celu,
        lambda x, alpha: torch.exp(x.clamp(max=0) / alpha),
        d.q_celu,
        parameters={"alpha": 1.0},
        rule=("alpha > 0", lambda alpha: alpha > 0),
        module=nn.CELU,
        functions=(F.celu, F.celu_, torch.celu),
    ),
    Activation(
        "softplus",
        d.softplus,
        d.softplus_derivative,
        d.q_softplus,
        parameters={"beta": 1.0},
        rule=("beta > 0", lambda beta: beta > 0),
        module=nn.Softplus,
        functions=(F.softplus,),
        options={"threshold": 20.0},
    ),
    Activation("silu", F.silu, d.silu_derivative, d.q_silu, module=nn.SiLU, functions=(F.silu,)),
    Activation(
        "gelu",
        d.gelu,
        d.gelu_derivative,
        d.q_gelu,
        module=nn.GELU,
        functions=(F.gelu,),
        options={"approximate": "none"},
    ),
    Activation(
        "gelu_tanh",
        d.gelu_tanh,
        d.gelu_tanh_derivative,
        d.q_gelu_tanh,
        module=nn.GELU,
        functions=(F.gelu,),
        options={"approximate": "tanh"},
    ),
    Activation("quick_gelu", d.quick_gelu, d.quick_gelu_derivative, d.q_quick_gelu),
    Activation("mish", d.mish, d.mish_derivative, d.q_mish, module=nn.Mish, functions=(F.mish,)),
    Activation(
        "hardtanh",
        F.hardtanh,
        lambda x, min_val, max_val: ((x >= min_val) & (x < max_val)).to(x.dtype),
        d.q_hardtanh,
        parameters={"min_val": -1.0, "max_val": 1.0},
        rule=("min_val < max_val", lambda min_val, max_val: min_val < max_val),
        kinks=lambda min_val, max_val: (min_val, max_val),
        module=nn.Hardtanh,
        functions=(F.hardtanh, F.hardtanh_),
    ),
    Activation(
        "relu6",
        F.relu6,
        lambda x: ((x >= 0) & (x < 6)).to(x.dtype),
        d.q_relu6,
        kinks=lambda: (0.0, 6.0),
        module=nn.ReLU6,
        functions=(F.relu6,),
    ),
    Activation(
        "hardsigmoid",
        d.hardsigmoid,
        lambda x: ((x >= -3) & (x < 3)).to(x.dtype) / 6,
        d.q_hardsigmoid,
        kinks=lambda: (-3.0, 3.0),
        module=nn.Hardsigmoid,
        functions=(F.hardsigmoid,),
    ),
    Activation(
        "hardswish",
        F.hardswish,
        d.hardswish_derivative,
        d.q_hardswish,
        kinks=lambda: (-3.0, 3.0),
        module=nn.Hardswish,
        functions=(F.hardswish,),
    ),
    Activation(
        "softsign",
        F.softsign,
        d.softsign_derivative,
        d.q_softsign,
        module=nn.Softsign,
        functions=(F.softsign,),
    ),
    Activation("sin", torch.sin, torch.cos, d.q_sin, functions=(torch.sin, Tensor.sin)),
    Activation(
        "identity",
        torch.clone,
        torch.ones_like,
        d.q_identity,
        module=nn.Identity,
        powers=lambda: (1, 1.0, 1.0),
    ),
]
_TABLE = {row.name: row for row in _ROWS}
_OTHER_NAMES = {"swish": "silu"}


def rows() -> tuple[Activation, ...]:
    """All rows of the table; registered ones come last."""
    return tuple(_TABLE.values())


def resolve(activation: "ActivationLike", **parameters: float) -> Activation:
    """Finds the row of an activation.

    Args:
        activation: a row; a name, ``"elu"``; a function, ``F.elu``; a module, ``nn.ELU(0.5)``, with
            its parameters; a ``functools.partial`` of a function; or any other elementwise
            callable, which becomes a new row without a closed form.
        parameters: values that replace those of the row.

    Example:
        >>> resolve(nn.ELU(alpha=0.5))
        elu, alpha=0.5
        >>> resolve(functools.partial(F.gelu, approximate="tanh"))
        gelu_tanh
    """
    return _find(activation).with_parameters(**parameters)


def _find(activation: "ActivationLike") -> Activation:
    if isinstance(activation, Activation):
        return activation
    if isinstance(activation, str):
        is_row = activation in _TABLE  # a registered row may have one of the other names
        return _by_name(activation if is_row else _OTHER_NAMES.get(activation, activation))
    if isinstance(activation, nn.Module):
        return from_module(activation) or _from_callable(activation)
    if isinstance(activation, type) or not callable(activation):
        raise TypeError(
            f"activation must be a name, a function, a module or a callable, got {activation!r}; "
            'for example "elu", F.elu or nn.ELU(alpha=0.5)'
        )
    return from_function(activation) or _from_callable(activation)


def _restore(name: str, parameters: dict[str, float]) -> Activation:
    return _by_name(name).with_parameters(**parameters)


def _by_name(name: str) -> Activation:
    if name not in _TABLE:
        near = difflib.get_close_matches(name.lower(), _TABLE, n=1, cutoff=0.5)
        hint = f"did you mean {near[0]!r}? " if near else ""
        raise ValueError(f"unknown activation {name!r}; {hint}known: {', '.join(_TABLE)}")
    return _TABLE[name]


def from_module(module: nn.Module) -> Activation | None:
    """The row of a PyTorch activation module, or of a subclass with its forward and parameters."""
    forward = getattr(module.forward, "__func__", None)
    for cls in type(module).__mro__:  # the nearest class first: ReLU6 is a Hardtanh
        for row in _TABLE.values():
            if (
                cls is row.module
                and forward is cls.forward
                and all(getattr(module, name) == value for name, value in row.options.items())
            ):
                values = {name: getattr(module, name) for name in row.parameters}
                return row.with_parameters(**values)
    return None


def from_function(function: Any) -> Activation | None:
    """The row of a PyTorch function, or of a ``functools.partial`` with its keywords."""
    keywords: dict[str, Any] = {}
    if isinstance(function, functools.partial) and not function.args:
        function, keywords = function.func, function.keywords
    for row in _TABLE.values():
        if any(function is known for known in row.functions) and all(
            keywords.get(name, value) == value for name, value in row.options.items()
        ):
            ignored = {"inplace", *row.options}
            return row.with_parameters(**{k: v for k, v in keywords.items() if k not in ignored})
    return None


def _from_callable(f: Callable[..., Tensor]) -> Activation:
    name = getattr(f, "__name__", type(f).__name__)
    return Activation(name, f, functools.partial(_by_autograd, f))


def _by_autograd(f: Callable[..., Tensor], x: Tensor, **parameters: float) -> Tensor:
    function = elementwise(lambda y: f(y, **parameters))
    return torch.func.grad(lambda y: function(y).sum())(x)


def register(
    name: str,
    f: Callable[..., Tensor],
    *,
    derivative: Callable[..., Tensor] | None = None,
    difference: Callable[..., d.ValueAndSlope] | None = None,
    parameters: Mapping[str, float] | None = None,
    rule: tuple[str, Callable[..., bool]] | None = None,
    kinks: Callable[..., tuple[float, ...]] = _nowhere,
    module: type[nn.Module] | None = None,
    functions: tuple[Callable[..., Any], ...] = (),
) -> Activation:
    r"""Adds a row to the table; see :class:`Activation` for the arguments.

    Without ``derivative`` autograd computes it. Without ``difference`` the q-activation takes the
    generic path, which is accurate where f is smooth.

    Example:
        >>> row = register("squareplus", lambda x: (x + (x * x + 4).sqrt()) / 2)
        >>> resolve("squareplus") is row
        True
        >>> unregister("squareplus")
    """
    if not name.isidentifier():
        raise ValueError(f"the name of an activation must be an identifier, got {name!r}")
    if name in _TABLE:
        raise ValueError(f"activation {name!r} is registered already; choose another name")
    slope = derivative or functools.partial(_by_autograd, f)
    values = dict(parameters or {})
    row = Activation(name, f, slope, difference, values, rule, kinks, module, functions)
    _TABLE[name] = row
    return row


def unregister(name: str) -> None:
    """Removes a registered row from the table."""
    if _by_name(name) in _ROWS:
        raise ValueError(f"{name!r} is built in and cannot be unregistered")
    del _TABLE[name]


ActivationLike = Activation | str | Callable[..., Tensor]
