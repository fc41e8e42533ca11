"""Studies on one store with fake packs."""

import dataclasses
import itertools
import math

import pytest
import torch

from qneurons.study.execution import Halt, LocalExecutor, Notice, run_study, worker
from qneurons.study.store import Store


class Bench:
    """Runs studies on one store with fake packs, and keeps the events."""

    def __init__(self, folder):
        self.folder = folder
        self.events = []

    def run(
        self,
        study,
        pack_class,
        *,
        device="cpu",
        executor=LocalExecutor,
        time_limit=None,
        stop_after=math.inf,
        **options,
    ):
        """``stop_after``: how often the question whether to stop is answered with no."""
        asked = itertools.count()
        halt = Halt(lambda: next(asked) >= stop_after, time_limit)
        arguments = {"precision": "fp32", "checkpoint_s": 0.0, "pack": 4} | options
        return run_study(
            study,
            Store.open(self.folder, create=True),
            executor(torch.device(device), halt),
            pack_class=pack_class,
            on_event=self.events.append,
            **arguments,
        )

    def at(self, folder):
        """Another one, for comparison."""
        return Bench(folder)

    @property
    def notices(self):
        return [event.text for event in self.events if isinstance(event, Notice)]

    def results(self):
        """All that is recorded but the times."""
        store = Store.open(self.folder, readonly=True)
        return {
            id: [str(dataclasses.replace(epoch, seconds=0.0)) for epoch in store.epochs(id)]
            for id in store.runs()
        }


@pytest.fixture
def bench(tmp_path, no_data, monkeypatch):
    monkeypatch.setattr(worker, "SAVING_SHARE", math.inf)  # at every epoch, if asked for
    monkeypatch.setattr("qneurons.provenance.commit", lambda: "0123456")  # git takes its time
    return Bench(tmp_path / "store")
