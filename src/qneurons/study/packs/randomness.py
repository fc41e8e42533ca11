"""What a run draws: every draw is a function of the run's seed and a named stream."""

import hashlib
from collections.abc import Sequence

import torch
from torch import Tensor

from qneurons.noise import philox
from qneurons.study import networks as n
from qneurons.study.runs import Run


def stream(seed: int, *names: object) -> int:
    """A seed of 63 bits for one use of a run's seed, as in ``stream(0, "order", epoch)``."""
    digest = hashlib.sha256(repr((seed, *names)).encode()).digest()
    return int.from_bytes(digest[:8], "little") >> 1


def words(streams: Tensor, *counters: Tensor) -> Tensor:
    """63 random bits for every stream and up to four counters below 2^32, all broadcast."""
    zero = torch.zeros_like(counters[0])
    c0, c1, c2, c3 = (*counters, *(zero,) * (4 - len(counters)))
    mask = 0xFFFFFFFF
    drawn = philox((c0, c1, c2, c3), (streams & mask, streams >> 32))
    return drawn[0] | (drawn[1] & 0x7FFFFFFF) << 32


def orders(streams: Tensor, num: int) -> Tensor:
    """A permutation of 0, …, num - 1 for every stream."""
    drawn = words(streams[:, None], torch.arange(num, device=streams.device))
    return drawn.argsort(dim=1, stable=True)


def uniforms(stream: int, num: int, num_draws: int, device: torch.device) -> Tensor:
    """Numbers from [0, 1) in float64, num × num_draws; the first of them whatever num is."""
    numbers, draws = (torch.arange(n, device=device) for n in (num, num_draws))
    drawn = words(torch.tensor(stream, device=device), numbers[:, None], draws)
    return (drawn >> 10).double() / 2**53


def initial_states(runs: Sequence[Run], shape: Sequence[int]) -> dict[str, Tensor]:
    """The initial tensors of every run, stacked; they depend on its seed alone.

    With momentum each parameter has a velocity beside it.
    """
    own = {
        seed: n.initial_state(runs[0].network, shape, stream(seed, "weights"))
        for seed in {run.seed for run in runs}
    }
    states = {k: torch.stack([own[run.seed][k] for run in runs]) for k in own[runs[0].seed]}
    if runs[0].momentum:
        names = n.parameter_names(states)
        states |= {name + n.VELOCITY: torch.zeros_like(states[name]) for name in names}
    return states
