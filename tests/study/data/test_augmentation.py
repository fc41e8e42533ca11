"""Augmentation against Keras' product of matrices in scipy, and its notation."""

import dataclasses
import math

import numpy as np
import pytest
import torch
from scipy import ndimage

from qneurons.study.data.augmentation import (
    FLIPS,
    NUM_DRAWS,
    PRESETS,
    Augmentation,
    move,
    parse_augmentation,
)
from qneurons.study.errors import StudyError

ALL = Augmentation(rotation=30.0, shift=0.2, shear=20.0, zoom=0.3, flip="both")


def uniform(*shape):
    return torch.rand(shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64)


def shifting(down, right):
    return np.array([[1, 0, down], [0, 1, right], [0, 0, 1]])


def moved_by_keras(image, draws, augmentation):
    """As ``random_transform`` of Keras 2.2.5, but about the centre, which it misses by a pixel."""
    angle, down, right, shear, tall, wide = (2 * draws[:6] - 1).tolist()
    angle *= math.radians(augmentation.rotation)
    shear *= math.radians(augmentation.shear)
    size = image.shape[-1]
    cos, sin, centre = math.cos(angle), math.sin(angle), (size - 1) / 2
    product = (
        shifting(centre, centre)
        @ np.array([[cos, -sin, 0], [sin, cos, 0], [0, 0, 1]])
        @ shifting(down * augmentation.shift * size, right * augmentation.shift * size)
        @ np.array([[1, -math.sin(shear), 0], [0, math.cos(shear), 0], [0, 0, 1]])
        @ np.diag([1 + tall * augmentation.zoom, 1 + wide * augmentation.zoom, 1])
        @ shifting(-centre, -centre)
    )
    channels = [
        ndimage.affine_transform(channel, product[:2, :2], product[:2, 2], order=1, mode="nearest")
        for channel in image.numpy()
    ]
    axes = {"none": (), "vertical": (1,), "horizontal": (2,), "both": (1, 2)}[augmentation.flip]
    return torch.tensor(np.stack(channels)).flip([a for a in axes if draws[5 + a] < 0.5])


@pytest.mark.parametrize("shape", [(1, 8, 8), (3, 9, 9), (1, 28, 28), (3, 32, 32)])
@pytest.mark.parametrize("augmentation", [ALL, *PRESETS.values()], ids=str)
def test_images_move_as_in_keras(shape, augmentation):
    images, draws = uniform(12, *shape), uniform(12, NUM_DRAWS)
    found = move(images, augmentation.matrices(draws))
    for image, own, moved in zip(images, draws, found, strict=True):
        torch.testing.assert_close(moved, moved_by_keras(image, own, augmentation))
    single = move(images.float(), augmentation.matrices(draws).float())
    torch.testing.assert_close(single.double(), found, rtol=0, atol=1e-4)


@pytest.mark.parametrize("field", dataclasses.fields(Augmentation), ids=lambda field: field.name)
def test_every_move_has_its_own_draws(field):
    """So adding a move to an augmentation does not change the others of a run."""
    draws = uniform(NUM_DRAWS)
    one = Augmentation(**{field.name: getattr(ALL, field.name)})
    changed = (draws + 0.5 * torch.eye(NUM_DRAWS)) % 1  # a flip changes its mind by a half
    differs = (one.matrices(changed) != one.matrices(draws)).flatten(1).any(1)
    used = set(differs.nonzero().flatten().tolist())
    expected = {"rotation": {0}, "shift": {1, 2}, "shear": {3}, "zoom": {4, 5}, "flip": {6, 7}}
    assert used == expected[field.name]


@pytest.mark.parametrize("flip", FLIPS)
def test_flips_move_whole_pixels(flip):
    images = uniform(1, 2, 7, 7)
    moved = move(images, Augmentation(flip=flip).matrices(torch.zeros(1, NUM_DRAWS).double()))
    axes = {"none": [], "vertical": [2], "horizontal": [3], "both": [2, 3]}[flip]
    torch.testing.assert_close(moved, images.flip(axes))


class TestNotation:
    @pytest.mark.parametrize(
        ("value", "text"),
        [
            ("none", "none"),
            ("sun-mnist", "rotation=8 shift=0.08 shear=0.3 zoom=0.08"),
            ("sun-cifar", "rotation=5 shift=0.1 flip=both"),
            ({}, "none"),
            ({"flip": "none", "zoom": -0.0}, "none"),
            (
                {"flip": "vertical", "shift": 0.10, "rotation": 8},
                "rotation=8 shift=0.1 flip=vertical",
            ),
            ("shift=0.10 rotation=8.0", "rotation=8 shift=0.1"),
            ({"shift": 1 / 3}, "shift=0.3333333333333333"),
        ],
    )
    def test_has_one_canonical_form(self, value, text):
        assert str(parse_augmentation(value)) == text
        assert parse_augmentation(text) == parse_augmentation(value)

    @pytest.mark.parametrize(
        ("value", "message"),
        [
            ("sun-mnits", "augmentation 'sun-mnits'.*'sun-mnist'.*or give a table such as"),
            ({"rotate": 8}, "move 'rotate'.*'rotation'.*shift, shear, zoom, flip"),
            ("shift=0.1 shift=0.2", "a move is given twice"),
            ({"rotation": 181}, "rotation must be degrees from 0 to 180, got 181"),
            ({"rotation": "8"}, "rotation must be degrees .*, got '8'"),
            ({"shift": -0.1}, "shift must be a fraction from 0 to 1, got -0.1"),
            ({"shift": True}, "shift must be .* got True"),
            ({"shift": math.nan}, "shift must be .* got nan"),
            ({"shear": 90.0}, "shear must be degrees from 0 to below 90, got 90.0"),
            ({"zoom": 1}, "zoom must be a fraction from 0 to below 1, got 1"),
            ({"flip": "left"}, "flip must be one of none, horizontal, vertical, both, got 'left'"),
            ({"flip": True}, "flip must be .* got True"),
            ("shift=far", "shift must be .* got 'far'"),
        ],
    )
    def test_what_cannot_be_read(self, value, message):
        with pytest.raises(StudyError, match=message):
            parse_augmentation(value)
