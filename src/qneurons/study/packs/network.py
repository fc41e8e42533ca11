"""The networks of many runs as one: parameters stacked by run, draws by each run's own seed.

A tensor is run × channels × batch (× height × width), so that each run is contiguous: batch
normalisation sees it as rows, and the q-activation as one group of elements.
"""

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from qneurons.functional import sample
from qneurons.kernels import base_row, is_fused, kernel_row
from qneurons.mean_table import Table, look_up
from qneurons.study import networks as n
from qneurons.study.networks import KERNEL
from qneurons.study.packs.dropout import seeded_dropout
from qneurons.study.packs.layers import convolve, fold_batch_norm, normalise, updating_dense
from qneurons.study.packs.means import MeanTables
from qneurons.study.packs.segments import (
    ByAutograd,
    ByKernel,
    Segment,
    activate,
    activate_and_pool,
    segments,
)
from qneurons.study.runs import Run

MODES = ("sample", "limit", "mean")
_EVALUATED_ELEMENTS, _EVALUATED_IMAGES = 2**23, 1024


class PackedNetwork:
    """A network of the paper for many runs, all with or all without dropout.

    For every name in the state_dict of :func:`~qneurons.study.networks.build`, ``tensors`` has the
    tensors of all runs, stacked.

    Attributes:
        lam: λ of every run, which a CUDA graph reads when it is replayed.
        num_draws: how many layers draw, each with its own seed for every run.
    """

    def __init__(
        self, runs: Sequence[Run], shape: Sequence[int], tensors: dict[str, Tensor]
    ) -> None:
        self.runs, self.shape, self.is_frozen = tuple(runs), shape, False
        self.layers = tuple(n.layers(runs[0].network, shape))
        self.segments = segments(runs)
        self.dropout, self.momentum = runs[0].dropout, runs[0].momentum
        self.tensors = tensors
        some = next(iter(tensors.values()))
        self.lam = torch.zeros(len(runs), dtype=some.dtype, device=some.device)
        self.phi = torch.full((1,), runs[0].phi, dtype=some.dtype, device=some.device)
        self.zero = torch.zeros_like(self.lam)
        self.means: list[Table | None] = [None] * len(self.segments)
        self.num_draws = sum(layer.kind in ("activation", "dropout") for layer, _ in self.layers)

    def parameters(self) -> list[Tensor]:
        return [self.tensors[name] for name in n.parameter_names(self.tensors)]

    def velocities(self) -> list[Tensor]:
        """One for each of the parameters; with momentum only."""
        return [self.tensors[name + n.VELOCITY] for name in n.parameter_names(self.tensors)]

    def __call__(self, x: Tensor, seeds: Tensor, *, training: bool, mode: str = "sample") -> Tensor:
        """The logits, run × class × batch, of images of run × channels × batch × height × width.

        ``training`` applies dropout, normalises by batch statistics, and lets backward update the
        weights of dense layers or their velocities (:func:`.updating_dense`). To evaluate, use a
        :meth:`frozen` copy.

        Args:
            seeds: for every layer that draws, one per run.
            mode: what a q-activation computes, one of ``MODES``.
        """
        assert self.is_frozen is not training, "train the network itself, evaluate a frozen one"
        draws = iter(seeds)
        for index, (layer, _) in enumerate(self.layers):
            match layer.kind:
                case "convolution":
                    weight, bias = self._of(index, "weight", "bias")
                    x = convolve(x, weight, bias, padding=KERNEL // 2 if layer.same else 0)
                case "dense":
                    velocity = self.tensors.get(f"{index}.weight{n.VELOCITY}")
                    weight, bias = self._of(index, "weight", "bias")
                    x = updating_dense(x, weight, bias, velocity, self.momentum)
                case "activation":
                    is_pooled = self.layers[index + 1][0].kind == "max-pool"
                    x = self._activate(x, next(draws), mode, is_pooled=is_pooled)
                case "batch-norm" if training:
                    x = normalise(x, *self._of(index, *n.BATCH_NORM_STATE))
                case "max-pool":
                    pass  # done with the activation before it
                case "flatten":
                    x = x.movedim(2, -1).flatten(1, -2)
                case "dropout":
                    seed = next(draws)
                    if self.dropout and training:
                        x = seeded_dropout(x, layer.probability, seed)
        return x

    @torch.no_grad()
    def frozen(self, runs: slice = slice(None)) -> "PackedNetwork":
        """A copy of some runs for evaluation, with batch normalisations folded into layers."""
        tensors = {name: value.detach()[runs] for name, value in self.tensors.items()}
        frozen = PackedNetwork(self.runs[runs], self.shape, tensors)
        frozen.is_frozen = True
        frozen.lam = self.lam[runs].clone()
        of_norm: list[Tensor] = []
        for index, (layer, _) in enumerate(self.layers):
            match layer.kind:
                case "batch-norm":
                    of_norm = frozen._of(index, *n.BATCH_NORM_STATE)
                case "convolution" | "dense" if of_norm:
                    assert not layer.same, "the zeros of padding are not shifted"
                    names = f"{index}.weight", f"{index}.bias"
                    folded = fold_batch_norm(*(tensors[name] for name in names), *of_norm)
                    tensors.update(zip(names, folded, strict=True))
                    of_norm = []
        return frozen

    def _of(self, index: int, *names: str) -> list[Tensor]:
        return [self.tensors[f"{index}.{name}"] for name in names]

    def _activate(self, x: Tensor, seed: Tensor, mode: str, *, is_pooled: bool = False) -> Tensor:
        def function(segment: Segment, means: Table | None) -> ByAutograd | ByKernel:
            runs, row = segment.runs, segment.activation
            if segment.kind == "base":
                of_base = base_row(row)
                if is_fused(x.device.type, x.dtype, of_base[0]):
                    return ByKernel(of_base, seed[runs], self.zero[runs], self.zero[:1])
                return ByAutograd(row)
            if segment.kind == "mean" or (segment.kind == "q" and mode == "mean"):
                assert means is not None, "set_means comes first"
                return ByAutograd(lambda x: look_up(x, means))
            # With λ = φ = 0 the kernel that draws computes the limit.
            is_limit = segment.kind == "limit" or mode == "limit"
            lam, phi = (self.zero, self.zero[:1]) if is_limit else (self.lam, self.phi)
            if kernel_row(row)[0]:
                return ByKernel(kernel_row(row), seed[runs], lam[runs], phi)
            group = (-1,) + (1,) * (x.dim() - 1)
            lam, seeds = lam[runs].view(group), seed[runs].view(group)
            return ByAutograd(lambda x: sample(x, row, lam, phi, seed=seeds))

        pairs = zip(self.segments, self.means, strict=True)
        parts = [(segment.runs, function(segment, means)) for segment, means in pairs]
        return activate_and_pool(x, parts) if is_pooled else activate(x, parts)

    def set_lam(self, lam: Sequence[float]) -> None:
        """Sets λ of every run, for the mode ``"sample"``."""
        self.lam.copy_(torch.tensor(lam, dtype=self.lam.dtype))

    def set_means(self, tables: MeanTables, lam: Sequence[float], kind: str) -> None:
        """Sets the tables of the settings of a kind, for the same λ.

        Those of the kind ``"mean"`` are always needed, and those of ``"q"`` in the mode ``"mean"``.
        """
        for index, segment in enumerate(self.segments):
            if segment.kind == kind:
                table = tables.rows(segment.activation, lam[segment.runs])
                if (kept := self.means[index]) is None:
                    self.means[index] = table
                else:  # in place, because a CUDA graph reads it
                    kept[0].copy_(table[0])


def evaluation_batch_size(network: str, shape: Sequence[int]) -> int:
    """How many images are evaluated at once. The draws depend on it, so it ignores free memory."""
    fitting = 2 ** (_EVALUATED_ELEMENTS // largest_layer(network, shape)).bit_length() // 2
    return min(fitting, _EVALUATED_IMAGES)  # more would not fit into a CPU's caches


def largest_layer(network: str, shape: Sequence[int]) -> int:
    """The number of elements that the largest layer takes in, for one image."""
    return max(math.prod(size) for _, size in n.layers(network, shape))
