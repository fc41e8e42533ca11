"""The paper's networks: layer by layer as data, and as ordinary modules."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from qneurons import QActivation
from qneurons.activations import Activation as Row
from qneurons.functional import q_limit
from qneurons.study.data import NUM_CLASSES

KERNEL = 3
POOL = 2
MOMENTUM, EPS = 0.01, 1e-3  # of batch normalisation; Keras calls this momentum 0.99


@dataclass(frozen=True)
class Convolution:
    """3×3 kernels."""

    features: int
    same: bool = False  # padding: else valid


@dataclass(frozen=True)
class Dense:
    features: int


@dataclass(frozen=True)
class Activation:
    pass


@dataclass(frozen=True)
class BatchNorm:
    pass


@dataclass(frozen=True)
class MaxPool:
    pass


@dataclass(frozen=True)
class Flatten:
    pass


@dataclass(frozen=True)
class Dropout:
    probability: float


Layer = Convolution | Dense | Activation | BatchNorm | MaxPool | Flatten | Dropout

# A dropout layer is in force where a run has dropout.
NETWORKS: dict[str, tuple[Layer, ...]] = {
    "mnist-cnn": (
        *(Convolution(32), Activation(), BatchNorm()),
        *(Convolution(32), Activation(), MaxPool(), BatchNorm()),
        *(Convolution(64), Activation(), BatchNorm()),
        *(Convolution(64), Activation(), MaxPool(), Flatten(), BatchNorm()),
        *(Dense(512), Activation(), BatchNorm(), Dropout(0.2)),
        Dense(NUM_CLASSES),
    ),
    "mnist-mlp": (
        Flatten(),
        *(Dense(256), Activation(), BatchNorm(), Dropout(0.2)),
        *(Dense(256), Activation(), BatchNorm(), Dropout(0.2)),
        Dense(NUM_CLASSES),
    ),
    "cifar-cnn": (
        *(Convolution(32, same=True), Activation()),
        *(Convolution(32), Activation(), MaxPool(), Dropout(0.2)),
        *(Convolution(64, same=True), Activation()),
        *(Convolution(64), Activation(), MaxPool(), Dropout(0.2)),
        Flatten(),
        *(Dense(512), Activation(), Dropout(0.1)),
        Dense(NUM_CLASSES),
    ),
}


def layers(network: str, shape: Sequence[int]) -> Iterator[tuple[Layer, tuple[int, ...]]]:
    """Every layer with the shape of its input for one image of the given channels × H × W."""
    size = tuple(shape)
    for layer in NETWORKS[network]:
        yield layer, size
        match layer:
            case Convolution():
                loss = 0 if layer.same else KERNEL - 1
                size = layer.features, size[1] - loss, size[2] - loss
            case MaxPool():
                size = size[0], size[1] // POOL, size[2] // POOL
            case Flatten():
                size = (math.prod(size),)
            case Dense():
                size = (layer.features,)


def initial_state(network: str, shape: Sequence[int], seed: int) -> dict[str, Tensor]:
    """Glorot-uniform weights and zero biases as a state_dict in float32, drawn on the CPU."""
    generator = torch.Generator().manual_seed(seed)
    state: dict[str, Tensor] = {}
    for index, (layer, size) in enumerate(layers(network, shape)):
        match layer:
            case Dense() | Convolution():
                kernel = (KERNEL, KERNEL) if isinstance(layer, Convolution) else ()
                fan_in, fan_out = (n * math.prod(kernel) for n in (size[0], layer.features))
                weight = torch.rand(
                    layer.features, size[0], *kernel, generator=generator, dtype=torch.float32
                )
                state[f"{index}.weight"] = (2 * weight - 1) * math.sqrt(6 / (fan_in + fan_out))
                state[f"{index}.bias"] = torch.zeros(layer.features, dtype=torch.float32)
            case BatchNorm():
                for name, value in BATCH_NORM_STATE.items():
                    state[f"{index}.{name}"] = torch.full((size[0],), value, dtype=torch.float32)
    return state


BATCH_NORM_STATE = {"weight": 1.0, "bias": 0.0, "running_mean": 0.0, "running_var": 1.0}


class Limit(nn.Module):
    """f'(x)x, to which a q-activation tends as its noise vanishes."""

    def __init__(self, activation: Row) -> None:
        super().__init__()
        self.activation = activation

    def forward(self, x: Tensor) -> Tensor:
        return q_limit(x, self.activation)


class Plain(nn.Module):
    """f itself."""

    def __init__(self, activation: Row) -> None:
        super().__init__()
        self.activation = activation

    def forward(self, x: Tensor) -> Tensor:
        return self.activation(x)


def build(
    network: str,
    shape: Sequence[int],
    activation: Row,
    kind: str = "base",
    *,
    dropout: bool = False,
    phi: float = 1e-3,
) -> nn.Sequential:
    """A network of the paper as an ordinary module, which takes batch × channels × H × W.

    Args:
        network: a name in ``NETWORKS``.
        shape: channels, height and width of an image.
        activation: a row of the table.
        kind: ``"base"`` for f itself, ``"limit"`` for f'(x)x, ``"q"`` for the q-activation, whose
            λ a :class:`~qneurons.LambdaScheduler` sets.
        dropout: whether the optional dropout layers are there; else they do nothing.
        phi: φ of the q-activations.
    """
    chosen = {
        "base": lambda: Plain(activation),
        "limit": lambda: Limit(activation),
        "q": lambda: QActivation(activation, phi=phi, eval_mode="sample"),
    }[kind]
    modules: list[nn.Module] = []
    for layer, size in layers(network, shape):
        match layer:
            case Convolution():
                padding = "same" if layer.same else "valid"
                modules.append(nn.Conv2d(size[0], layer.features, KERNEL, padding=padding))
            case Dense():
                modules.append(nn.Linear(size[0], layer.features))
            case Activation():
                modules.append(chosen())
            case BatchNorm():
                norm = nn.BatchNorm1d if len(size) == 1 else nn.BatchNorm2d
                modules.append(norm(size[0], EPS, MOMENTUM))
            case MaxPool():
                modules.append(nn.MaxPool2d(POOL))
            case Flatten():
                modules.append(nn.Flatten())
            case Dropout():
                modules.append(nn.Dropout(layer.probability) if dropout else nn.Identity())
    return nn.Sequential(*modules)
