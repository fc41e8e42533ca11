"""Clocks that jump, as after a wrong date was set right or a machine was suspended."""

import datetime
import random
import shutil
import time
from pathlib import Path
from types import SimpleNamespace

from fault_campaign.processes import finish
from fault_campaign.trials import Bench, Fault

import qneurons.provenance

DAY_S = 86400.0


def jumping_clocks(bench: Bench, folder: Path, trials: int, draw: random.Random) -> Fault:
    fault = Fault("clocks that jump")
    for number in range(trials):
        store, seed = folder / f"clock-{number}", draw.random()
        shutil.copytree(bench.half, store)
        process = finish(bench.command, store, first=lambda seed=seed: unsettle(seed))
        bench.try_out(fault, store, process, mend=lambda error: None)
    return fault


def unsettle(seed: float) -> None:
    """Every tenth look at the time of day jumps by up to ten years, to both sides. The monotonic
    clock jumps ahead by up to a day."""
    draw, real, steady = random.Random(seed), time.time, time.monotonic
    ahead_s = 0.0

    def wall() -> float:
        years = draw.uniform(-10, 10) if draw.random() < 0.1 else 0.0
        return real() + years * 365 * DAY_S

    def monotonic() -> float:
        nonlocal ahead_s
        ahead_s += draw.uniform(0, DAY_S) if draw.random() < 0.1 else 0.0
        return steady() + ahead_s

    class Date(datetime.datetime):
        @classmethod
        def now(cls, tz=None):
            return datetime.datetime.fromtimestamp(wall(), tz)

    time.time, time.monotonic = wall, monotonic
    qneurons.provenance.datetime = SimpleNamespace(datetime=Date, UTC=datetime.UTC)
