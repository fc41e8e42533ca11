"""Trainings that train nothing: their numbers follow from setting, seed and parameters."""

import random

import pytest
from torch import nn

from qneurons.comparison.arms import parse_arms
from qneurons.comparison.store import Finished, Spec
from qneurons.comparison.trial import Measured


def make_train(gains=None, *, epochs=3, noise=0.02, before=lambda trial, epoch: None):
    """A training whose test accuracy is 0.8 plus the gain of its setting plus noise."""

    def train(trial):
        trial.convert(nn.Sequential(nn.Linear(2, 2), nn.ELU()))
        gain = (gains or {}).get(trial.setting.partition("/")[0], 0.0)
        draw = random.Random(f"{trial.setting} {trial.seed} {dict(trial.params)}")
        for epoch in range(epochs):
            before(trial, epoch)
            trial.report(
                test_accuracy=0.8 + gain + draw.gauss(0, noise) + 0.01 * epoch,
                train_loss=1.0 - gain - 0.1 * epoch,
            )

    return train


def make_trials(values, *, metric="test_accuracy", epochs=1, diverged=()):
    """Finished trials: ``values[arm][params]`` are the numbers of seed 0, 1, ..."""
    trials = []
    for arm, by_params in values.items():
        if not isinstance(by_params, dict):
            by_params = {(): by_params}
        for params, numbers in by_params.items():
            for seed, number in enumerate(numbers):
                lost = (arm, seed) in diverged
                metrics = number if isinstance(number, dict) else {metric: number}
                reported = {} if lost else {name: [x] * epochs for name, x in metrics.items()}
                measured = Measured(reported, [0.5] * epochs, None, lost)
                trials.append(Finished(Spec(arm, seed, params), arm, measured, "3.11-0", "p"))
    return trials, parse_arms(values)


@pytest.fixture(autouse=True)
def no_git(monkeypatch):
    monkeypatch.setattr("qneurons.provenance.commit", lambda: "0123456")  # git takes its time
