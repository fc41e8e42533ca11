"""What the callbacks of several libraries share: how often they set λ, and what they log."""

from collections.abc import Callable
from typing import Literal, get_args

from qneurons.scheduler import LambdaScheduler
from qneurons.schedules import Schedule

Interval = Literal["epoch", "step"]


class Annealing:
    """The arguments of a callback."""

    def __init__(
        self,
        schedule: Schedule | str | Callable[[int], float] | None = None,
        interval: Interval = "epoch",
    ) -> None:
        if interval not in get_args(Interval):
            raise ValueError(f"interval must be one of epoch, step, got {interval!r}")
        self.schedule, self.interval = schedule, interval
        self._scheduler: LambdaScheduler | None = None  # until training begins


def log_entries(scheduler: LambdaScheduler) -> dict[str, float]:
    """``lam``, or ``lam/a1`` and so on if layers have schedules of their own."""
    lams = scheduler.get_last_lams()
    if len(lams) == 1:
        return {"lam": scheduler.get_last_lam()}
    return {f"lam/{notation}": lam for notation, lam in lams.items()}
