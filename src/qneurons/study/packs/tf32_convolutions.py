"""The convolutions of a pack in tf32: chooses the tiles of ``convolutions.cu`` and launches it."""

import functools
import math
from collections.abc import Iterator
from dataclasses import astuple, dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from qneurons.study.networks import KERNEL
from qneurons.torch_internals import compile_cuda

_SOURCE = Path(__file__).with_name("convolutions.cu").read_text()
_TAPS, _WARP, _BLOCK = KERNEL**2, 32, 32  # a block has so many channels and features at a time
_SHARED_BYTES = 227 * 1024  # of a multiprocessor, of which every block needs 1 KiB for itself
_REGISTERS = 65536
_WAVES = 4  # of blocks that sum gradients: fewer leave multiprocessors idle at the end


@dataclass(frozen=True)
class Convolution:
    """A convolution with 3 × 3 kernels, as the first template arguments of the kernels."""

    channels: int
    features: int
    height: int
    width: int
    padding: int

    @classmethod
    def of(cls, x: Tensor, features: int, padding: int) -> "Convolution":
        return cls(x.shape[1], features, *x.shape[3:], padding)

    @property
    def size(self) -> tuple[int, int]:
        """Height and width of the result."""
        grown = 2 * self.padding - (KERNEL - 1)
        return self.height + grown, self.width + grown

    def tiles(self) -> Iterator["Tile"]:
        """Some rows of an image, or some whole images."""
        rows = self.size[0]
        heights = sorted({math.ceil(rows / parts) for parts in range(2, rows + 1)})
        shapes = [(height, 1) for height in heights] + [(rows, images) for images in range(1, 9)]
        return (Tile(self, *shape) for shape in shapes)


@dataclass(frozen=True)
class Tile:
    """What a block computes; the sizes are those of ``convolutions.cu``."""

    of: Convolution
    rows: int
    images: int

    @property
    def per_image(self) -> int:
        return math.ceil(self.of.size[0] / self.rows)

    @property
    def pitch(self) -> int:
        return self.of.width + 2 * self.of.padding

    @property
    def area(self) -> int:
        return (self.rows + KERNEL - 1) * self.pitch

    @property
    def outputs(self) -> float:
        """How many positions of the result a tile has, on average."""
        return math.prod(self.of.size) * self.images / self.per_image

    def count(self, batch: int) -> int:
        return math.ceil(batch / self.images) * self.per_image


@dataclass(frozen=True)
class Plan:
    """How a kernel is launched."""

    tile: Tile
    warps: int
    products: int  # of 16 positions by a warp at a time; 0 for gradients
    shared_bytes: int
    cost: float

    @property
    def blocks(self) -> int:
        """How many blocks a multiprocessor holds."""
        by_memory = _SHARED_BYTES // (self.shared_bytes + 1024)
        registers = 72 + 16 * self.products if self.products else 128
        return min(by_memory, _REGISTERS // (registers * self.warps * _WARP))


def _stride(size: int, spread: int) -> int:
    units = math.ceil(size / spread)
    return spread * (units if units % 2 else units + 1)


# The costs below were fitted to 100 plans on an H200 and follow their times within a tenth.


def forward_plans(convolution: Convolution) -> list[Plan]:
    """From the cheapest on, by an estimate of the cycles that an output takes."""
    plans = []
    steps = _TAPS * convolution.channels / 8
    for tile in convolution.tiles():
        floats = _BLOCK * (_stride(tile.images * tile.area, 8) + _TAPS * _BLOCK)
        floats = max(floats, _BLOCK * _stride(tile.images * tile.rows * tile.pitch, 4))
        positions = tile.images * math.ceil(tile.rows * tile.pitch / 16)
        for products in (3, 4, 5):
            warps = math.ceil(positions / products)
            plan = Plan(tile, warps, products, 4 * floats, 0.0)
            if not 3 <= warps <= 16 or plan.blocks < 1:
                continue
            multiply = 8 * steps * warps * products
            copy = 0.375 * convolution.channels * (tile.images * tile.area + _TAPS * _BLOCK)
            copy += 32 * warps * products
            plans.append(replace(plan, cost=(multiply + copy / plan.blocks) / tile.outputs))
    return sorted(plans, key=lambda plan: plan.cost)


def gradient_plans(convolution: Convolution) -> list[Plan]:
    """From the cheapest on, by an estimate of the cycles that an output takes."""
    plans = []
    for tile in convolution.tiles():
        area = math.ceil(tile.rows * tile.pitch / 8) * 8
        stage = _stride(tile.images * tile.area + 10, 4) + _stride(tile.images * area, 4)
        shared_bytes = 4 * _BLOCK * max(2 * stage, _BLOCK * _TAPS + 1)
        plan = Plan(tile, 8, 0, shared_bytes, 0.0)
        if plan.blocks < 1:
            continue
        work = tile.images * (3.5 * _TAPS * area + 2 * (tile.area + area))
        exposed = 1.1 if plan.blocks == 1 else 1.0
        cost = (exposed * work + 300 + 1000 / plan.blocks) / tile.outputs
        plans.append(replace(plan, cost=cost))
    return sorted(plans, key=lambda plan: plan.cost)


@functools.cache
def _processors(device: torch.device) -> int:
    return torch.cuda.get_device_properties(device).multi_processor_count


@functools.cache
def _best(convolution: Convolution, gradients: bool) -> Plan:
    return (gradient_plans if gradients else forward_plans)(convolution)[0]


@functools.cache
def _kernel(plan: Plan, has_bias: bool) -> Any:
    tile = plan.tile
    shape = (*astuple(tile.of), tile.rows, tile.images, plan.warps)
    if plan.products:
        name = "convolve", *shape, plan.products, plan.blocks, str(has_bias).lower()
    else:
        name = "convolve_gradients", *shape, plan.blocks
    return compile_cuda(_SOURCE, f"{name[0]}<{','.join(map(str, name[1:]))}>", plan.shared_bytes)


def is_supported(x: Tensor, features: int) -> bool:
    return x.shape[1] % _BLOCK == 0 and features % _BLOCK == 0


def convolve(
    x: Tensor, weight: Tensor, bias: Tensor | None, padding: int, plan: Plan | None = None
) -> Tensor:
    """x, run × channel × batch × height × width, by run × feature × channel × 3 × 3."""
    runs, _, batch, *_ = x.shape
    features = weight.shape[1]
    convolution = Convolution.of(x, features, padding)
    plan = plan or _best(convolution, False)
    out = torch.empty(runs, features, batch, *convolution.size, device=x.device)
    tensors = x, arranged(weight), x if bias is None else bias, out
    _kernel(plan, bias is not None)(
        (plan.tile.count(batch) * features // _BLOCK, runs, 1),
        (plan.warps * _WARP, 1, 1),
        [*tensors, batch, *x.stride()[:3]],
        plan.shared_bytes,
    )
    return out


def arranged(weight: Tensor) -> Tensor:
    """Weights in the order in which the threads of ``convolve`` read them."""
    # run, features by (block, pair, in pair, 8), channels by (block, step, half, 4), tap
    split = weight.flatten(3).unflatten(2, (-1, 4, 2, 4)).unflatten(1, (-1, 2, 2, 8))
    return split.permute(0, 1, 5, 9, 6, 2, 4, 8, 3, 7).contiguous()


def convolve_gradients(
    x: Tensor, grad: Tensor, padding: int, plan: Plan | None = None
) -> tuple[Tensor, Tensor]:
    """The gradients of weights and biases."""
    runs, channels, batch, *_ = x.shape
    features = grad.shape[1]
    convolution = Convolution.of(x, features, padding)
    plan = plan or _best(convolution, True)
    blocks = features // _BLOCK * (channels // _BLOCK)
    wanted = math.ceil(_WAVES * _processors(x.device) * plan.blocks / (blocks * runs))
    parts = min(wanted, plan.tile.count(batch))
    weights = x.new_empty(parts, runs, features, channels, KERNEL, KERNEL)
    biases = x.new_empty(parts, runs, features)
    _kernel(plan, False)(
        (blocks, parts, runs),
        (plan.warps * _WARP, 1, 1),
        [x, grad, weights, biases, batch, *x.stride()[:3]],
        plan.shared_bytes,
    )
    return weights.sum(0), biases.sum(0)
