"""λ as a pure function of the epoch, and its notation."""

import math
import re
from abc import ABC, abstractmethod
from dataclasses import dataclass
from numbers import Integral

__all__ = ["Annealed", "AnnealedOver", "Constant", "Schedule", "parse_schedule"]

# Every text matches in one way only: an ambiguous pattern takes cubic time to reject a long text.
_NUMBER = r"(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?"
_NOTATION = re.compile(
    rf"c(?P<lam>{_NUMBER})|a(?P<lam0>{_NUMBER})(?:@(?P<gamma>{_NUMBER})|/(?P<epochs>[0-9]{{1,9}}))?"
)
_PAPER_EPOCHS = 100


class Schedule(ABC):
    """A pure function from the epoch T = 1, 2, ... to λ, whose ``str`` is its notation."""

    @abstractmethod
    def __call__(self, epoch: int) -> float: ...

    @abstractmethod
    def __str__(self) -> str: ...


@dataclass(frozen=True)
class Constant(Schedule):
    r"""The same :math:`\lambda` at every epoch, written ``c0.02``.

    Args:
        lam (float): :math:`\lambda`, finite and at least 0.

    Example:
        >>> Constant(0.02)(epoch=100)
        0.02
    """

    lam: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "lam", _check_nonnegative("lam", self.lam))

    def __call__(self, epoch: int) -> float:
        check_epoch(epoch)
        return self.lam

    def __str__(self) -> str:
        return f"c{_format(self.lam)}"


@dataclass(frozen=True)
class Annealed(Schedule):
    r"""Harmonic decay, written ``a5``, or ``a5@0.25`` where :math:`\gamma` is not 0.5.

    .. math::
        \lambda_T = \frac{\lambda_0}{1 + \gamma (T - 1)}, \qquad T = 1, 2, \ldots

    Args:
        lam0 (float): :math:`\lambda` of the first epoch, finite and at least 0.
        gamma (float): rate of the decay, finite and at least 0. Default: ``0.5``

    Example:
        >>> schedule = Annealed(5.0)
        >>> [schedule(epoch) for epoch in (1, 2, 3, 9)]
        [5.0, 3.3333333333333335, 2.5, 1.0]
    """

    lam0: float
    gamma: float = 0.5

    def __post_init__(self) -> None:
        object.__setattr__(self, "lam0", _check_nonnegative("lam0", self.lam0))
        object.__setattr__(self, "gamma", _check_nonnegative("gamma", self.gamma))

    def __call__(self, epoch: int) -> float:
        check_epoch(epoch)
        return self.lam0 / (1 + self.gamma * (epoch - 1))

    def __str__(self) -> str:
        rate = "" if self.gamma == Annealed.gamma else f"@{_format(self.gamma)}"
        return f"a{_format(self.lam0)}{rate}"


@dataclass(frozen=True)
class AnnealedOver(Schedule):
    r"""Harmonic decay over a training of so many epochs, written ``a5/20``.

    The last epoch has :math:`\lambda_0 / 50.5`, as in the paper's 100 epochs, so ``a5/100`` is
    ``a5``. In a short training ``a5`` would end at a large :math:`\lambda`, which hurts.

    Args:
        lam0 (float): :math:`\lambda` of the first epoch, finite and at least 0.
        epochs (int): the number of epochs, at least 2.

    Example:
        >>> schedule = AnnealedOver(5.0, 12)
        >>> [round(schedule(epoch), 3) for epoch in (1, 2, 12)]
        [5.0, 0.909, 0.099]
    """

    lam0: float
    epochs: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "lam0", _check_nonnegative("lam0", self.lam0))
        if not isinstance(self.epochs, Integral) or self.epochs < 2:
            raise ValueError(f"epochs must be an integer of at least 2, got {self.epochs!r}")

    @property
    def gamma(self) -> float:
        """The rate of the decay, 0.5 for the paper's 100 epochs."""
        return Annealed.gamma * (_PAPER_EPOCHS - 1) / (self.epochs - 1)

    def __call__(self, epoch: int) -> float:
        return Annealed(self.lam0, self.gamma)(epoch)

    def __str__(self) -> str:
        return f"a{_format(self.lam0)}/{self.epochs}"


def parse_schedule(text: str) -> Constant | Annealed | AnnealedOver:
    """Reads the notation of a schedule; the inverse of ``str``.

    Args:
        text (str): ``"c<lam>"``, ``"a<lam0>"``, ``"a<lam0>@<gamma>"`` or ``"a<lam0>/<epochs>"``.

    Example:
        >>> parse_schedule("c0.02")
        Constant(lam=0.02)
        >>> parse_schedule("a1")
        Annealed(lam0=1.0, gamma=0.5)
        >>> str(parse_schedule("a2@0.25"))
        'a2@0.25'
    """
    match = _NOTATION.fullmatch(text)
    if match is None:
        raise ValueError(
            f"cannot read the schedule {text!r}; write 'c<lam>' (constant), 'a<lam0>' (annealed "
            "with gamma 0.5), 'a<lam0>@<gamma>' or 'a<lam0>/<epochs>', for example 'c0.02', 'a1', "
            "'a2@0.25' or 'a1/20'"
        )
    if match["lam"] is not None:
        return Constant(float(match["lam"]))
    if match["epochs"] is not None:
        return AnnealedOver(float(match["lam0"]), int(match["epochs"]))
    return Annealed(float(match["lam0"]), float(match["gamma"] or Annealed.gamma))


def _check_nonnegative(name: str, value: float) -> float:
    value = float(value)
    if not 0 <= value < math.inf:
        raise ValueError(f"{name} must be finite and at least 0, got {value}")
    return abs(value)  # -0.0 is written as 0


def check_epoch(epoch: int) -> None:
    if not isinstance(epoch, Integral) or epoch < 1:
        raise ValueError(f"epoch must be an integer, counted from 1, got {epoch!r}")


def _format(value: float) -> str:
    """The shortest text that ``float`` reads back exactly, without a trailing ``.0``."""
    return repr(value).removesuffix(".0")
