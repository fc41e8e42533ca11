"""Sets λ on the q-activations of a model, epoch by epoch."""

from collections.abc import Callable, Mapping
from typing import Any

from torch import nn

from qneurons.modules import QActivation, QLimit
from qneurons.schedules import Schedule, check_epoch, parse_schedule


class LambdaScheduler:
    r"""Sets :math:`\lambda` on every q-activation of a model, epoch by epoch.

    It is used like the schedulers of :mod:`torch.optim.lr_scheduler`. Constructing it sets the
    value of epoch 1; call :meth:`step` after each epoch. The q-activations are looked up at every
    step, so those added later are found, also inside ``DistributedDataParallel`` and
    ``torch.compile``. A compiled model is not compiled again. Under data parallelism give every
    rank the same schedule.

    Args:
        model (nn.Module): a model with at least one :class:`~qneurons.QActivation`.
        schedule (Schedule, str or callable): a schedule, its notation (``"a1"``), or any function
            from the epoch 1, 2, ... to :math:`\lambda`. It sets every q-activation. Default: the
            schedule that the model was converted with, as by ``convert(model, "a1")``, for the
            q-activations that have it.

    Attributes:
        epoch (int): the current epoch.

    Example:
        >>> model = nn.Sequential(nn.Linear(4, 4), QActivation("elu"))
        >>> scheduler = LambdaScheduler(model, "a5")
        >>> for _ in range(8):
        ...     # train for one epoch, then:
        ...     scheduler.step()
        >>> scheduler.epoch, scheduler.get_last_lam()
        (9, 1.0)
    """

    def __init__(
        self, model: nn.Module, schedule: Schedule | str | Callable[[int], float] | None = None
    ) -> None:
        if not isinstance(model, nn.Module):
            raise TypeError(f"model must be a module, got {type(model).__name__}")
        self._follows_model = schedule is None
        if schedule is None:
            schedule = _schedule_of(model)
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
        """The λ of the current epoch."""
        return self._last_lam

    def state_dict(self) -> dict[str, Any]:
        """The epoch, and the notation of the schedule (``None`` for a plain function)."""
        notation = str(self.schedule) if isinstance(self.schedule, Schedule) else None
        return {"epoch": self.epoch, "schedule": notation}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Returns to the epoch of ``state_dict`` and sets its λ on the model.

        Args:
            state_dict (dict): what :meth:`state_dict` returned, from a scheduler with the same
                schedule. Plain functions are not compared.
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
                f"the state is from the schedule {saved!r}, but this scheduler has {current!r}; "
                f"construct it with {saved!r} to resume"
            )
        self._enter(state_dict["epoch"])

    def _enter(self, epoch: int) -> None:
        check_epoch(epoch)
        lam = float(self.schedule(epoch))
        layers = [
            module
            for module in self.model.modules()
            if isinstance(module, QActivation)
            and not (self._follows_model and module.schedule is None)
        ]
        if not layers:
            limits = any(isinstance(module, QLimit) for module in self.model.modules())
            raise ValueError(
                f"{type(self.model).__name__} holds no q-activation to schedule"
                f"{', only limits, which have no lam' * limits}; convert the plain model with "
                "qneurons.convert(model), or build it with modules such as qneurons.QELU"
            )
        for layer in layers:
            layer.lam = lam
        self.epoch = epoch
        self._last_lam = lam


def _schedule_of(model: nn.Module) -> Schedule:
    found = {
        module.schedule
        for module in model.modules()
        if isinstance(module, QActivation) and module.schedule is not None
    }
    if len(found) != 1:
        what = ", ".join(sorted(map(str, found))) or "none"
        raise ValueError(
            f"the q-activations of {type(model).__name__} must have one schedule, got {what}; "
            'convert with qneurons.convert(model, "a1"), or pass the schedule'
        )
    return found.pop()
