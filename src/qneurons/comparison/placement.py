"""Where trials run: in this process, in worker processes, or on a Ray cluster."""

import shlex
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext

import torch

from qneurons.comparison.executor import Executor, LocalExecutor, Training
from qneurons.study.errors import StudyError, unknown

EXECUTORS = ("local", "ray")


def place(
    train: Training,
    *,
    processes: int | None,
    executor: str,
    address: str | None,
    cpus_per_trial: float | None,
    gpus_per_trial: float | None,
    say: Callable[[str], None],
) -> AbstractContextManager[Executor]:
    """Checks the options of :func:`qneurons.compare`. Inside the block there is the executor."""
    if executor not in EXECUTORS:
        raise unknown("executor", executor, EXECUTORS)
    if processes is not None and not (isinstance(processes, int) and processes >= 0):
        raise StudyError(
            f"processes is {processes!r}",
            "give the number of worker processes, or 0 for this process alone",
        )
    command = shlex.join(sys.argv)
    if executor == "ray":
        if processes is not None:
            raise StudyError("processes is not for a Ray cluster", "leave it out")
        from qneurons.comparison.ray_executor import ray_executor

        num_cpus = 1.0 if cpus_per_trial is None else cpus_per_trial
        return ray_executor(train, command, address or "auto", num_cpus, gpus_per_trial, say)
    for_ray = {
        "address": address,
        "cpus_per_trial": cpus_per_trial,
        "gpus_per_trial": gpus_per_trial,
    }
    if refused := [name for name, value in for_ray.items() if value is not None]:
        raise StudyError(
            f"only a Ray cluster takes {', '.join(refused)}", "add executor='ray' (--executor ray)"
        )
    if processes is None:
        num_gpus = torch.cuda.device_count()
        processes = num_gpus if num_gpus > 1 else 0
    if processes == 0:
        return nullcontext(LocalExecutor(train, command))
    from qneurons.comparison.process_executor import ProcessExecutor

    return nullcontext(ProcessExecutor(train, command, processes))
