"""The networks of the paper, as lists of layers and as ordinary modules."""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor, nn

from qneurons import QActivation
from qneurons.activations import Activation
from qneurons.functional import q_limit
from qneurons.study.data import NUM_CLASSES

KERNEL = 3
POOL = 2
MOMENTUM, EPS = 0.01, 1e-3  # of batch normalisation; Keras calls this momentum 0.99
BATCH_NORM_STATE = {"weight": 1.0, "bias": 0.0, "running_mean": 0.0, "running_var": 1.0}


@dataclass(frozen=True)
class Layer:
    """One layer of a network, as data."""


@dataclass(frozen=True)
class ConvolutionLayer(Layer):
    """3×3 kernels."""

    features: int
    same: bool = False  # padding: "same", else "valid"


@dataclass(frozen=True)
class DenseLayer(Layer):
    features: int


class ActivationLayer(Layer):
    """The activation that the run names, as its setting says."""


class BatchNormLayer(Layer):
    pass


class MaxPoolLayer(Layer):
    pass


class FlattenLayer(Layer):
    pass


@dataclass(frozen=True)
class DropoutLayer(Layer):
    """Only in runs with dropout."""

    probability: float


_ACTIVATION, _NORM, _POOL = ActivationLayer(), BatchNormLayer(), MaxPoolLayer()
NETWORKS: dict[str, tuple[Layer, ...]] = {
    "mnist-cnn": (
        *(ConvolutionLayer(32), _ACTIVATION, _NORM),
        *(ConvolutionLayer(32), _ACTIVATION, _POOL, _NORM),
        *(ConvolutionLayer(64), _ACTIVATION, _NORM),
        *(ConvolutionLayer(64), _ACTIVATION, _POOL, FlattenLayer(), _NORM),
        *(DenseLayer(512), _ACTIVATION, _NORM, DropoutLayer(0.2)),
        DenseLayer(NUM_CLASSES),
    ),
    "mnist-mlp": (
        FlattenLayer(),
        *(DenseLayer(256), _ACTIVATION, _NORM, DropoutLayer(0.2)),
        *(DenseLayer(256), _ACTIVATION, _NORM, DropoutLayer(0.2)),
        DenseLayer(NUM_CLASSES),
    ),
    "cifar-cnn": (
        *(ConvolutionLayer(32, same=True), _ACTIVATION),
        *(ConvolutionLayer(32), _ACTIVATION, _POOL, DropoutLayer(0.2)),
        *(ConvolutionLayer(64, same=True), _ACTIVATION),
        *(ConvolutionLayer(64), _ACTIVATION, _POOL, DropoutLayer(0.2)),
        FlattenLayer(),
        *(DenseLayer(512), _ACTIVATION, DropoutLayer(0.1)),
        DenseLayer(NUM_CLASSES),
    ),
}


def layers(network: str, shape: Sequence[int]) -> Iterator[tuple[Layer, tuple[int, ...]]]:
    """Every layer with the shape of its input, for images of channels × H × W."""
    size = tuple(shape)
    for layer in NETWORKS[network]:
        yield layer, size
        match layer:
            case ConvolutionLayer():
                loss = 0 if layer.same else KERNEL - 1
                size = layer.features, size[1] - loss, size[2] - loss
            case MaxPoolLayer():
                size = size[0], size[1] // POOL, size[2] // POOL
            case FlattenLayer():
                size = (math.prod(size),)
            case DenseLayer():
                size = (layer.features,)


def initial_state(network: str, shape: Sequence[int], seed: int) -> dict[str, Tensor]:
    """A state_dict of Glorot-uniform weights and zero biases, in float32, drawn on the CPU."""
    generator = torch.Generator().manual_seed(seed)
    state: dict[str, Tensor] = {}
    for index, (layer, size) in enumerate(layers(network, shape)):
        match layer:
            case DenseLayer() | ConvolutionLayer():
                kernel = (KERNEL, KERNEL) if isinstance(layer, ConvolutionLayer) else ()
                fan_in, fan_out = (n * math.prod(kernel) for n in (size[0], layer.features))
                weight = torch.rand(
                    layer.features, size[0], *kernel, generator=generator, dtype=torch.float32
                )
                state[f"{index}.weight"] = (2 * weight - 1) * math.sqrt(6 / (fan_in + fan_out))
                state[f"{index}.bias"] = torch.zeros(layer.features, dtype=torch.float32)
            case BatchNormLayer():
                for name, value in BATCH_NORM_STATE.items():
                    state[f"{index}.{name}"] = torch.full((size[0],), value, dtype=torch.float32)
    return state


class Elementwise(nn.Module):
    """Applies a function to its input."""

    def __init__(self, function: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Tensor) -> Tensor:
        return self.function(x)


def build(
    network: str,
    shape: Sequence[int],
    activation: Activation,
    kind: str = "base",
    *,
    dropout: bool = False,
    phi: float = 1e-3,
) -> nn.Sequential:
    """A network of the paper as a module for inputs of batch × channels × H × W.

    Args:
        network: a name in ``NETWORKS``.
        shape: channels, height and width of an image.
        activation: a row of the table.
        kind: ``"base"`` for f itself, ``"limit"`` for f'(x)x, ``"q"`` for the q-activation, whose
            λ a :class:`~qneurons.LambdaScheduler` sets.
        dropout: whether the dropout layers are active; else they are identities.
        phi: φ of the q-activations.
    """
    chosen = {
        "base": lambda: Elementwise(activation),
        "limit": lambda: Elementwise(partial(q_limit, activation=activation)),
        "q": lambda: QActivation(activation, phi=phi, eval_mode="sample"),
    }[kind]
    modules: list[nn.Module] = []
    for layer, size in layers(network, shape):
        match layer:
            case ConvolutionLayer():
                padding = "same" if layer.same else "valid"
                modules.append(nn.Conv2d(size[0], layer.features, KERNEL, padding=padding))
            case DenseLayer():
                modules.append(nn.Linear(size[0], layer.features))
            case ActivationLayer():
                modules.append(chosen())
            case BatchNormLayer():
                norm = nn.BatchNorm1d if len(size) == 1 else nn.BatchNorm2d
                modules.append(norm(size[0], EPS, MOMENTUM))
            case MaxPoolLayer():
                modules.append(nn.MaxPool2d(POOL))
            case FlattenLayer():
                modules.append(nn.Flatten())
            case DropoutLayer():
                modules.append(nn.Dropout(layer.probability) if dropout else nn.Identity())
    return nn.Sequential(*modules)
