"""Runs, epochs and states for tests of the store: functions of their names, nothing is trained."""

import dataclasses
import os
import signal
import traceback
import warnings
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from qneurons.study.runs import Epoch, Run

ORIGIN = {
    "device": "a device",
    "device_type": "cpu",
    "precision": "fp32",
    "torch": "2.11.0",
    "qneurons": "0.1.0",
    "commit": "abc1234",
    "command": "qneurons study run pretend",
    "fingerprint": "0123456789abcdef",
}


def runs(count: int, *, seed: int = 0) -> list[Run]:
    return [
        Run("digits", "mnist-mlp", False, "elu", "c0.1", seed + i, 64, 0.05) for i in range(count)
    ]


def epoch(run: Run, number: int, **changes: object) -> Epoch:
    """Numbers with long fractions, so that none survives a detour through decimals by luck."""
    values = [(run.seed + 1) / (3 * number + k) for k in range(10)]
    return dataclasses.replace(Epoch(run.id, number, *values[:8], False, *values[8:]), **changes)


def epochs(of: Sequence[Run], first: int, last: int) -> list[Epoch]:
    return [epoch(run, number) for number in range(first, last + 1) for run in of]


def state(of: Sequence[Run], number: int) -> dict[str, Tensor]:
    seeds = torch.tensor([run.seed for run in of], dtype=torch.float64)
    weight = (seeds[:, None] + 1) / (torch.arange(50, dtype=torch.float64) + number + 2)
    return {"weight": weight, "bias": weight[:, :3].float(), "steps": seeds.long() + number}


def forked(work: Callable[[], object]) -> int:
    """Does the work in another process, which ends with 0 if it went well; returns its id."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of threads; the work uses none
        child = os.fork()
    if child:
        return child
    try:
        work()
    except BaseException:
        traceback.print_exc()
        os._exit(1)
    os._exit(0)


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def ended(child: int) -> int:
    """How a process ended: its exit code, or less than zero for a signal."""
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
