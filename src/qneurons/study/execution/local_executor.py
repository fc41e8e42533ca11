"""Trains packs one after another in this process."""

from collections.abc import Callable, Generator

import torch

from qneurons.study.data import DATASETS
from qneurons.study.execution.executor import Halt, Task, Terms, Told
from qneurons.study.execution.work import work
from qneurons.study.packs.memory import default_pack
from qneurons.study.runs import Run


class LocalExecutor:
    """Trains one pack after another in this process."""

    def __init__(self, device: torch.device) -> None:
        self._device = device

    def pack_size(self, run: Run, num_runs: int) -> int:
        return default_pack(run, DATASETS[run.dataset].shape, self._device)

    def train(
        self, take: Callable[[], Task | None], terms: Terms, halt: Halt
    ) -> Generator[tuple[Task, Told]]:
        while task := take():
            for told in work(task, terms, halt):
                yield task, told
