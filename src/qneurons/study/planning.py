"""Plans packs: which runs are still to be trained, which of them together, and how many at once."""

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from qneurons.study.layers import KERNEL
from qneurons.study.networks import BatchNorm, Convolution, Dense, layers
from qneurons.study.runs import Run, Study, packable, parse_setting

CPU_PACK = 10  # more gain nothing on a few cores
CUDA_PACK = 512
SHARE = 0.8  # of the free memory: the rest is the allocator's, cuDNN's and everybody else's
COPIES_OF_WEIGHTS = 4  # the weights, what gradients they have, a state on its way out, workspace
COPIES_OF_VALUES = 4  # what a layer takes in and gives out, and the gradients of both
COPIES_OF_EVALUATED = 6  # the largest layer of what is evaluated at once; measured, in the mean
_EVALUATED_ELEMENTS, _EVALUATED_IMAGES = 2**23, 1024


@dataclass(frozen=True)
class Job:
    """Runs that train together, and the epochs that every one of them has done."""

    runs: tuple[Run, ...]
    epoch: int


def pending(study: Study, progress: Mapping[str, int], diverged: set[str]) -> list[Run]:
    """The runs that have neither all their epochs nor diverged."""
    return [
        run
        for run in study.runs
        if run.id not in diverged and progress.get(run.id, 0) < study.epochs
    ]


def plan(
    runs: Sequence[Run], progress: Mapping[str, int], pack_size: Callable[[Run], int]
) -> list[Job]:
    """Packs of runs that fit together, like beside like; those furthest on come first.

    Chunks are filled from the front and not evened out: after a stop at any moment the same runs
    meet in the same packs again, so that a resumed study rounds as an undisturbed one does.
    """
    groups: dict[tuple[int, tuple[object, ...]], list[Run]] = {}
    for run in runs:
        groups.setdefault((progress.get(run.id, 0), packable(run)), []).append(run)
    jobs = []
    for (epoch, _), group in groups.items():
        group.sort(key=_likeness)
        size = max(1, pack_size(group[0]))
        for start in range(0, len(group), size):
            jobs.append(Job(tuple(group[start : start + size]), epoch))
    return sorted(jobs, key=lambda job: -job.epoch)


def _likeness(run: Run) -> tuple[object, ...]:
    return run.activation, parse_setting(run.setting).kind, run.setting, run.seed


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
            case Dense():
                weights += size[0] * layer.features
            case Convolution():
                weights += size[0] * layer.features * KERNEL**2
            case BatchNorm():
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
