"""Random moves of training images: their notation, and what they do to a batch."""

import dataclasses
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from qneurons.study.errors import StudyError, unknown

NUM_DRAWS = 8  # for every image, whatever its augmentation: so adding a move changes no other
FLIPS = ("none", "horizontal", "vertical", "both")


@dataclass(frozen=True)
class Augmentation:
    """How far images are moved at most, as Keras' ``ImageDataGenerator`` has it.

    Every move is uniform between its extremes. ``str`` gives the canonical notation.

    Args:
        rotation: angle in degrees, to either side.
        shift: along each axis, to either side, as a fraction of the image's size.
        shear: angle in degrees, to either side.
        zoom: each axis has its own factor, from 1 - zoom to 1 + zoom.
        flip: one of ``FLIPS``, each with probability 1/2.

    Example:
        >>> str(parse_augmentation({"shift": 0.10, "flip": "horizontal"}))
        'shift=0.1 flip=horizontal'
    """

    rotation: float = 0.0
    shift: float = 0.0
    shear: float = 0.0
    zoom: float = 0.0
    flip: str = "none"

    def __str__(self) -> str:
        fields = dataclasses.asdict(self).items()
        words = [f"{k}={str(v).removesuffix('.0')}" for k, v in fields if v not in (0, "none")]
        return " ".join(words) or "none"

    def matrices(self, draws: Tensor) -> Tensor:
        """The moves of uniform draws from [0, 1), … × NUM_DRAWS, as matrices, … × 2 × 3.

        A matrix maps a pixel of the new image, (row, column, 1), to its source in the old one. The
        image reaches from -1 to 1 along each axis. As in Keras the matrix is the product of
        rotation, shift, shear, zoom and flips.
        """
        angle, down, right, shear, *zooms = (2 * draws[..., :6] - 1).unbind(-1)
        angle = math.radians(self.rotation) * angle
        sheared = angle + math.radians(self.shear) * shear
        tall, wide = (1 + self.zoom * zoom for zoom in zooms)
        upside_down, mirrored = (draws[..., 6:] < 0.5).unbind(-1)
        if self.flip in ("vertical", "both"):
            tall = torch.where(upside_down, -tall, tall)
        if self.flip in ("horizontal", "both"):
            wide = torch.where(mirrored, -wide, wide)
        down, right = 2 * self.shift * down, 2 * self.shift * right
        cos, sin = angle.cos(), angle.sin()
        row = tall * cos, -wide * sheared.sin(), cos * down - sin * right
        column = tall * sin, wide * sheared.cos(), sin * down + cos * right
        return torch.stack([torch.stack(row, -1), torch.stack(column, -1)], -2)


PRESETS = {
    "none": Augmentation(),
    # What the code of the paper's authors, github.com/sunk/qneurons, does to its images.
    "sun-mnist": Augmentation(rotation=8.0, shift=0.08, shear=0.3, zoom=0.08),
    "sun-cifar": Augmentation(rotation=5.0, shift=0.1, flip="both"),
}
_RULES: dict[str, tuple[str, Callable[[Any], bool]]] = {
    "rotation": ("degrees from 0 to 180", lambda x: 0 <= x <= 180),
    "shift": ("a fraction from 0 to 1", lambda x: 0 <= x <= 1),
    "shear": ("degrees from 0 to below 90", lambda x: 0 <= x < 90),
    "zoom": ("a fraction from 0 to below 1", lambda x: 0 <= x < 1),
    "flip": (f"one of {', '.join(FLIPS)}", lambda x: x in FLIPS),
}


def parse_augmentation(value: str | Mapping[str, Any]) -> Augmentation:
    """Reads the name of a preset, a table of moves, or the notation, the inverse of ``str``."""
    if isinstance(value, str):
        if value in PRESETS:
            return PRESETS[value]
        if "=" not in value:
            otherwise = "or give a table such as {shift = 0.1, flip = 'horizontal'}"
            raise unknown("augmentation", value, PRESETS, otherwise)
        words = [word.partition("=") for word in value.split()]
        if len({key for key, *_ in words}) < len(words):
            raise StudyError(f"a move is given twice in {value!r}", "leave one of them out")
        value = {key: text if key == "flip" else _number(text) for key, _, text in words}
    for key, limit in value.items():
        if key not in _RULES:
            raise unknown("move", key, _RULES)
        rule, is_allowed = _RULES[key]
        kinds = (str,) if key == "flip" else (int, float)
        if type(limit) not in kinds or not is_allowed(limit):  # not isinstance: True is an int
            raise StudyError(f"{key} must be {rule}, got {limit!r}")
    numbers = {key: abs(float(limit)) for key, limit in value.items() if key != "flip"}  # no -0.0
    return Augmentation(**numbers, flip=value.get("flip", "none"))


def _number(text: str) -> float | str:
    try:
        return float(text)
    except ValueError:
        return text


def move(images: Tensor, matrices: Tensor) -> Tensor:
    """Moves every image of image × channel × row × column by its own matrix.

    A pixel is interpolated linearly between the four around its source. Beyond the border the
    image continues with the colour of the border.
    """
    size = images.shape[-1]
    assert images.shape[-2] == size, "matrices are for square images"
    centres = (2 * torch.arange(size, dtype=images.dtype, device=images.device) + 1) / size - 1
    # Not affine_grid: its matrix product would round to tf32 or bfloat16. The column comes first.
    of_row, of_column, offset = matrices.flip(-2)[:, None, None].unbind(-1)
    sources = centres[:, None, None] * of_row + (centres[:, None] * of_column + offset)
    return F.grid_sample(images, sources, padding_mode="border", align_corners=False)
