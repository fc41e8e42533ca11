"""Modules: :class:`QActivation`, one class for every row of the table, and :class:`QLimit`."""

import inspect
from collections.abc import Callable
from typing import Any, Literal, Never, get_args

import torch
from torch import Tensor, nn
from torch.fx import Proxy

from qneurons import mean_table
from qneurons.activations import ActivationLike, resolve
from qneurons.arguments import Mode, check_eval_mode, check_nonnegative, check_x
from qneurons.functional import LAM, limit, sample
from qneurons.schedules import Schedule
from qneurons.torch_internals import in_dispatch_mode

_MODES: tuple[Mode, ...] = get_args(Mode)  # checkpoints have their numbers


class QActivation(nn.Module):
    r"""Applies a stochastic q-activation elementwise.

    .. math::
        g_q(x) = \frac{f(x) - f(qx)}{1 - q}, \qquad
        q = 1 + \mathrm{sign}(\varepsilon)(\lambda|\varepsilon| + \phi), \quad
        \varepsilon \sim N(0, 1)

    In training, every call draws a fresh ε for every element from torch's generator, as dropout
    does. In evaluation the module is deterministic unless ``eval_mode="sample"``. It adds no keys
    to the ``state_dict``, so a checkpoint of the same model with plain activations loads. With
    ``module.saves_settings = True`` its ``state_dict`` also has λ, φ and the mode of evaluation;
    :func:`~qneurons.configure` sets that on a whole model. Loading sets them where they were saved.

    Every row of the table has a class of its own, as :class:`QTanh`, whose first argument is λ. If
    f has parameters, all arguments are given by name, as in ``QELU(lam=0.1, alpha=0.5)``, because
    torch users would take the number in ``QLeakyReLU(0.2)`` for the slope.

    Args:
        activation: f, as a name, a function, a module or any elementwise callable; see
            :func:`qneurons.resolve`.
        lam: λ ≥ 0. The paper uses 0.02 and 0.1; in our study (RESULTS.md) they ended alike, and
            annealing from 5 or 9 better (:class:`~qneurons.LambdaScheduler`). Tanh in a CNN with
            batch normalisation learnt nothing with either constant, but learnt when annealed.
            ``module.lam = 0.02`` changes λ, also under ``torch.compile``. It is a number and is not
            trained. Do not change it between a forward and its backward, which computes the same
            noise again.
        phi: φ ≥ 0, the smallest :math:`|q - 1|`.
        eval_mode: ``"limit"``, :math:`f'(x)x`; ``"mean"``, :math:`E_q[g_q(x)]`; or ``"sample"``.
            The limit is the cheapest, and at the end of training, with λ of 0.18 or less, it was as
            good as a draw (RESULTS.md). While λ is large neither is always better, and
            ``"sample"`` is safe: see docs/training-and-evaluation.md. The mean is looked up in a
            table, which is built by ``eval()`` and again whenever λ or φ changes. Its error is at
            most 1e-6 of the mean or of min(\|x\|, 1) times the largest \|f'\|, whichever is
            larger. Quadrature, which takes 16 to hundreds of evaluations, is used for float64, for
            f without a closed form, for sin, and under the transforms of ``torch.func``, but never
            for relu, leaky_relu, identity and relu2. ``torch.compile`` compiles quadrature, but
            not the table, again for every λ.
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

    saves_settings = False
    _means: mean_table.Table | None = None
    _has_old_means = True

    def __init__(
        self,
        activation: ActivationLike,
        lam: float = LAM,
        phi: float = 1e-3,
        eval_mode: Mode = "limit",
        inplace: bool = False,
        **parameters: float,
    ) -> None:
        super().__init__()
        self.activation = resolve(activation, **parameters)
        if isinstance(self.activation.f, nn.Module):
            self.f = self.activation.f  # so that its own parameters belong to the model
        self.eval_mode = eval_mode
        self.schedule: Schedule | None = None  # which LambdaScheduler follows unless told otherwise
        self._lam_value = self._phi_value = 0.0
        self._lam, self._phi = _one_value(device := torch.get_default_device()), _one_value(device)
        self.lam, self.phi = lam, phi

    @property
    def lam(self) -> float:
        return self._lam_value

    @lam.setter
    def lam(self, lam: float) -> None:
        self._lam_value = check_nonnegative("lam", lam)
        self._lam.fill_(self._lam_value)
        self._is_limit = self._lam_value == self._phi_value == 0  # a bool, or λ would recompile
        self._outdate_means()

    @property
    def phi(self) -> float:
        return self._phi_value

    @phi.setter
    def phi(self, phi: float) -> None:
        self._phi_value = check_nonnegative("phi", phi)
        self._phi.fill_(self._phi_value)
        self._is_limit = self._lam_value == self._phi_value == 0
        self._outdate_means()

    @property
    def eval_mode(self) -> Mode:
        return self._eval_mode

    @eval_mode.setter
    def eval_mode(self, eval_mode: Mode) -> None:
        self._eval_mode = check_eval_mode(eval_mode)
        self._renew_means()

    @property
    def settings(self) -> Tensor:
        """λ, φ and the number of the mode of evaluation, as the ``state_dict`` may have them."""
        mode = _MODES.index(self._eval_mode)
        return torch.tensor([self.lam, self.phi, mode], dtype=torch.float64, device="cpu")

    @settings.setter
    def settings(self, settings: Tensor) -> None:
        self.lam, self.phi, mode = settings.tolist()
        self.eval_mode = _MODES[int(mode)]

    def _save_to_state_dict(
        self, destination: dict[str, Any], prefix: str, keep_vars: bool
    ) -> None:
        super()._save_to_state_dict(destination, prefix, keep_vars)
        if self.saves_settings:
            destination[prefix + "settings"] = self.settings

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *others: Any) -> None:
        saved = state_dict.pop(prefix + "settings", None)  # what is left there is unexpected
        if saved is not None:
            self.settings = saved
        super()._load_from_state_dict(state_dict, prefix, *others)

    def register_parameter(self, name: str, param: nn.Parameter | None) -> None:
        if name in ("lam", "phi"):  # setattr would go round the property
            raise TypeError(
                f"{name} must be a number, got a Parameter; it is not trained: pass {name}.item()"
            )
        super().register_parameter(name, param)

    def forward(self, x: Tensor, inplace: bool = False) -> Tensor:
        if isinstance(x, Proxy):
            return _as_leaf(self, x)
        check_x(x)
        if not self._is_limit:
            if self.training or self._eval_mode == "sample":
                return sample(x, self.activation, self._lam, self._phi)
            if self._eval_mode == "mean":
                if self._has_old_means:  # self.training was set by hand
                    self._renew_means()
                law = self._lam_value, self._phi_value
                return mean_table.mean(x, self.activation, *law, self._means)
        return limit(x, self.activation)

    def train(self, mode: bool = True) -> "QActivation":
        super().train(mode)
        self._renew_means()
        return self

    def _outdate_means(self) -> None:
        self._has_old_means = True
        self._renew_means()

    def _renew_means(self) -> None:
        """Builds the table if λ or φ has changed and evaluation needs it.

        The next forward would be too late: a CUDA graph does not run it, and a compiled one cannot
        build a table. In training λ may change at every step, and no table is needed.
        """
        if self.training or self._eval_mode != "mean" or not self._has_old_means:
            return
        if in_dispatch_mode():  # the tensors of a table might be fake; a later forward builds it
            return
        found = mean_table.find(self.activation, self._lam_value, self._phi_value)
        if found and self._means and found[0].shape == self._means[0].shape:
            for own, new in zip(self._means, found, strict=True):
                own.copy_(new)  # in place, for CUDA graphs
        else:
            with torch.inference_mode(False):  # a gradient may be needed later
                device = self._lam.device
                self._means = found and (
                    found[0].to(device, copy=True),
                    found[1].to(device, copy=True),
                )
        self._has_old_means = False

    def _apply(self, fn: Callable[..., Any], recurse: bool = True) -> "QActivation":
        super()._apply(fn, recurse)
        # λ and φ follow the device only: half() would round them, and to_empty() leave them unset.
        device = fn(self._lam).device
        if device != self._lam.device:
            self._lam, self._phi = _one_value(device), _one_value(device)
            self._means = None
            self.lam, self.phi = self._lam_value, self._phi_value
        return self

    def extra_repr(self) -> str:
        text = f"lam={self.lam:g}, phi={self.phi:g}, eval_mode={self.eval_mode!r}"
        if self.schedule is not None:
            text += f", schedule={str(self.schedule)!r}"
        if type(self) is QActivation:
            return f"{self.activation}, {text}"
        return ", ".join([*repr(self.activation).split(", ")[1:], text])


def _as_leaf(module: nn.Module, x: Proxy) -> Any:
    """One node for a tracer of torch.fx, which takes only torch's own modules for leaves."""
    tracer: Any = x.tracer
    return tracer.create_proxy("call_module", tracer.path_of_module(module), (x,), {})


def _one_value(device: torch.device) -> Tensor:
    # λ and φ are tensors, filled in place, because a number would be compiled into the graph. They
    # are not buffers, because DDP would broadcast them at every forward. They are never on meta,
    # because loading a checkpoint with assign=True would leave them there.
    with torch.inference_mode(False):  # a model built in inference mode may be trained later
        place = "cpu" if device.type == "meta" else device
        return torch.zeros(1, dtype=torch.float32, device=place)


class QLimit(nn.Module):
    r"""Applies :math:`f'(x)x` elementwise, to which the q-activation tends as λ and φ go to 0.

    It is deterministic, in training as in evaluation, and costs about as much as f. It adds no keys
    to the ``state_dict``.

    Args:
        activation: f, as in :class:`QActivation`.
        inplace: accepted for compatibility, and ignored.
        parameters: values of f's parameters, such as ``alpha=0.5``.

    Shape:
        - Input: :math:`(*)`, any shape and any floating dtype.
        - Output: :math:`(*)`, the same.

    Example:
        >>> m = QLimit("softplus")  # SiLU
        >>> m(torch.tensor([-1.0, 1.0]))
        tensor([-0.2689, 0.7311])
        >>> QLimit("elu", alpha=0.5)
        QLimit(elu, alpha=0.5)
    """

    def __init__(
        self, activation: ActivationLike, inplace: bool = False, **parameters: float
    ) -> None:
        super().__init__()
        self.activation = resolve(activation, **parameters)
        if isinstance(self.activation.f, nn.Module):
            self.f = self.activation.f  # so that its own parameters belong to the model

    def forward(self, x: Tensor, inplace: bool = False) -> Tensor:
        if isinstance(x, Proxy):
            return _as_leaf(self, x)
        check_x(x)
        return limit(x, self.activation)

    def extra_repr(self) -> str:
        return repr(self.activation)


# --- one class for every row of the table ---------------------------------------------------------


def _refuse_unnamed(cls: type[QActivation], unnamed: tuple[object, ...]) -> None:
    """Refuses a number that may be meant as λ or as a parameter of f."""
    if unnamed:
        *_, own = inspect.signature(cls).parameters
        raise TypeError(
            f"{cls.__name__} takes its arguments by name, got {', '.join(map(repr, unnamed))}; "
            f"write {cls.__name__}(lam={unnamed[0]!r}) or {cls.__name__}({own}={unnamed[0]!r})"
        )


class QSigmoid(QActivation):
    """The q-activation of f(x) = 1 / (1 + exp(-x)). See :class:`QActivation`."""

    def __init__(
        self, lam: float = LAM, phi: float = 1e-3, eval_mode: Mode = "limit", inplace: bool = False
    ) -> None:
        super().__init__("sigmoid", lam, phi, eval_mode, inplace)


class QTanh(QActivation):
    """The q-activation of f(x) = tanh(x). In a CNN anneal λ: see :class:`QActivation`."""

    def __init__(
        self, lam: float = LAM, phi: float = 1e-3, eval_mode: Mode = "limit", inplace: bool = False
    ) -> None:
        super().__init__("tanh", lam, phi, eval_mode, inplace)


class QReLU(QActivation):
    """The q-activation of f(x) = max(0, x). See :class:`QActivation`."""

    def __init__(
        self, lam: float = LAM, phi: float = 1e-3, eval_mode: Mode = "limit", inplace: bool = False
    ) -> None:
        super().__init__("relu", lam, phi, eval_mode, inplace)


class QReLU2(QActivation):
    """The q-activation of f(x) = max(0, x)². See :class:`QActivation`."""

    def __init__(
        self, lam: float = LAM, phi: float = 1e-3, eval_mode: Mode = "limit", inplace: bool = False
    ) -> None:
        super().__init__("relu2", lam, phi, eval_mode, inplace)


class QLeakyReLU(QActivation):
    """The q-activation of f(x) = x where x ≥ 0 and negative_slope x elsewhere.

    Args:
        lam, phi, eval_mode, inplace: see :class:`QActivation`.
        negative_slope: the slope of f where x < 0.
    """

    def __init__(
        self,
        *unnamed: Never,
        lam: float = LAM,
        phi: float = 1e-3,
        eval_mode: Mode = "limit",
        inplace: bool = False,
        negative_slope: float = 0.01,
    ) -> None:
        _refuse_unnamed(type(self), unnamed)
        super().__init__("leaky_relu", lam, phi, eval_mode, inplace, negative_slope=negative_slope)


class QELU(QActivation):
    """The q-activation of f(x) = x where x > 0 and α (exp(x) - 1) elsewhere.

    Args:
        lam, phi, eval_mode, inplace: see :class:`QActivation`.
        alpha: α; f tends to -α as x goes to -∞.

    Example:
        >>> QELU(lam=0.02, alpha=0.5)
        QELU(alpha=0.5, lam=0.02, phi=0.001, eval_mode='limit')
    """

    def __init__(
        self,
        *unnamed: Never,
        lam: float = LAM,
        phi: float = 1e-3,
        eval_mode: Mode = "limit",
        inplace: bool = False,
        alpha: float = 1.0,
    ) -> None:
        _refuse_unnamed(type(self), unnamed)
        super().__init__("elu", lam, phi, eval_mode, inplace, alpha=alpha)


class QSELU(QActivation):
    """The q-activation of f(x) = 1.0507 x where x > 0 and 1.7581 (exp(x) - 1) elsewhere."""

    def __init__(
        self, lam: float = LAM, phi: float = 1e-3, eval_mode: Mode = "limit", inplace: bool = False
    ) -> None:
        super().__init__("selu", lam, phi, eval_mode, inplace)


class QCELU(QActivation):
    """The q-activation of f(x) = x where x > 0 and α (exp(x / α) - 1) elsewhere.

    Args:
        lam, phi, eval_mode, inplace: see :class:`QActivation`.
        alpha: α > 0.
    """

    def __init__(
        self,
        *unnamed: Never,
        lam: float = LAM,
        phi: float = 1e-3,
        eval_mode: Mode = "limit",
        inplace: bool = False,
        alpha: float = 1.0,
    ) -> None:
        _refuse_unnamed(type(self), unnamed)
        super().__init__("celu", lam, phi, eval_mode, inplace, alpha=alpha)


class QSoftplus(QActivation):
    """The q-activation of f(x) = log(1 + exp(βx)) / β.

    Args:
        lam, phi, eval_mode, inplace: see :class:`QActivation`.
        beta: β > 0.

    Example:
        >>> QSoftplus().eval()(torch.tensor([-1.0, 1.0]))  # the limit is SiLU
        tensor([-0.2689, 0.7311])
    """

    def __init__(
        self,
        *unnamed: Never,
        lam: float = LAM,
        phi: float = 1e-3,
        eval_mode: Mode = "limit",
        inplace: bool = False,
        beta: float = 1.0,
    ) -> None:
        _refuse_unnamed(type(self), unnamed)
        super().__init__("softplus", lam, phi, eval_mode, inplace, beta=beta)


class QSiLU(QActivation):
    """The q-activation of f(x) = x / (1 + exp(-x)). See :class:`QActivation`."""

    def __init__(
        self, lam: float = LAM, phi: float = 1e-3, eval_mode: Mode = "limit", inplace: bool = False
    ) -> None:
        super().__init__("silu", lam, phi, eval_mode, inplace)


class QGELU(QActivation):
    """The q-activation of f(x) = x Φ(x), with Φ the normal cdf.

    Args:
        lam, phi, eval_mode, inplace: see :class:`QActivation`.
        approximate: ``"tanh"`` for the f of :class:`QGELUTanh`, as in ``nn.GELU``.
    """

    def __init__(
        self,
        lam: float = LAM,
        phi: float = 1e-3,
        eval_mode: Mode = "limit",
        inplace: bool = False,
        *,
        approximate: Literal["none", "tanh"] = "none",
    ) -> None:
        names = {"none": "gelu", "tanh": "gelu_tanh"}
        if approximate not in names:
            raise ValueError(f"approximate must be 'none' or 'tanh', got {approximate!r}")
        super().__init__(names[approximate], lam, phi, eval_mode, inplace)

    def extra_repr(self) -> str:
        tanh = "approximate='tanh', " if self.activation.name == "gelu_tanh" else ""
        return tanh + super().extra_repr()


class QGELUTanh(QActivation):
    """The q-activation of f(x) = x (1 + tanh(√(2/π) (x + 0.044715 x³))) / 2."""

    def __init__(
        self, lam: float = LAM, phi: float = 1e-3, eval_mode: Mode = "limit", inplace: bool = False
    ) -> None:
        super().__init__("gelu_tanh", lam, phi, eval_mode, inplace)


class QQuickGELU(QActivation):
    """The q-activation of f(x) = x / (1 + exp(-1.702 x)). See :class:`QActivation`."""

    def __init__(
        self, lam: float = LAM, phi: float = 1e-3, eval_mode: Mode = "limit", inplace: bool = False
    ) -> None:
        super().__init__("quick_gelu", lam, phi, eval_mode, inplace)


class QMish(QActivation):
    """The q-activation of f(x) = x tanh(log(1 + exp(x))). See :class:`QActivation`."""

    def __init__(
        self, lam: float = LAM, phi: float = 1e-3, eval_mode: Mode = "limit", inplace: bool = False
    ) -> None:
        super().__init__("mish", lam, phi, eval_mode, inplace)


class QHardtanh(QActivation):
    """The q-activation of f(x) = min(max(x, min_val), max_val).

    Args:
        lam, phi, eval_mode, inplace: see :class:`QActivation`.
        min_val: the smallest value of f.
        max_val: the largest value of f, above ``min_val``.
    """

    def __init__(
        self,
        *unnamed: Never,
        lam: float = LAM,
        phi: float = 1e-3,
        eval_mode: Mode = "limit",
        inplace: bool = False,
        min_val: float = -1.0,
        max_val: float = 1.0,
    ) -> None:
        _refuse_unnamed(type(self), unnamed)
        super().__init__("hardtanh", lam, phi, eval_mode, inplace, min_val=min_val, max_val=max_val)


class QReLU6(QActivation):
    """The q-activation of f(x) = min(max(0, x), 6). See :class:`QActivation`."""

    def __init__(
        self, lam: float = LAM, phi: float = 1e-3, eval_mode: Mode = "limit", inplace: bool = False
    ) -> None:
        super().__init__("relu6", lam, phi, eval_mode, inplace)


class QHardsigmoid(QActivation):
    """The q-activation of f(x) = min(max(0, x + 3), 6) / 6. See :class:`QActivation`."""

    def __init__(
        self, lam: float = LAM, phi: float = 1e-3, eval_mode: Mode = "limit", inplace: bool = False
    ) -> None:
        super().__init__("hardsigmoid", lam, phi, eval_mode, inplace)


class QHardswish(QActivation):
    """The q-activation of f(x) = x min(max(0, x + 3), 6) / 6. See :class:`QActivation`."""

    def __init__(
        self, lam: float = LAM, phi: float = 1e-3, eval_mode: Mode = "limit", inplace: bool = False
    ) -> None:
        super().__init__("hardswish", lam, phi, eval_mode, inplace)


class QSoftsign(QActivation):
    """The q-activation of f(x) = x / (1 + abs(x)). See :class:`QActivation`."""

    def __init__(
        self, lam: float = LAM, phi: float = 1e-3, eval_mode: Mode = "limit", inplace: bool = False
    ) -> None:
        super().__init__("softsign", lam, phi, eval_mode, inplace)


class QSin(QActivation):
    """The q-activation of f(x) = sin(x). See :class:`QActivation`."""

    def __init__(
        self, lam: float = LAM, phi: float = 1e-3, eval_mode: Mode = "limit", inplace: bool = False
    ) -> None:
        super().__init__("sin", lam, phi, eval_mode, inplace)


class QIdentity(QActivation):
    """The q-activation of f(x) = x, which is x. See :class:`QActivation`."""

    def __init__(
        self, lam: float = LAM, phi: float = 1e-3, eval_mode: Mode = "limit", inplace: bool = False
    ) -> None:
        super().__init__("identity", lam, phi, eval_mode, inplace)


CLASSES: dict[str, type[QActivation]] = {
    "sigmoid": QSigmoid,
    "tanh": QTanh,
    "relu": QReLU,
    "relu2": QReLU2,
    "leaky_relu": QLeakyReLU,
    "elu": QELU,
    "selu": QSELU,
    "celu": QCELU,
    "softplus": QSoftplus,
    "silu": QSiLU,
    "gelu": QGELU,
    "gelu_tanh": QGELUTanh,
    "quick_gelu": QQuickGELU,
    "mish": QMish,
    "hardtanh": QHardtanh,
    "relu6": QReLU6,
    "hardsigmoid": QHardsigmoid,
    "hardswish": QHardswish,
    "softsign": QSoftsign,
    "sin": QSin,
    "identity": QIdentity,
}
