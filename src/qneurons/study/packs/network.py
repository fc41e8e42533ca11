"""Many runs as one network: parameters stacked by run, and every draw a function of a run's seed.

A tensor is run × channels × batch (× height × width), so that a run is one contiguous piece, of
which batch normalisation sees rows and the q-activation one group of elements.
"""

from collections.abc import Sequence
from statistics import NormalDist

import torch
from torch import Tensor

from qneurons.activations import resolve
from qneurons.functional import sample
from qneurons.kernels import kernel_row
from qneurons.study import networks as n
from qneurons.study.networks import KERNEL
from qneurons.study.packs.layers import absorb, connect, convolve, normalise, pool
from qneurons.study.packs.means import Means, MeanTable, look_up
from qneurons.study.packs.segments import ByAutograd, Draw, Elementwise, Segment, activate, segments
from qneurons.study.runs import Run

MODES = ("sample", "limit", "mean")


# --- the network ----------------------------------------------------------------------------------


class PackedNetwork:
    """A network of the paper for many runs.

    Args:
        runs: of one network, with or without dropout alike.
        shape: channels, height and width of an image.
        tensors: of every name in a state_dict of :func:`~qneurons.study.networks.build` the tensors
            of all runs, stacked.

    Attributes:
        lam: λ of every run, which a CUDA graph reads when it is replayed.
        num_draws: how many layers draw, each with a seed of its own for every run.
    """

    def __init__(
        self, runs: Sequence[Run], shape: Sequence[int], tensors: dict[str, Tensor]
    ) -> None:
        self.runs, self.shape, self.is_frozen = tuple(runs), shape, False
        self.layers = tuple(n.layers(runs[0].network, shape))
        self.segments = segments(runs)
        self.dropout = runs[0].dropout
        self.tensors = tensors
        some = next(iter(tensors.values()))
        self.lam = torch.zeros(len(runs), dtype=some.dtype, device=some.device)
        self.phi = torch.full((1,), runs[0].phi, dtype=some.dtype, device=some.device)
        self.zero = torch.zeros_like(self.lam)
        self.means: list[Means | None] = [None] * len(self.segments)
        drawing = (n.ActivationLayer, n.DropoutLayer)
        self.num_draws = sum(isinstance(layer, drawing) for layer, _ in self.layers)

    def parameters(self) -> list[Tensor]:
        return [value for name, value in self.tensors.items() if ".running_" not in name]

    def __call__(self, x: Tensor, seeds: Tensor, *, training: bool, mode: str = "sample") -> Tensor:
        """The logits, run × class × batch, of images of run × channels × batch × height × width.

        In training, backward changes the weights of dense layers (:func:`.layers.connect`).

        Args:
            x: the images.
            seeds: of every layer that draws, for every run.
            training: whether dropout is in force, and batch statistics normalise; else it must be
                :meth:`frozen`.
            mode: what a q-activation does: ``"sample"``, ``"limit"`` or ``"mean"``.
        """
        assert self.is_frozen is not training, "train the network itself, evaluate a frozen one"
        draws = iter(seeds)
        for index, (layer, _) in enumerate(self.layers):
            match layer:
                case n.ConvolutionLayer():
                    weight, bias = self._of(index, "weight", "bias")
                    x = convolve(x, weight, bias, padding=KERNEL // 2 if layer.same else 0)
                case n.DenseLayer():
                    weight, bias = self._of(index, "weight", "bias")
                    x = connect(x, weight, bias)
                case n.ActivationLayer():
                    x = self._activate(x, next(draws), mode)
                case n.BatchNormLayer() if training:
                    x = normalise(x, *self._of(index, *n.BATCH_NORM_STATE))
                case n.MaxPoolLayer():
                    x = pool(x)
                case n.FlattenLayer():
                    x = x.movedim(2, -1).flatten(1, -2)
                case n.DropoutLayer():
                    seed = next(draws)
                    x = drop(x, layer.probability, seed) if self.dropout and training else x
        return x

    @torch.no_grad()
    def frozen(self, runs: slice = slice(None)) -> "PackedNetwork":
        """Some runs for evaluation, until their next step: layers absorb normalisations."""
        tensors = {name: value.detach()[runs] for name, value in self.tensors.items()}
        frozen = PackedNetwork(self.runs[runs], self.shape, tensors)
        frozen.is_frozen = True
        frozen.lam = self.lam[runs].clone()
        of_norm: list[Tensor] = []
        for index, (layer, _) in enumerate(self.layers):
            match layer:
                case n.BatchNormLayer():
                    of_norm = frozen._of(index, *n.BATCH_NORM_STATE)
                case n.ConvolutionLayer() | n.DenseLayer() if of_norm:
                    assert layer != n.ConvolutionLayer(layer.features, same=True), (
                        "padding is not shifted"
                    )
                    names = f"{index}.weight", f"{index}.bias"
                    absorbed = absorb(*(tensors[name] for name in names), *of_norm)
                    tensors.update(zip(names, absorbed, strict=True))
                    of_norm = []
        return frozen

    def _of(self, index: int, *names: str) -> list[Tensor]:
        return [self.tensors[f"{index}.{name}"] for name in names]

    def _activate(self, x: Tensor, seed: Tensor, mode: str) -> Tensor:
        def function(segment: Segment, means: Means | None) -> Elementwise:
            runs, row = segment.runs, segment.activation
            if segment.kind == "base":
                return ByAutograd(row)
            if segment.kind == "q" and mode == "mean":
                assert means is not None, "set_means comes first"
                return ByAutograd(lambda x: look_up(x, *means))
            # Without noise the draw is the limit, in one kernel.
            is_limit = segment.kind == "limit" or mode == "limit"
            lam, phi = (self.zero, self.zero[:1]) if is_limit else (self.lam, self.phi)
            if kernel_row(row)[0]:
                return Draw(row, seed[runs], lam[runs], phi)
            group = (-1,) + (1,) * (x.dim() - 1)
            lam, seeds = lam[runs].view(group), seed[runs].view(group)
            return ByAutograd(lambda x: sample(x, row, lam, phi, seed=seeds))

        pairs = zip(self.segments, self.means, strict=True)
        return activate(x, [(segment.runs, function(segment, means)) for segment, means in pairs])

    def set_lam(self, lam: Sequence[float]) -> None:
        """Sets λ of every run, for the mode ``"sample"``."""
        self.lam.copy_(torch.tensor(lam, dtype=self.lam.dtype))

    def set_means(self, table: MeanTable, lam: Sequence[float]) -> None:
        """Sets what the mode ``"mean"`` looks up, for the same λ."""
        self.means = [
            table.rows(segment.activation, lam[segment.runs]) if segment.kind == "q" else None
            for segment in self.segments
        ]


def drop(x: Tensor, probability: float, seed: Tensor) -> Tensor:
    """Dropout whose mask is a function of every run's seed.

    The mask is a q-ReLU at -1, which is 0 unless q < 0: with a λ for which this has the wanted
    probability, the q-activation's kernel draws it.
    """
    quantile = NormalDist().inv_cdf(probability)
    group = (-1,) + (1,) * (x.dim() - 1)
    with torch.no_grad():
        wide = torch.promote_types(x.dtype, torch.float32)
        lam = torch.full(seed.shape, -1 / quantile, dtype=wide, device=x.device)
        drawn = sample(
            torch.full_like(x, -1),
            resolve("relu"),
            lam.view(group),
            torch.zeros_like(lam[:1]),
            seed=seed.view(group),
        )
        kept = (drawn == 0).to(x.dtype).mul_(1 / (1 - probability))
    return x * kept
