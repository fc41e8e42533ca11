"""Studies on one store with fake packs."""

import dataclasses
import math

import pytest
import torch

from qneurons.study.execution import work
from qneurons.study.execution.progress import Notice
from qneurons.study.execution.session import run_study
from qneurons.study.store import Store


class Bench:
    """Runs studies on one store with fake packs, and keeps what was told."""

    def __init__(self, folder):
        self.folder = folder
        self.events = []

    def run(self, study, pack_class, *, stop_after=None, **options):
        """``stop_after``: how often the question whether to stop is answered with no."""
        asked = iter(range(10**9))
        terms = {"device": torch.device("cpu"), "precision": "fp32"}
        arguments = terms | {"checkpoint_s": 0.0, "pack": 4} | options
        return run_study(
            study,
            Store.open(self.folder, create=True),
            pack_class=pack_class,
            on_event=self.events.append,
            should_stop=lambda: stop_after is not None and next(asked) >= stop_after,
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
    monkeypatch.setattr(work, "SAVING_SHARE", math.inf)  # at every epoch, if asked for
    monkeypatch.setattr("qneurons.provenance.commit", lambda: "0123456")  # git takes its time
    return Bench(tmp_path / "store")
