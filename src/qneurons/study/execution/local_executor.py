"""Trains packs one after another in this process."""

from collections.abc import Collection, Generator

import torch

from qneurons.study.data import DATASETS
from qneurons.study.execution.executor import Ended, Halt, Message, Task
from qneurons.study.execution.worker import run_task
from qneurons.study.packs import fitting_pack, free_bytes
from qneurons.study.runs import Run


class LocalExecutor:
    """Trains one pack at a time; each ``poll`` trains it as far as its next message."""

    def __init__(self, device: torch.device, halt: Halt | None = None) -> None:
        self.device, self.halt = device, halt or Halt()
        self._running: tuple[Task, Generator[Message]] | None = None

    @property
    def has_room(self) -> bool:
        return self._running is None

    def pack_size(self, run: Run, num_runs: int) -> int:
        return fitting_pack(run, DATASETS[run.dataset].shape, self.device, free_bytes(self.device))

    def submit(self, task: Task) -> None:
        self._running = task, run_task(task, self.device, self.halt)

    def poll(self) -> list[tuple[Task, Message]]:
        assert self._running is not None
        task, messages = self._running
        message = next(messages)
        if isinstance(message, Ended):
            self._running = None
        return [(task, message)]

    def cancel(self, tasks: Collection[Task]) -> None:
        if self._running is not None and self._running[0] in tasks:
            self._running[1].close()
            self._running = None
