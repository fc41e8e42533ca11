"""The networks against the paper's list of layers, and the modules made of them."""

import math

import pytest
import torch

from qneurons.activations import resolve
from qneurons.study.networks import NETWORKS, build, initial_state, layers

# As printed, layer by layer, and without batch normalisation: c = 3×3 convolution, a = activation,
# n = batch normalisation, p = 2×2 max-pooling, f = flatten, d = dense, o = optional dropout.
# Soft-max belongs to the loss.
PRINTED = {
    "mnist-cnn": "c32 a n c32 a p n c64 a n c64 a p f n d512 a n o0.2 d10",
    "mnist-mlp": "d256 a n o0.2 d256 a n o0.2 d10",
    "cifar-cnn": "c32 a c32 a p o0.2 c64 a c64 a p o0.2 f d512 a o0.1 d10",
    "mnist-cnn-no-norm": "c32 a c32 a p c64 a c64 a p f d512 a o0.2 d10",
    "mnist-mlp-no-norm": "d256 a o0.2 d256 a o0.2 d10",
}
SHAPES = {name: (3, 32, 32) if name == "cifar-cnn" else (1, 28, 28) for name in PRINTED}
LETTERS = {
    "convolution": "c",
    "activation": "a",
    "batch-norm": "n",
    "max-pool": "p",
    "flatten": "f",
    "dense": "d",
    "dropout": "o",
}


def written(layer):
    number = layer.features or layer.probability or ""
    return f"{LETTERS[layer.kind]}{number}"


@pytest.mark.parametrize("network", NETWORKS)
def test_layers_are_those_of_the_paper(network):
    ours = " ".join(map(written, NETWORKS[network]))
    assert ours.removeprefix("f ") == PRINTED[network]  # an MLP takes its images flattened


def test_padding_is_that_of_the_keras_examples():
    padded = {
        name: [x.same for x in net if x.kind == "convolution"] for name, net in NETWORKS.items()
    }
    assert padded == {
        "mnist-cnn": [False] * 4,
        "mnist-mlp": [],
        "cifar-cnn": [True, False, True, False],
        "mnist-cnn-no-norm": [False] * 4,
        "mnist-mlp-no-norm": [],
    }


# Counted by hand from the layers as printed.
@pytest.mark.parametrize(
    ("network", "num_parameters"),
    [("mnist-mlp", 270_346), ("mnist-cnn", 598_250), ("cifar-cnn", 1_250_858)],
)
def test_number_of_parameters(network, num_parameters):
    model = build(network, SHAPES[network], resolve("elu"))
    assert sum(p.numel() for p in model.parameters()) == num_parameters


@pytest.mark.parametrize("network", NETWORKS)
@pytest.mark.parametrize("kind", ["base", "limit", "q"])
def test_modules_follow_the_description(network, kind):
    shape = SHAPES[network]
    model = build(network, shape, resolve("tanh"), kind, dropout=True)
    sizes = [size for _, size in layers(network, shape)]
    x = torch.rand(2, *shape)
    for module, size in zip(model, sizes, strict=True):
        assert x.shape[1:] == size
        x = module(x)
    assert x.shape == (2, 10)


@pytest.mark.parametrize("network", NETWORKS)
def test_initial_state_is_glorots(network):
    shape = SHAPES[network]
    state = initial_state(network, shape, seed=3)
    model = build(network, shape, resolve("elu"))
    missing, unexpected = model.load_state_dict(state, strict=False)
    assert not unexpected
    assert all(name.endswith("num_batches_tracked") for name in missing)
    for module in model:
        if isinstance(module, torch.nn.Linear | torch.nn.Conv2d):
            weight = module.weight.detach()
            fan_in = weight[0].numel()
            fan_out = weight.numel() // weight.shape[1]
            bound = math.sqrt(6 / (fan_in + fan_out))
            assert weight.abs().max() <= bound
            assert weight.std() == pytest.approx(bound / math.sqrt(3), rel=0.15)
            assert not module.bias.any()


@pytest.mark.parametrize("network", ["mnist-cnn", "mnist-mlp"])
def test_weights_are_the_same_without_normalisation(network):
    states = [initial_state(name, (1, 28, 28), seed=3) for name in (network, f"{network}-no-norm")]
    ours, theirs = ([v for v in state.values() if v.dim() > 1] for state in states)
    assert len(ours) == len(theirs) == (6 if network == "mnist-cnn" else 3)
    assert all(map(torch.equal, ours, theirs))


def test_the_seed_makes_the_weights():
    same, again, other = (initial_state("mnist-mlp", (1, 28, 28), seed) for seed in (1, 1, 2))
    assert all(torch.equal(same[name], again[name]) for name in same)
    assert not torch.equal(same["1.weight"], other["1.weight"])
    try:
        torch.set_default_dtype(torch.float64)
        wide = initial_state("mnist-mlp", (1, 28, 28), seed=1)
    finally:
        torch.set_default_dtype(torch.float32)
    for name, value in same.items():
        torch.testing.assert_close(wide[name], value, rtol=0, atol=0)


def test_dropout_is_optional():
    shape = SHAPES["mnist-mlp"]
    with_, without = (build("mnist-mlp", shape, resolve("elu"), dropout=d) for d in (True, False))
    assert sum(isinstance(m, torch.nn.Dropout) for m in with_) == 2
    assert not any(isinstance(m, torch.nn.Dropout) for m in without)
