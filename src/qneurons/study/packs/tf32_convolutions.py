"""The convolutions of a pack in tf32: chooses the tiles of ``convolutions.cu`` and launches it."""

import functools
import itertools
import math
from collections.abc import Callable, Iterator
from dataclasses import astuple, dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from qneurons.study.networks import KERNEL
from qneurons.torch_internals import compile_cuda

_SOURCE = Path(__file__).with_name("convolutions.cu").read_text()
_TAPS, _WARP, _BLOCK = KERNEL**2, 32, 32  # a block has so many features, and channels for gradients
_FEW = 4  # channels at most, if their taps are multiplied together
_STAGE, _KEPT = 8, 3  # channels that are copied at a time, and how many times in shared memory
_REGISTERS = 65536  # of a multiprocessor


class Device(NamedTuple):
    """What the plans depend on; the default is an H200."""

    processors: int = 132
    shared_bytes: int = 228 * 1024  # of a multiprocessor
    shared_bytes_of_block: int = 227 * 1024


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
        _, channels, _, height, width = x.shape
        return cls(channels, features, height, width, padding)

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
        return self.of.width + self.of.padding

    @property
    def columns(self) -> int:
        return math.ceil(self.of.size[1] / 4) * 4

    @property
    def area(self) -> int:
        return math.ceil(((self.rows + 1) * self.pitch + self.columns + 2) / 4) * 4

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
    blocks: int  # that a multiprocessor holds
    cost: float  # an estimate of the cycles that an output takes


def _stride(size: int, spread: int) -> int:
    units = math.ceil(size / spread)
    return spread * (units if units % 2 else units + 1)


def _blocks(device: Device, shared_bytes: int, warps: int, registers: int) -> int:
    if shared_bytes > device.shared_bytes_of_block:
        return 0
    by_memory = device.shared_bytes // (shared_bytes + 1024)  # a block needs 1 KiB for itself
    most_warps = 4 * (_REGISTERS // 4 // (registers * _WARP))  # four schedulers have equal shares
    return min(by_memory, most_warps // warps)


# The costs estimate the cycles of a multiprocessor: 2 to multiply 16 × 8 × 8 numbers, and 0.2 to
# copy or to store a number. What a block does besides multiplying is hidden by other blocks.


def forward_plans(convolution: Convolution, device: Device) -> Iterator[Plan]:
    channels, steps = convolution.channels, _steps(convolution.channels)
    is_few = channels <= _FEW
    matrix = _BLOCK * 8 * steps
    for tile in convolution.tiles():
        copied = channels * _stride(tile.images * tile.area, 8) + matrix
        kept = copied if is_few else _KEPT * copied * _STAGE // channels
        floats = max(kept, _BLOCK * _stride(tile.images * tile.rows * tile.pitch, 4))
        positions = tile.images * math.ceil(tile.rows * tile.pitch / 16)
        for products in (3, 4, 5):
            warps = math.ceil(positions / products)
            blocks = _blocks(device, 4 * floats, warps, (48 if is_few else 72) + 16 * products)
            if warps > 16 or blocks == 0:
                continue
            moved = 0.2 * (copied + _BLOCK * tile.outputs)
            cost = max(8 * steps * warps * products + (moved + 3000) / blocks, moved) / tile.outputs
            yield Plan(tile, warps, products, 4 * floats, blocks, cost)


def gradient_plans(convolution: Convolution, device: Device) -> Iterator[Plan]:
    is_few = convolution.channels <= _FEW
    channels = convolution.channels if is_few else _BLOCK
    for tile, warps in itertools.product(convolution.tiles(), (16, 8)):
        if tile.rows % 2:  # two are multiplied together
            tile = replace(tile, rows=tile.rows + 1)
        area = tile.rows * tile.columns
        copied = channels * _stride(tile.images * tile.area, 4)
        copied += _BLOCK * _stride(tile.images * area, 4)
        shared_bytes = 4 * max(2 * copied, _BLOCK * (channels * _TAPS + 5))
        blocks = _blocks(device, shared_bytes, warps, 80 if is_few else 128)
        if blocks == 0:
            continue
        shares = warps if is_few else 8 * warps // channels
        of_share = math.ceil(tile.images * tile.columns / 4 / shares)  # columns, by four
        multiply = 2 * math.ceil(channels * _TAPS / _BLOCK) * tile.rows * 4 * shares * of_share
        exposed = 1 + 1.6 / warps if blocks == 1 else 1.0
        work = exposed * max(multiply + copied / 16, 0.2 * copied)
        cost = (work + 300 + 1000 / blocks) / tile.outputs
        yield Plan(tile, warps, 0, shared_bytes, blocks, cost)


def _steps(channels: int) -> int:
    """How many products of eight of (channel, tap) a convolution takes."""
    return math.ceil(_TAPS / 2) if channels <= _FEW else _TAPS * channels // 8


@functools.cache
def _best(plans: Callable[..., Iterator[Plan]], convolution: Convolution, device: Device) -> Plan:
    return min(plans(convolution, device), key=lambda plan: plan.cost)


@functools.cache
def _device(device: torch.device) -> Device:
    found: Any = torch.cuda.get_device_properties(device)
    return Device(
        found.multi_processor_count,
        found.shared_memory_per_multiprocessor,
        found.shared_memory_per_block_optin,
    )


@functools.cache
def _kernel(plan: Plan, has_bias: bool, device: torch.device) -> Any:
    """Compiled for the current device; another one needs its own, so the cache has it as a key."""
    tile = plan.tile
    shape = (*astuple(tile.of), tile.rows, tile.images, plan.warps)
    if plan.products:
        name = "convolve", *shape, plan.products, plan.blocks, str(has_bias).lower()
    else:
        name = "convolve_gradients", *shape, plan.blocks
    return compile_cuda(_SOURCE, f"{name[0]}<{','.join(map(str, name[1:]))}>", plan.shared_bytes)


def is_supported(x: Tensor, features: int) -> bool:
    """True if the kernels can be used for x on its device."""
    channels = x.shape[1]
    fits = (channels <= _FEW or channels % _BLOCK == 0) and features % _BLOCK == 0
    has_tf32 = not torch.version.hip and torch.cuda.get_device_capability(x.device) >= (8, 0)
    return fits and has_tf32


def convolve(x: Tensor, weight: Tensor, bias: Tensor | None, padding: int) -> Tensor:
    """x, run × channel × batch × height × width, by run × feature × channel × 3 × 3."""
    runs, _, batch, *_ = x.shape
    features = weight.shape[1]
    convolution = Convolution.of(x, features, padding)
    plan = _best(forward_plans, convolution, _device(x.device))
    out = torch.empty(runs, features, batch, *convolution.size, device=x.device)
    tensors = x, arranged(weight), x if bias is None else bias, out
    _kernel(plan, bias is not None, x.device)(
        (plan.tile.count(batch) * features // _BLOCK, runs, 1),
        (plan.warps * _WARP, 1, 1),
        [*tensors, batch, *_strides(x)],
        plan.shared_bytes,
    )
    return out


def _strides(x: Tensor) -> list[int]:
    """Those of runs, channels and images. Up to 16 bytes are copied at once."""
    *strides, width, _ = x.stride()
    is_aligned = x.data_ptr() % 16 == 0 and not any(stride % width for stride in strides)
    assert is_aligned, "images must begin at multiples of their rows, the first at one of 16 bytes"
    return strides


def arranged(weight: Tensor) -> Tensor:
    """Weights in the order in which the threads of ``convolve`` read them."""
    taps, channels = weight.flatten(3), weight.shape[2]
    if channels <= _FEW:  # a step has two taps of four channels
        padded = F.pad(taps, (0, 1, 0, _FEW - channels)).unflatten(3, (-1, 2))
        steps = padded.permute(0, 1, 4, 2, 3).unsqueeze(2)
    else:  # a tap of twice four
        steps = taps.unflatten(2, (-1, 2, 4))
    # run, features by (block, pair, in pair, 8), stage, half of a step, 4 channels, step
    return steps.unflatten(1, (-1, 2, 2, 8)).permute(0, 1, 5, 8, 2, 4, 7, 3, 6).contiguous()


def convolve_gradients(x: Tensor, grad: Tensor, padding: int) -> tuple[Tensor, Tensor]:
    """The gradients of weights and biases."""
    runs, channels, batch, *_ = x.shape
    features = grad.shape[1]
    convolution = Convolution.of(x, features, padding)
    device = _device(x.device)
    plan = _best(gradient_plans, convolution, device)
    blocks = features // _BLOCK * math.ceil(channels / _BLOCK)
    parts = _parts(plan.tile.count(batch), blocks * runs, device.processors * plan.blocks)
    sizes = runs * features * channels * _TAPS, runs * features
    sums = x.new_empty(parts, sum(sizes))
    _kernel(plan, False, x.device)(
        (blocks, parts, runs),
        (plan.warps * _WARP, 1, 1),
        [x, grad, *sums.split(sizes, 1), batch, *_strides(x)],
        plan.shared_bytes,
    )
    weights, biases = sums.sum(0).split(sizes)
    return weights.view(runs, features, channels, KERNEL, KERNEL), biases.view(runs, features)


def _parts(tiles: int, blocks: int, at_once: int) -> int:
    """Into how many parts, each with so many blocks, to divide the tiles."""

    def time(parts: int) -> int:
        # To begin and to end takes about as long as a tile.
        return math.ceil(blocks * parts / at_once) * (math.ceil(tiles / parts) + 1)

    return min(range(1, tiles + 1), key=time)
