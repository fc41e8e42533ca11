"""How often a callback sets λ, and what it logs."""

from typing import Literal, get_args

from qneurons.scheduler import LambdaScheduler

Interval = Literal["epoch", "step"]


def check_interval(interval: Interval) -> Interval:
    if interval not in get_args(Interval):
        raise ValueError(f"interval must be one of epoch, step, got {interval!r}")
    return interval


def log_entries(scheduler: LambdaScheduler) -> dict[str, float]:
    """``lam``, or ``lam/a1`` and so on if layers have schedules of their own."""
    lams = scheduler.get_last_lams()
    if len(lams) == 1:
        return {"lam": scheduler.get_last_lam()}
    return {f"lam/{notation}": lam for notation, lam in lams.items()}
