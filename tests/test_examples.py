"""The trainings of examples/, on little data: every setting runs, learns, and repeats itself."""

import importlib
from pathlib import Path

import pytest
import torch
from torch import nn

from qneurons import QActivation
from qneurons.comparison.trial import Trial, run_trial
from qneurons.study.data import Dataset

SETTINGS = ("limit", "a1/2", "relu2")


@pytest.fixture
def example(monkeypatch):
    """Imports an example by its name."""
    monkeypatch.syspath_prepend(Path(__file__).parents[1] / "examples")
    with torch.random.fork_rng():
        yield importlib.import_module


@pytest.fixture
def cifar(example, monkeypatch):
    """CIFAR-10 of ten colours."""
    module = example("cifar_resnet")
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(300) % 10
    noise = torch.randint(64, (300, 3, 32, 32), generator=generator)
    colours = torch.randint(192, (10, 3, 1, 1), generator=generator)
    images = (colours[labels] + noise).byte()
    parts = (images[:250], labels[:250], images[250:], labels[250:])
    monkeypatch.setattr(module, "load_dataset", lambda *_: Dataset("cifar10", *parts, "0" * 16))
    monkeypatch.setattr(module, "NUM_VALIDATION", 50)
    module.load.cache_clear()
    yield module
    module.load.cache_clear()


def metrics(module, setting="base", seed=0, **params):
    measured, why = run_trial(module.train, Trial(setting, seed, {"size": "tiny", **params}))
    assert not why
    return measured.metrics


@pytest.fixture
def gpt(example):
    return example("gpt")


@pytest.fixture
def tabular(example):
    pytest.importorskip("sklearn")
    return example("tabular")


each = pytest.mark.parametrize("name", ["cifar", "gpt", "tabular"])


@pytest.mark.parametrize("setting", SETTINGS)
@each
def test_every_setting_trains(name, setting, request):
    module = request.getfixturevalue(name)
    found = metrics(module, setting, activation="tanh")
    assert [len(values) for values in found.values()] == [2, 2]


@each
def test_the_seed_decides_everything(name, request):
    module = request.getfixturevalue(name)
    assert metrics(module, "c0.1", 1) == metrics(module, "c0.1", 1) != metrics(module, "c0.1", 2)


def test_the_resnet_learns_colours(cifar):
    assert metrics(cifar, lr=4.0)["test_accuracy"][-1] > 0.3


def test_the_gpt_learns(gpt):
    first, last = metrics(gpt, "limit")["test_loss"]
    assert last < first < 5.5  # log 256 is 5.55


def test_the_table_is_learnt_and_its_parts_do_not_overlap(tabular, monkeypatch):
    rows, classes = tabular.load(torch.device("cpu"))
    numbered = torch.cat([torch.arange(len(rows))[:, None].float(), rows[:, 1:]], 1)
    training, evaluated, network = set(), [], tabular.network

    def watched(*arguments):
        model = network(*arguments)
        model.register_forward_pre_hook(lambda _, inputs: training.update(inputs[0][:, 0].tolist()))
        return model

    def accuracy(model, rows, _):
        evaluated.append(set(rows[:, 0].tolist()))
        return 0.5

    with monkeypatch.context() as patch:
        patch.setattr(tabular, "load", lambda device: (numbered, classes))
        patch.setattr(tabular, "network", watched)
        patch.setattr(tabular, "accuracy", accuracy)
        metrics(tabular)
    validation, test = evaluated[:2]
    assert evaluated[2:] == [validation, test]
    assert len(validation) == len(test) == 359
    assert len(training) > 1000
    assert len(training | validation | test) == len(training) + 2 * 359
    assert metrics(tabular, "limit")["test_accuracy"][-1] > 0.8


def test_images_are_mirrored_and_shifted_whole(cifar):
    images = torch.randint(256, (2, 32, 32, 3), dtype=torch.uint8)
    batch, is_flipped = torch.tensor([1, 0]), torch.tensor([False, True])
    generator = torch.Generator().manual_seed(0)
    shifts = torch.randint(-2, 3, (2, 2, 1), generator=generator.clone_state())
    assert shifts.unique().numel() > 2
    moved = cifar.augmented(images, batch, is_flipped, generator)
    padded = nn.functional.pad(cifar.normalised(images), (2,) * 4, "reflect")
    for place, image in enumerate(batch):
        row, column = (2 + shifts[:, place, 0]).tolist()
        source = padded[image].flip(2) if is_flipped[image] else padded[image]
        torch.testing.assert_close(moved[place], source[:, row : row + 32, column : column + 32])


def test_whitened_patches_are_uncorrelated(cifar):
    images = cifar.load(torch.device("cpu"))[0][0]
    filters = cifar.whitening(images)
    found = nn.functional.conv2d(cifar.normalised(images), filters).transpose(0, 1).flatten(1)
    found = found[: len(found) // 2]
    torch.testing.assert_close(found @ found.T / found.shape[1], torch.eye(12), atol=0.05, rtol=0)


def test_an_image_is_evaluated_in_six_views(cifar):
    x = torch.randn(1, 3, 32, 32)
    up, up_mirrored, same, mirrored, down, _ = cifar.views(x)
    torch.testing.assert_close(same, x, rtol=0, atol=0)
    torch.testing.assert_close(mirrored, x.flip(3), rtol=0, atol=0)
    torch.testing.assert_close(up[:, :, 1:, 1:], x[:, :, :-1, :-1], rtol=0, atol=0)
    torch.testing.assert_close(down[:, :, :-1, :-1], x[:, :, 1:, 1:], rtol=0, atol=0)
    torch.testing.assert_close(up_mirrored, up.flip(3), rtol=0, atol=0)


def test_the_model_is_drawn_to_its_running_mean(cifar):
    model = nn.Sequential(nn.Linear(1, 1), nn.BatchNorm1d(1))
    means = [torch.full_like(part, 8.0) for part in cifar.state(model)]
    for part in cifar.state(model):
        part.zero_()
    cifar.look_ahead(means, model, 0.75)
    assert {part.item() for part in [*means, *cifar.state(model)]} == {6.0}
    assert len(means) == 6  # weights, biases and statistics of both layers


def test_activations_stay_in_channels_last_and_bfloat16(cifar, monkeypatch):
    """As on a GPU."""
    seen = []

    def look(module, inputs, output):
        for x in (*inputs, output):
            is_last = x.is_contiguous(memory_format=torch.channels_last)
            seen.append((x.dtype, is_last, isinstance(module, QActivation)))

    def bfloat16(device):
        return torch.autocast(device.type, torch.bfloat16, cache_enabled=False)

    monkeypatch.setattr(cifar, "bfloat16", bfloat16)
    trial = Trial("c0.1", 0, {"size": "tiny"})
    convert = trial.convert

    def convert_and_look(model):
        model = convert(model)
        for part in model.modules():
            if isinstance(part, QActivation):
                part.register_forward_hook(look)
        return model

    monkeypatch.setattr(trial, "convert", convert_and_look)
    run_trial(cifar.train, trial)
    assert set(seen) == {(torch.bfloat16, True, True)}
