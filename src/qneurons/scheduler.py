"""Sets λ on the q-activations of a model, epoch by epoch or step by step."""

from collections.abc import Callable, Mapping
from typing import Any

from torch import nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from qneurons.arguments import check_nonnegative
from qneurons.modules import QActivation, QLimit
from qneurons.schedules import Schedule, check_epoch, parse_schedule


class LambdaScheduler(LRScheduler):
    r"""Sets :math:`\lambda` on the q-activations of a model, epoch by epoch or step by step.

    It is used like the schedulers of :mod:`torch.optim.lr_scheduler`. Constructing it sets the
    value of epoch 1; call :meth:`step` after each epoch. If you call it after each step of the
    optimizer, what is called an epoch here is a step.

    The q-activations are looked up every time, so those added later are found, also inside
    ``DistributedDataParallel`` and ``torch.compile``. A compiled model is not compiled again,
    except in the mode of evaluation ``"mean"`` where that is quadrature. Under data parallelism
    give every rank the same schedule. Copies of the model, as in
    ``torch.optim.swa_utils.AveragedModel``, keep the :math:`\lambda` with which they were made.

    Args:
        model: a model with at least one :class:`~qneurons.QActivation`.
        schedule: a schedule, its notation (``"a1"``), or any function
            from the epoch 1, 2, ... to :math:`\lambda`. It sets every q-activation. Default: each
            q-activation follows its own schedule, as ``convert(model, "a1")`` gives it. Convert
            with ``include`` to give layers different ones.
        epochs: how often :meth:`step` will be called in the whole training. It is the length
            of schedules without their own: ``"cos1"`` becomes ``"cos1/20"`` and ``"a1"`` becomes
            ``"a1/20"``. Default: unknown, so that ``"a1"`` is the paper's and ``"cos1"`` is refused
        optimizer: not used, but Lightning's ``configure_optimizers`` asks for it.

    Attributes:
        epoch: the current epoch. ``last_epoch`` counts from 0, as in torch's schedulers.

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
        self,
        model: nn.Module,
        schedule: Schedule | str | Callable[[int], float] | None = None,
        *,
        epochs: int | None = None,
        optimizer: Optimizer | None = None,
    ) -> None:
        # LRScheduler is the base class because Lightning insists on it. Its constructor, which
        # would change the optimizer, is not called, and none of its methods is used.
        if not isinstance(model, nn.Module):
            raise TypeError(f"model must be a module, got {type(model).__name__}")
        if isinstance(schedule, str):
            schedule = parse_schedule(schedule)
        if schedule is not None and not callable(schedule):
            raise TypeError(
                "schedule must be a Schedule, its notation such as 'a1', or a function from the "
                f"epoch to lam, got {schedule!r}"
            )
        self.model = model
        self.schedule = schedule
        self.epochs = epochs
        self.optimizer = optimizer  # type: ignore[assignment]
        self.set_epoch(1)

    def step(self, epoch: int | None = None) -> None:
        """Moves to the next epoch, or to the one with that ``last_epoch``, and sets its λ."""
        self.set_epoch((self.epoch if epoch is None else epoch) + 1)

    def set_epoch(self, epoch: int) -> None:
        """Moves to the epoch 1, 2, ... and sets its λ."""
        check_epoch(epoch)
        layers = [
            (layer, schedule)
            for layer in self.model.modules()
            if isinstance(layer, QActivation)
            and (schedule := self._fitted(self.schedule or layer.schedule)) is not None
        ]
        if not layers:
            raise ValueError(self._nothing_to_schedule())
        lams = {
            schedule: check_nonnegative("lam", float(schedule(epoch)))
            for schedule in dict.fromkeys(schedule for _, schedule in layers)
        }
        for layer, schedule in layers:
            layer.lam = lams[schedule]
        self.epoch, self.last_epoch = epoch, epoch - 1
        self._last_lams = lams

    def get_last_lam(self) -> float:
        """The λ of the current epoch; :meth:`get_last_lams` if schedules differ."""
        if len(self._last_lams) > 1:
            raise ValueError(
                f"the layers have {len(self._last_lams)} schedules, {', '.join(self._notations())};"
                " call get_last_lams()"
            )
        (lam,) = self._last_lams.values()
        return lam

    def get_last_lams(self) -> dict[str, float]:
        """The λ of the current epoch by the notation of its schedule."""
        return dict(zip(self._notations(), self._last_lams.values(), strict=True))

    def state_dict(self) -> dict[str, Any]:
        """The epoch, and the notation of the schedules (``None`` for a plain function)."""
        is_notation = all(isinstance(schedule, Schedule) for schedule in self._last_lams)
        notation = ", ".join(sorted(self._notations())) if is_notation else None
        return {"epoch": self.epoch, "schedule": notation}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Returns to the epoch of ``state_dict`` and sets its λ on the model.

        Args:
            state_dict: what :meth:`state_dict` returned, from a scheduler with the same
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
        self.set_epoch(state_dict["epoch"])

    def _fitted(
        self, schedule: Schedule | Callable[[int], float] | None
    ) -> Schedule | Callable[[int], float] | None:
        if self.epochs is None or not isinstance(schedule, Schedule):
            return schedule
        return schedule.over(self.epochs)

    def _notations(self) -> list[str]:
        return [
            str(schedule) if isinstance(schedule, Schedule) else "function"
            for schedule in self._last_lams
        ]

    def _nothing_to_schedule(self) -> str:
        name, modules = type(self.model).__name__, list(self.model.modules())
        if any(isinstance(module, QActivation) for module in modules):
            return (
                f"the q-activations of {name} have no schedule; pass one, as "
                'LambdaScheduler(model, "a1"), or convert with qneurons.convert(model, "a1")'
            )
        limits = any(isinstance(module, QLimit) for module in modules)
        return (
            f"{name} holds no q-activation to schedule{', only limits, which have no lam' * limits}"
            "; convert the plain model with qneurons.convert(model), or build it with modules such "
            "as qneurons.QELU"
        )
