"""A pack that trains nothing, and a study for it, for tests of the runner and the commands."""

import types
import typing

import pytest
import torch

from qneurons.study.runs import Epoch, Run, Study

FAKE_WEIGHTS = 5_000  # enough for a checkpoint to be larger than a journal


def make_pack(*, fits=None, diverging=(), on_step=lambda pack: None):
    """A class like ``Pack``.

    Args:
        fits: more runs than this are out of memory.
        diverging: pairs of a seed and the epoch in which runs with it diverge.
        on_step: called with the pack before every one of the three steps of an epoch.
    """

    class FakePack:
        built: typing.ClassVar = []  # seeds and epoch of every pack made

        def __init__(self, runs, dataset, *, device, precision, num_epochs=0, state=None, epoch=0):
            if fits is not None and len(runs) > fits:
                raise torch.OutOfMemoryError("CUDA out of memory.")
            self.runs, self.epoch, self.num_epochs = tuple(runs), epoch, num_epochs
            self.built.append(([run.seed for run in runs], epoch))
            if state is None:
                first = [torch.full((FAKE_WEIGHTS,), 0.1 + run.seed) for run in runs]
                state = {"weight": torch.stack(first)}
            self.weight = state["weight"].double()

        def train_epoch(self, stop=lambda: False):
            for step in range(3):
                on_step(self)
                if stop():
                    return None
                # As with real rounding, a run's numbers depend on its company.
                company = sum(run.seed + 1 for run in self.runs)
                self.weight = torch.cos(3 * self.weight + self.epoch + step + 1e-3 * company)
            self.epoch += 1
            numbers = self.weight[:, :2].tolist()
            return [self._record(*pair) for pair in zip(self.runs, numbers, strict=True)]

        def _record(self, run, numbers):
            loss, accuracy = numbers
            lost = any(run.seed == seed and self.epoch >= epoch for seed, epoch in diverging)
            losses = dict.fromkeys(
                ("train_loss", "test_loss", "test_loss_limit", "test_loss_mean"),
                float("nan") if lost else loss,
            )
            accuracies = dict.fromkeys(
                ("test_accuracy", "test_accuracy_limit", "test_accuracy_mean"), accuracy
            )
            record = {**losses, **accuracies, "diverged": lost, "seconds": 0.1, "lam": 0.0}
            return Epoch(run=run.id, epoch=self.epoch, **record)

        def state(self):
            return {"weight": self.weight.clone()}

    return FakePack


@pytest.fixture
def fake_pack():
    return make_pack


@pytest.fixture
def make_study():
    """Runs on digits that differ in activation and seed alone."""

    def make(num_seeds=3, epochs=4, activations=("elu",), **fields):
        about = {
            "dataset": "digits",
            "network": "mnist-mlp",
            "dropout": False,
            "setting": "base",
            "batch_size": 64,
            "learning_rate": 0.05,
        }
        runs = tuple(
            Run(**(about | fields), activation=activation, seed=seed)
            for activation in activations
            for seed in range(num_seeds)
        )
        return Study("small", "A small study", epochs, runs)

    return make


@pytest.fixture
def no_data(monkeypatch):
    """Reads no dataset: a fake pack needs none. Gives what is handed out instead."""
    dataset = types.SimpleNamespace(fingerprint="0123456789abcdef")
    load = lambda name, data_dir=None, *, progress=False: dataset  # noqa: E731
    monkeypatch.setattr("qneurons.study.execution.session.load_dataset", load)
    return dataset
