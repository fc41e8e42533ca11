"""λ as a pure function of the epoch, its notation, and the scheduler that sets it on a model."""

import math
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from numbers import Integral
from typing import Any

from torch import nn

from qneurons.modules import QActivation

__all__ = ["Annealed", "Constant", "LambdaScheduler", "Schedule", "parse_schedule"]

_NUMBER = r"(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?"
_NOTATION = re.compile(rf"c(?P<lam>{_NUMBER})|a(?P<lam0>{_NUMBER})(?:@(?P<gamma>{_NUMBER}))?")


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
        lam (float): :math:`\lambda`, finite and at least 0. At 0 only the noise of
            :math:`\phi` is left.

    Example:
        >>> Constant(0.02)(epoch=100)
        0.02
    """

    lam: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "lam", _check_nonnegative("lam", self.lam))

    def __call__(self, epoch: int) -> float:
        _check_epoch(epoch)
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
        _check_epoch(epoch)
        return self.lam0 / (1 + self.gamma * (epoch - 1))

    def __str__(self) -> str:
        rate = "" if self.gamma == Annealed.gamma else f"@{_format(self.gamma)}"
        return f"a{_format(self.lam0)}{rate}"


def parse_schedule(text: str) -> Constant | Annealed:
    """Reads the notation of a schedule; the inverse of ``str``.

    Args:
        text (str): ``"c<lam>"``, ``"a<lam0>"`` or ``"a<lam0>@<gamma>"``.

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
            "with gamma 0.5) or 'a<lam0>@<gamma>', for example 'c0.02', 'a1' or 'a2@0.25'"
        )
    if match["lam"] is not None:
        return Constant(float(match["lam"]))
    return Annealed(float(match["lam0"]), float(match["gamma"] or Annealed.gamma))


class LambdaScheduler:
    r"""Sets :math:`\lambda` on every q-activation of a model, epoch by epoch.

    Used as the schedulers of :mod:`torch.optim.lr_scheduler` are. Constructing it sets the value
    of epoch 1, so that it is in force before training starts; call :meth:`step` after each epoch.
    The q-activations are looked up at every step, through wrappers such as
    ``DistributedDataParallel`` and ``torch.compile``, and those added later are found. A compiled
    model is not compiled again. Under data parallelism give every rank the same schedule.

    Args:
        model (nn.Module): a model that holds at least one :class:`~qneurons.QActivation`.
        schedule (Schedule, str or callable): a schedule, its notation (``"a1"``), or any function
            from the epoch 1, 2, ... to :math:`\lambda`.

    Attributes:
        epoch (int): the epoch whose value is in force.

    Example:
        >>> model = nn.Sequential(nn.Linear(4, 4), QActivation("elu"))
        >>> scheduler = LambdaScheduler(model, "a5")
        >>> for _ in range(8):
        ...     # train for one epoch, then:
        ...     scheduler.step()
        >>> scheduler.epoch, scheduler.get_last_lam()
        (9, 1.0)
    """

    def __init__(self, model: nn.Module, schedule: Schedule | str | Callable[[int], float]) -> None:
        if isinstance(schedule, str):
            schedule = parse_schedule(schedule)
        if not callable(schedule):
            raise TypeError(
                "schedule must be a Schedule, its notation such as 'a1', or a function from the "
                f"epoch to lam, got {schedule!r}"
            )
        self.model = model
        self.schedule = schedule
        self._enter(1)

    def step(self) -> None:
        """Moves to the next epoch and sets its λ."""
        self._enter(self.epoch + 1)

    def get_last_lam(self) -> float:
        """The λ in force."""
        return self._last_lam

    def state_dict(self) -> dict[str, Any]:
        """The epoch, and the notation of the schedule (``None`` for a bare function)."""
        notation = str(self.schedule) if isinstance(self.schedule, Schedule) else None
        return {"epoch": self.epoch, "schedule": notation}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Returns to the epoch of ``state_dict`` and sets its λ on the model.

        Args:
            state_dict (dict): what :meth:`state_dict` returned, from a scheduler with the same
                schedule. Bare functions are not compared.
        """
        own = self.state_dict()
        if state_dict.keys() != own.keys():
            raise ValueError(
                f"a LambdaScheduler's state has the keys {sorted(own)}, got "
                f"{sorted(state_dict)}; pass what LambdaScheduler.state_dict() returned"
            )
        saved, current = state_dict["schedule"], own["schedule"]
        if saved is not None and current is not None and saved != current:
            raise ValueError(
                f"the state is of the schedule {saved!r}, but this scheduler follows {current!r}; "
                f"construct it with {saved!r} to resume"
            )
        self._enter(state_dict["epoch"])

    def _enter(self, epoch: int) -> None:
        _check_epoch(epoch)
        lam = float(self.schedule(epoch))
        layers = [module for module in self.model.modules() if isinstance(module, QActivation)]
        if not layers:
            raise ValueError(
                f"{type(self.model).__name__} holds no q-activation to schedule; convert it first "
                "with qneurons.convert(model), or build it with modules such as qneurons.QELU"
            )
        for layer in layers:
            layer.lam = lam
        self.epoch = epoch
        self._last_lam = lam


def _check_nonnegative(name: str, value: float) -> float:
    value = float(value)
    if not 0 <= value < math.inf:
        raise ValueError(f"{name} must be finite and at least 0, got {value}")
    return abs(value)  # so that -0.0 is written as 0


def _check_epoch(epoch: int) -> None:
    if not isinstance(epoch, Integral) or epoch < 1:
        raise ValueError(f"epoch must be an integer, counted from 1, got {epoch!r}")


def _format(value: float) -> str:
    """The shortest text that ``float`` reads back exactly, without a trailing ``.0``."""
    return repr(value).removesuffix(".0")
