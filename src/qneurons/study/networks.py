"""The networks of the paper, as lists of layers and as ordinary modules."""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal

import torch
from torch import Tensor, nn

from qneurons import QActivation
from qneurons.activations import Activation
from qneurons.functional import q_limit
from qneurons.study.data import NUM_CLASSES
from qneurons.study.runs import NO_NORM

KERNEL = 3
POOL = 2
MOMENTUM, EPS = 0.01, 1e-3  # of batch normalisation; Keras calls this momentum 0.99
VELOCITY = ".velocity"  # ends the name of a parameter's velocity in the state of a pack
BATCH_NORM_STATE = {"weight": 1.0, "bias": 0.0, "running_mean": 0.0, "running_var": 1.0}


@dataclass(frozen=True)
class Layer:
    """One layer of a network, as data."""

    kind: Literal[
        "convolution", "dense", "activation", "batch-norm", "max-pool", "flatten", "dropout"
    ]
    features: int = 0  # of a dense layer, or a convolution, whose kernels are 3×3
    same: bool = False  # padding of a convolution: "same", else "valid"
    probability: float = 0.0  # of dropout, which only runs with dropout have


_ACTIVATION, _NORM = Layer("activation"), Layer("batch-norm")
_POOL, _FLATTEN = Layer("max-pool"), Layer("flatten")
NETWORKS: dict[str, tuple[Layer, ...]] = {
    "mnist-cnn": (
        *(Layer("convolution", 32), _ACTIVATION, _NORM),
        *(Layer("convolution", 32), _ACTIVATION, _POOL, _NORM),
        *(Layer("convolution", 64), _ACTIVATION, _NORM),
        *(Layer("convolution", 64), _ACTIVATION, _POOL, _FLATTEN, _NORM),
        *(Layer("dense", 512), _ACTIVATION, _NORM, Layer("dropout", probability=0.2)),
        Layer("dense", NUM_CLASSES),
    ),
    "mnist-mlp": (
        _FLATTEN,
        *(Layer("dense", 256), _ACTIVATION, _NORM, Layer("dropout", probability=0.2)),
        *(Layer("dense", 256), _ACTIVATION, _NORM, Layer("dropout", probability=0.2)),
        Layer("dense", NUM_CLASSES),
    ),
    "cifar-cnn": (
        *(Layer("convolution", 32, same=True), _ACTIVATION),
        *(Layer("convolution", 32), _ACTIVATION, _POOL, Layer("dropout", probability=0.2)),
        *(Layer("convolution", 64, same=True), _ACTIVATION),
        *(Layer("convolution", 64), _ACTIVATION, _POOL, Layer("dropout", probability=0.2)),
        _FLATTEN,
        *(Layer("dense", 512), _ACTIVATION, Layer("dropout", probability=0.1)),
        Layer("dense", NUM_CLASSES),
    ),
}
NETWORKS |= {
    name + NO_NORM: tuple(layer for layer in printed if layer != _NORM)
    for name, printed in NETWORKS.items()
    if _NORM in printed
}


def layers(network: str, shape: Sequence[int]) -> Iterator[tuple[Layer, tuple[int, ...]]]:
    """Every layer with the shape of its input, for images of channels × H × W."""
    size = tuple(shape)
    for layer in NETWORKS[network]:
        yield layer, size
        match layer.kind:
            case "convolution":
                loss = 0 if layer.same else KERNEL - 1
                size = layer.features, size[1] - loss, size[2] - loss
            case "max-pool":
                size = size[0], size[1] // POOL, size[2] // POOL
            case "flatten":
                size = (math.prod(size),)
            case "dense":
                size = (layer.features,)


def initial_state(network: str, shape: Sequence[int], seed: int) -> dict[str, Tensor]:
    """A state_dict of Glorot-uniform weights and zero biases, in float32, drawn on the CPU."""
    generator = torch.Generator().manual_seed(seed)
    state: dict[str, Tensor] = {}
    for index, (layer, size) in enumerate(layers(network, shape)):
        match layer.kind:
            case "dense" | "convolution":
                kernel = (KERNEL, KERNEL) if layer.kind == "convolution" else ()
                fan_in, fan_out = (n * math.prod(kernel) for n in (size[0], layer.features))
                weight = torch.rand(
                    layer.features, size[0], *kernel, generator=generator, dtype=torch.float32
                )
                state[f"{index}.weight"] = (2 * weight - 1) * math.sqrt(6 / (fan_in + fan_out))
                state[f"{index}.bias"] = torch.zeros(layer.features, dtype=torch.float32)
            case "batch-norm":
                for name, value in BATCH_NORM_STATE.items():
                    state[f"{index}.{name}"] = torch.full((size[0],), value, dtype=torch.float32)
    return state


def parameter_names(names: Iterable[str]) -> list[str]:
    """Those names of a state that are trained."""
    return [name for name in names if ".running_" not in name and not name.endswith(VELOCITY)]


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

    The activation is f itself (kind ``"base"``), f'(x)x (``"limit"``) or the q-activation
    (``"q"``), whose λ a :class:`~qneurons.LambdaScheduler` sets. Without ``dropout`` the dropout
    layers are identities.
    """
    chosen = {
        "base": lambda: Elementwise(activation),
        "limit": lambda: Elementwise(partial(q_limit, activation=activation)),
        "q": lambda: QActivation(activation, phi=phi, eval_mode="sample"),
    }[kind]
    modules: list[nn.Module] = []
    for layer, size in layers(network, shape):
        match layer.kind:
            case "convolution":
                padding = "same" if layer.same else "valid"
                modules.append(nn.Conv2d(size[0], layer.features, KERNEL, padding=padding))
            case "dense":
                modules.append(nn.Linear(size[0], layer.features))
            case "activation":
                modules.append(chosen())
            case "batch-norm":
                norm = nn.BatchNorm1d if len(size) == 1 else nn.BatchNorm2d
                modules.append(norm(size[0], EPS, MOMENTUM))
            case "max-pool":
                modules.append(nn.MaxPool2d(POOL))
            case "flatten":
                modules.append(nn.Flatten())
            case "dropout":
                modules.append(nn.Dropout(layer.probability) if dropout else nn.Identity())
    return nn.Sequential(*modules)
