"""q-activations as modules, made from the table, and the conversion of an existing model."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from qneurons.activations import Activation, ActivationLike, resolve, rows
from qneurons.functional import (
    LAM,
    check_eval_mode,
    check_nonnegative,
    check_x,
    q_limit,
    q_mean,
    sample,
)


class QActivation(nn.Module):
    r"""Applies a stochastic q-activation elementwise.

    .. math::
        g_q(x) = \frac{f(x) - f(qx)}{1 - q}, \qquad
        q = 1 + \mathrm{sign}(\varepsilon)(\lambda|\varepsilon| + \phi), \quad
        \varepsilon \sim N(0, 1)

    In training ε is drawn afresh for every element and every call, from torch's own generator, as
    dropout's mask is. In evaluation the module is deterministic unless ``eval_mode="sample"``. It
    has no ``state_dict`` keys, so that a checkpoint of the model with plain activations loads.

    Args:
        activation: f, as a name, a function, a module or any elementwise callable; see
            :func:`qneurons.activations.resolve`.
        lam: λ ≥ 0. Of the paper's constants 0.02 and 0.1 the default is the one that ended better
            in our study; annealing from 5 was better still (:class:`~qneurons.LambdaScheduler`),
            and tanh in a CNN learnt nothing with either constant, but did annealed (RESULTS.md).
            May be set later, ``module.lam = 0.02``, also under ``torch.compile``, but not between a
            forward and its backward, which draws the same noise again.
        phi: φ ≥ 0, the smallest :math:`|q - 1|`.
        eval_mode: ``"limit"``, :math:`f'(x)x`; ``"mean"``, :math:`E_q[g_q(x)]`; or ``"sample"``.
            In our study (RESULTS.md) the limit, the cheapest, was as good as a draw or better at
            the λ with which training ended, 0.18 at most. Evaluate with ``"sample"`` while λ is
            large: there the limit was better in MLPs, but much worse for tanh in a CNN.
        inplace: accepted for compatibility, and ignored.
        parameters: values of f's parameters, such as ``alpha=0.5``.

    Shape:
        - Input: :math:`(*)`, any shape and any floating dtype.
        - Output: :math:`(*)`, the same.

    Example:
        >>> m = QActivation("elu", lam=0.1)
        >>> m(torch.randn(2, 3)).shape
        torch.Size([2, 3])
        >>> m.eval()(torch.tensor([-1.0, 1.0]))
        tensor([-0.3679, 1.0000])
    """

    def __init__(
        self,
        activation: ActivationLike,
        lam: float = LAM,
        phi: float = 1e-3,
        eval_mode: str = "limit",
        inplace: bool = False,
        **parameters: float,
    ) -> None:
        super().__init__()
        self.activation = resolve(activation, **parameters)
        if isinstance(self.activation.f, nn.Module):
            self.f = self.activation.f  # so that its own parameters belong to the model
        self.eval_mode = eval_mode
        self._lam, self._phi = _one_value(device := torch.get_default_device()), _one_value(device)
        self.lam, self.phi = lam, phi

    @property
    def lam(self) -> float:
        return self._lam_value

    @lam.setter
    def lam(self, lam: float) -> None:
        self._lam_value = check_nonnegative("lam", lam)
        self._lam.fill_(self._lam_value)

    @property
    def phi(self) -> float:
        return self._phi_value

    @phi.setter
    def phi(self, phi: float) -> None:
        self._phi_value = check_nonnegative("phi", phi)
        self._phi.fill_(self._phi_value)

    @property
    def eval_mode(self) -> str:
        return self._eval_mode

    @eval_mode.setter
    def eval_mode(self, eval_mode: str) -> None:
        self._eval_mode = check_eval_mode(eval_mode)

    def forward(self, x: Tensor) -> Tensor:
        if self.training or self._eval_mode == "sample":
            check_x(x)
            return sample(x, self.activation, self._lam, self._phi)
        if self._eval_mode == "limit":
            return q_limit(x, self.activation)
        return q_mean(x, self.activation, self.lam, self.phi)

    def _apply(self, fn: Callable[..., Any], recurse: bool = True) -> "QActivation":
        super()._apply(fn, recurse)
        # λ and φ follow the device only: half would round them, and to_empty leave them unset.
        device = fn(self._lam).device
        if device != self._lam.device:
            self._lam, self._phi = _one_value(device), _one_value(device)
            self.lam, self.phi = self._lam_value, self._phi_value
        return self

    def extra_repr(self) -> str:
        text = f"lam={self.lam:g}, phi={self.phi:g}, eval_mode={self.eval_mode!r}"
        if type(self) is QActivation:
            return f"{self.activation}, {text}"
        return ", ".join([*repr(self.activation).split(", ")[1:], text])


def _one_value(device: torch.device) -> Tensor:
    # λ and φ in tensors, filled in place: a number would be compiled into the graph. They are no
    # buffers, because DDP would broadcast them at every forward. Never on meta, where loading a
    # checkpoint with assign=True would leave them.
    with torch.inference_mode(False):  # a model that was built in it may be trained later
        place = "cpu" if device.type == "meta" else device
        return torch.zeros(1, dtype=torch.float32, device=place)


def class_name(row: Activation) -> str:
    """The name of the module class of a row, as in ``QELU``."""
    return "Q" + (row.title or (row.module.__name__ if row.module else row.name.title()))


def _module_class(row: Activation) -> type[QActivation]:
    def __init__(
        self: QActivation,
        lam: float = LAM,
        phi: float = 1e-3,
        eval_mode: str = "limit",
        inplace: bool = False,
        **parameters: float,
    ) -> None:
        QActivation.__init__(self, row.name, lam, phi, eval_mode, inplace, **parameters)

    options = "".join(
        f"\n        {name}: default {value:g}." for name, value in row.parameters.items()
    )
    doc = f"""The q-activation of {row.name}.

    λ comes first, not a parameter of the plain activation: give those by name.

    Args:
        lam, phi, eval_mode, inplace: see :class:`QActivation`.{options}
    """
    name = class_name(row)
    members = {"__init__": __init__, "__doc__": doc, "__module__": __name__, "__qualname__": name}
    return type(name, (QActivation,), members)


CLASSES = {row.name: _module_class(row) for row in rows()}
globals().update({cls.__name__: cls for cls in CLASSES.values()})

if TYPE_CHECKING:

    def __getattr__(name: str) -> type[QActivation]: ...  # the classes made from the table
