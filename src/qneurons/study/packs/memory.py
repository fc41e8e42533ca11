"""How many runs fit into the memory of a device."""

import math
import re
from collections.abc import Sequence
from pathlib import Path

import torch

from qneurons.study.networks import KERNEL, layers
from qneurons.study.packs.network import evaluation_batch_size, largest_layer
from qneurons.study.runs import Run

CPU_PACK = 10  # more runs gain nothing on a few cores
CUDA_PACK = 512
SHARE = 0.8  # of the free memory: the allocator, cuDNN, data and other processes need the rest
COPIES_OF_WEIGHTS = 4  # weights, gradients, a state on its way to the store, workspace
COPIES_WITH_MOMENTUM = 6  # and velocities, which are also in the state
COPIES_OF_VALUES = 4  # input and output of a layer, and the gradients of both
COPIES_OF_EVALUATED = 6  # of the largest layer in evaluation; measured in the mode "mean"


def fitting_pack(run: Run, shape: Sequence[int], device: torch.device, free: int | None) -> int:
    """How many runs like this one fit into ``free`` bytes; the most useful number if None."""
    most = CUDA_PACK if device.type == "cuda" else CPU_PACK
    if free is None:
        return most
    return max(1, min(most, int(SHARE * free / bytes_per_run(run, shape))))


def bytes_per_run(run: Run, shape: Sequence[int]) -> int:
    """About how many bytes one run of a pack needs, in float32."""
    weights = values = 0
    for layer, size in layers(run.network, shape):
        values += math.prod(size)
        match layer.kind:
            case "dense":
                weights += size[0] * layer.features
            case "convolution":
                weights += size[0] * layer.features * KERNEL**2
            case "batch-norm":
                weights += 4 * size[0]
    step = COPIES_OF_VALUES * run.batch_size * values
    evaluated = evaluation_batch_size(run.network, shape) * largest_layer(run.network, shape)
    copies = COPIES_WITH_MOMENTUM if run.momentum else COPIES_OF_WEIGHTS
    return 4 * (copies * weights + max(step, COPIES_OF_EVALUATED * evaluated))


def free_bytes(device: torch.device) -> int | None:
    """The free memory of a device; None if the system does not tell."""
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0]
    try:
        match = re.search(r"MemAvailable:\s*(\d+) kB", Path("/proc/meminfo").read_text())
    except OSError:
        return None
    return int(match[1]) * 1024 if match else None
