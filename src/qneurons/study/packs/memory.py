"""Plans packs: which runs are still to be trained, which of them together, and how many at once."""

import math
import re
from collections.abc import Sequence
from pathlib import Path

import torch

from qneurons.study.networks import KERNEL, BatchNormLayer, ConvolutionLayer, DenseLayer, layers
from qneurons.study.runs import Run

CPU_PACK = 10  # more gain nothing on a few cores
CUDA_PACK = 512
SHARE = 0.8  # of the free memory: the rest is the allocator's, cuDNN's and everybody else's
COPIES_OF_WEIGHTS = 4  # the weights, what gradients they have, a state on its way out, workspace
COPIES_OF_VALUES = 4  # what a layer takes in and gives out, and the gradients of both
COPIES_OF_EVALUATED = 6  # the largest layer of what is evaluated at once; measured, in the mean
_EVALUATED_ELEMENTS, _EVALUATED_IMAGES = 2**23, 1024


# --- how many runs fit ----------------------------------------------------------------------------


def default_pack(run: Run, shape: Sequence[int], device: torch.device) -> int:
    """How many runs like this one a pack may have, by what is free on the device."""
    return fitting_pack(run, shape, device, free_bytes(device))


def fitting_pack(run: Run, shape: Sequence[int], device: torch.device, free: int | None) -> int:
    """How many runs like this one a pack may have, by how many bytes are free, if that is known."""
    most = CUDA_PACK if device.type == "cuda" else CPU_PACK
    if free is None:
        return most
    return max(1, min(most, int(SHARE * free / bytes_per_run(run, shape))))


def bytes_per_run(run: Run, shape: Sequence[int]) -> int:
    """About what one run of a pack needs."""
    weights = values = 0
    for layer, size in layers(run.network, shape):
        values += math.prod(size)
        match layer:
            case DenseLayer():
                weights += size[0] * layer.features
            case ConvolutionLayer():
                weights += size[0] * layer.features * KERNEL**2
            case BatchNormLayer():
                weights += 4 * size[0]
    step = COPIES_OF_VALUES * run.batch_size * values
    evaluated = evaluated_at_once(run.network, shape) * _widest(run.network, shape)
    return 4 * (COPIES_OF_WEIGHTS * weights + max(step, COPIES_OF_EVALUATED * evaluated))


def evaluated_at_once(network: str, shape: Sequence[int]) -> int:
    """How many images; not by what memory is free: draws depend on it."""
    fitting = 2 ** (_EVALUATED_ELEMENTS // _widest(network, shape)).bit_length() // 2
    return min(fitting, _EVALUATED_IMAGES)  # more leave a CPU's caches


def _widest(network: str, shape: Sequence[int]) -> int:
    return max(math.prod(size) for _, size in layers(network, shape))


def free_bytes(device: torch.device) -> int | None:
    """Free memory of a device; None where the system does not tell."""
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0]
    try:
        match = re.search(r"MemAvailable:\s*(\d+) kB", Path("/proc/meminfo").read_text())
    except OSError:
        return None
    return int(match[1]) * 1024 if match else None
