"""λ as a pure function of the epoch or step, and its notation."""

import math
import re
from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from numbers import Integral

__all__ = ["Annealed", "AnnealedOver", "Constant", "Ramp", "Schedule", "parse_schedule"]

# Every text matches in one way only: an ambiguous pattern takes cubic time to reject a long text.
_NUMBER = r"(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?"
_NOTATION = re.compile(
    rf"c(?P<lam>{_NUMBER})"
    rf"|a(?P<lam0>{_NUMBER})(?:@(?P<gamma>{_NUMBER})|/(?P<epochs>[0-9]{{1,9}}))?"
    rf"|(?P<shape>lin|cos)(?P<first>{_NUMBER})(?:-(?P<last>{_NUMBER}))?(?:/(?P<over>[0-9]{{1,9}}))?"
)
FORMS = (  # for messages
    "'c<lam>' (constant), 'a<lam0>' (annealed), 'a<lam0>@<gamma>', 'a<lam0>/<epochs>', or "
    "'lin<lam0>-<lam1>/<epochs>' and 'cos<lam0>-<lam1>/<epochs>' (from lam0 to lam1, or to 0)"
)
EXAMPLES = "'c0.02', 'a1', 'a2@0.25', 'a1/20' or 'cos5/20'"
_PAPER_EPOCHS = 100
_SHAPES = {"lin": lambda part: part, "cos": lambda part: (1 - math.cos(math.pi * part)) / 2}


class Schedule(ABC):
    """A pure function from the epoch T = 1, 2, ... to λ, whose ``str`` is its notation.

    What is called an epoch here is a step where λ is set after every step of the optimizer.
    """

    @abstractmethod
    def __call__(self, epoch: int) -> float: ...

    @abstractmethod
    def __str__(self) -> str: ...

    def over(self, epochs: int) -> "Schedule":
        """This schedule in a training of so many epochs; itself if it does not depend on that."""
        return self


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

    def over(self, epochs: int) -> Schedule:
        """Ends where the paper's 100 epochs do, unless γ is not the paper's."""
        if self.gamma != Annealed.gamma:
            return self
        return AnnealedOver(self.lam0, max(_check_epochs(epochs), 2))

    def __str__(self) -> str:
        rate = "" if self.gamma == Annealed.gamma else f"@{_format(self.gamma)}"
        return f"a{_format(self.lam0)}{rate}"


@dataclass(frozen=True)
class AnnealedOver(Schedule):
    r"""Harmonic decay over a training of so many epochs, written ``a5/20``.

    The last epoch has :math:`\lambda_0 / 50.5`, as in the paper's 100 epochs, so ``a5/100`` is
    ``a5``. In a short training ``a5`` would end at a large :math:`\lambda`.

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
        _check_epochs(self.epochs, least=2)

    @property
    def gamma(self) -> float:
        """The rate of the decay, 0.5 for the paper's 100 epochs."""
        return Annealed.gamma * (_PAPER_EPOCHS - 1) / (self.epochs - 1)

    def __call__(self, epoch: int) -> float:
        return Annealed(self.lam0, self.gamma)(epoch)

    def __str__(self) -> str:
        return f"a{_format(self.lam0)}/{self.epochs}"


@dataclass(frozen=True)
class Ramp(Schedule):
    r"""From one :math:`\lambda` to another along a line or half a cosine, written ``lin5-1/20``.

    Without its end it goes to 0, as ``cos5/20``. After its last epoch it stays where it is. Without
    its number of epochs, as in ``cos5``, it needs to be told the length of the training.

    Args:
        shape (str): ``"lin"`` or ``"cos"``.
        lam0, lam1 (float): :math:`\lambda` of the first and of the last epoch, finite and at least
            0. It may also rise. Default of the last: ``0.0``
        epochs (int or None): the number of epochs, at least 2. Default: that of the training

    Example:
        >>> [Ramp("lin", 5.0, 1.0, epochs=5)(epoch) for epoch in (1, 2, 3, 4, 5, 6)]
        [5.0, 4.0, 3.0, 2.0, 1.0, 1.0]
        >>> Ramp("cos", 5.0).over(100)
        Ramp(shape='cos', lam0=5.0, lam1=0.0, epochs=100)
    """

    shape: str
    lam0: float
    lam1: float = 0.0
    epochs: int | None = None

    def __post_init__(self) -> None:
        if self.shape not in _SHAPES:
            raise ValueError(f"shape must be one of {', '.join(_SHAPES)}, got {self.shape!r}")
        object.__setattr__(self, "lam0", _check_nonnegative("lam0", self.lam0))
        object.__setattr__(self, "lam1", _check_nonnegative("lam1", self.lam1))
        if self.epochs is not None:
            _check_epochs(self.epochs, least=2)

    def __call__(self, epoch: int) -> float:
        check_epoch(epoch)
        if epoch == 1:
            return self.lam0
        if self.epochs is None:
            raise ValueError(
                f"the schedule {str(self)!r} has no number of epochs; write '{self}/20', or "
                f"LambdaScheduler(model, {str(self)!r}, epochs=20)"
            )
        part = _SHAPES[self.shape](min((epoch - 1) / (self.epochs - 1), 1.0))
        return (1 - part) * self.lam0 + part * self.lam1

    def over(self, epochs: int) -> Schedule:
        return self if self.epochs else replace(self, epochs=max(_check_epochs(epochs), 2))

    def __str__(self) -> str:
        end = f"-{_format(self.lam1)}" if self.lam1 else ""
        length = f"/{self.epochs}" if self.epochs else ""
        return f"{self.shape}{_format(self.lam0)}{end}{length}"


def parse_schedule(text: str) -> Constant | Annealed | AnnealedOver | Ramp:
    """Reads the notation of a schedule; the inverse of ``str``.

    ===================  ===========================================================================
    ``c0.02``            constant
    ``a1``               the paper's: falls from 1 as 1 / (1 + γ(T - 1)), with γ = 0.5
    ``a1@0.25``          the same with γ = 0.25
    ``a1/20``            the same with the γ that suits 20 epochs
    ``lin5-1/20``        falls (or rises) from 5 to 1 over 20 epochs along a line
    ``cos5-1/20``        the same along half a cosine
    ``lin5``, ``cos5``   end at 0, and take as long as the training
    ===================  ===========================================================================

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
            f"cannot read the schedule {text!r}; write {FORMS}, for example {EXAMPLES}"
        )
    if match["lam"] is not None:
        return Constant(float(match["lam"]))
    if match["epochs"] is not None:
        return AnnealedOver(float(match["lam0"]), int(match["epochs"]))
    if match["shape"] is not None:
        epochs = None if match["over"] is None else int(match["over"])
        return Ramp(match["shape"], float(match["first"]), float(match["last"] or 0), epochs)
    return Annealed(float(match["lam0"]), float(match["gamma"] or Annealed.gamma))


def _check_nonnegative(name: str, value: float) -> float:
    value = float(value)
    if not 0 <= value < math.inf:
        raise ValueError(f"{name} must be finite and at least 0, got {value}")
    return abs(value)  # -0.0 is written as 0


def _check_epochs(epochs: int, least: int = 1) -> int:
    if not isinstance(epochs, Integral) or epochs < least:
        raise ValueError(f"epochs must be an integer of at least {least}, got {epochs!r}")
    return int(epochs)


def check_epoch(epoch: int) -> None:
    if not isinstance(epoch, Integral) or epoch < 1:
        raise ValueError(f"epoch must be an integer, counted from 1, got {epoch!r}")


def _format(value: float) -> str:
    """The shortest text that ``float`` reads back exactly, without a trailing ``.0``."""
    return repr(value).removesuffix(".0")
