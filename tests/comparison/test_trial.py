"""What a training gets: a seed, a converted model, and a place for its numbers."""

import math
import random

import numpy as np
import pytest
import torch
from torch import nn

import qneurons as qn
from qneurons.comparison.trial import Trial, run_trial, seed_everything
from qneurons.study.errors import StudyError


def model():
    return nn.Sequential(nn.Linear(2, 2), nn.ELU(), nn.Linear(2, 2), nn.ELU())


@pytest.mark.parametrize(
    ("setting", "kind"),
    [
        ("base", nn.ELU),
        ("limit", qn.QLimit),
        ("c0.1", qn.QELU),
        ("a1/20", qn.QELU),
        ("rrelu", nn.RReLU),
        ("silu", nn.SiLU),
    ],
)
def test_the_setting_is_put_into_the_model(setting, kind):
    converted = Trial(setting, 0, {}).convert(model())
    assert [type(converted[i]) for i in (1, 3)] == [kind, kind]


@pytest.mark.parametrize("setting", ["base", "c0.1", "mish"])
def test_only_what_is_included_is_converted(setting):
    converted = Trial(setting, 0, {}).convert(model(), exclude=["3"])
    assert type(converted[3]) is nn.ELU


class Swish(nn.Module):
    def forward(self, x):
        return x * torch.sigmoid(x)


@pytest.mark.parametrize(
    ("setting", "kind"), [("base", Swish), ("c0.1", qn.QSiLU), ("mish", nn.Mish)]
)
def test_a_class_of_the_users_own_is_converted_by_its_alias(setting, kind):
    model = Trial(setting, 0, {}).convert(nn.Sequential(Swish()), alias={Swish: "silu"})
    assert type(model[0]) is kind


class InCode(nn.Module):
    def forward(self, x):
        return torch.relu(x)


@pytest.mark.parametrize("setting", ["base", "c0.1", "mish"])
@pytest.mark.parametrize(
    ("model", "options", "message"),
    [
        (nn.Linear(2, 2), {}, r"no activation module to replace; settings reach modules only"),
        (InCode(), {}, r"left: relu \(InCode\.forward\).*one such as nn\.ReLU\(\) in the model"),
        (nn.Sequential(nn.PReLU()), {}, r"left: PReLU.*not in the table; settings reach modules"),
        (nn.Sequential(qn.QELU()), {}, r"has 1 q-activations already; give it plain"),
        (nn.Sequential(nn.ELU()), {"exclude": "elu"}, r"include and exclude leave no activation"),
        (nn.Sequential(nn.ELU()), {"include": "relu"}, r"nothing matches 'relu'"),
    ],
)
def test_a_model_with_nothing_to_convert(setting, model, options, message):
    with pytest.raises(StudyError, match=message) as error:
        Trial(setting, 0, {}).convert(model, **options)
    assert str(error.value).startswith("there is nothing to compare: ")
    assert "qneurons." not in str(error.value)  # what it would advise is for one setting alone


@pytest.mark.parametrize("setting", ["c0.1", "mish"])
def test_what_cannot_be_converted_is_named(setting):
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.act = nn.ReLU()

        def forward(self, x):
            return torch.relu(self.act(x))

    with pytest.warns(UserWarning, match=r"not converted: relu \(Net\.forward\): called in code"):
        Trial(setting, 0, {}).convert(Net())


def test_a_report_anneals_every_model():
    trial = Trial("a1/3", 0, {})
    models = [trial.convert(model()) for _ in range(2)]
    lams = []
    for _ in range(3):
        lams.append({part[1].lam for part in models})
        trial.report(loss=1.0)
    schedule = qn.parse_schedule("a1/3")
    assert lams == [{schedule(epoch)} for epoch in (1, 2, 3)]


def test_numbers_and_times_are_kept_epoch_by_epoch():
    def train(trial):
        trial.convert(model())
        for value in (0.5, torch.tensor(0.75), np.float32(1.0)):
            trial.report(test_accuracy=value, loss=2 * value)

    measured, why = run_trial(train, Trial("base", 0, {}))
    assert measured.metrics == {"test_accuracy": [0.5, 0.75, 1.0], "loss": [1.0, 1.5, 2.0]}
    assert len(measured.seconds) == 3
    assert min(measured.seconds) >= 0
    assert (measured.diverged, why) == (False, "")


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, 1e308])
@pytest.mark.parametrize("then", ["ends", "goes on", "fails"])
def test_a_number_that_is_not_finite_ends_the_trial(value, then):
    def train(trial):
        trial.convert(model())
        for number in (1.0, value, 2.0):
            try:
                trial.report(loss=number)
            except Exception as error:
                if then == "ends":
                    raise
                if then == "fails":
                    raise RuntimeError("the loop has ended") from error

    measured, why = run_trial(train, Trial("base", 0, {}))
    assert (measured.metrics, measured.diverged) == ({"loss": [1.0]}, True)
    assert why == f"loss is {value}"


@pytest.mark.parametrize(
    ("reports", "message"),
    [
        ([{"loss": 1.0}, {"lost": 1.0}], r"epoch 2 reports lost,.*reported loss;.*the same names"),
        ([{"loss": 1.0}, {}], r"epoch 2 reports nothing"),
        ([{"loss": "low"}], r"loss must be a number, got 'low'.*loss=0.97"),
        ([{"loss": torch.ones(2)}], r"loss must be a number"),
        ([], r"reported nothing.*trial\.report\(test_accuracy=\.\.\.\)"),
    ],
)
def test_a_report_that_cannot_be_used(reports, message):
    def train(trial):
        trial.convert(model())
        for metrics in reports:
            trial.report(**metrics)

    with pytest.raises(StudyError, match=message) as error:
        run_trial(train, Trial("base", 0, {}))
    assert "\n" not in str(error.value)


def test_the_peak_of_memory_is_that_of_the_trial_on_the_fullest_gpu(monkeypatch):
    """Cuda is faked; on a device: tests/test_gpu.py."""
    allocated, peaks = {0: 800, 1: 300}, {0: 900, 1: 700}  # of trials before

    def train(trial):
        trial.convert(model())
        peaks.update({0: peaks[0] + 20, 1: peaks[1] + 50})
        allocated.update({1: allocated[1] + 5})  # kept for later trials, as data may be
        trial.report(loss=1.0)

    fakes = {
        "is_initialized": lambda: True,
        "device_count": lambda: 2,
        "reset_peak_memory_stats": lambda device: peaks.update({device: allocated[device]}),
        "memory_allocated": allocated.get,
        "max_memory_allocated": peaks.get,
        "manual_seed_all": lambda seed: None,
    }
    for name, fake in fakes.items():
        monkeypatch.setattr(torch.cuda, name, fake)
    for _ in range(2):
        assert run_trial(train, Trial("base", 0, {}))[0].peak_bytes == 50


def test_on_the_cpu_no_peak_is_known():
    def train(trial):
        trial.convert(model())
        trial.report(loss=1.0)

    assert run_trial(train, Trial("base", 0, {}))[0].peak_bytes is None


def test_a_training_that_converts_nothing():
    with pytest.raises(StudyError, match=r"model = trial\.convert\(model\)"):
        Trial("base", 0, {}).report(loss=1.0)


def test_the_same_seed_draws_the_same_everywhere():
    def draws(seed):
        seed_everything(seed)
        return random.random(), np.random.rand(), torch.rand(()).item()  # noqa: NPY002

    assert draws(3) == draws(3)
    assert all(a != b for a, b in zip(draws(3), draws(4), strict=True))
    draws(2**40)  # more than numpy takes


@pytest.mark.parametrize("setting", ["limit", "c0.1", "a1/9", "mish", "rrelu"])
def test_all_settings_begin_with_the_same_weights(setting):
    def weights(setting):
        seed_everything(5)
        return Trial(setting, 5, {}).convert(model())[2].weight

    assert torch.equal(weights("base"), weights(setting))
