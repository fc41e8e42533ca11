"""Streams of seeds, and the packed network against ordinary modules."""

import pytest
import torch

from qneurons import q_activation, q_mean
from qneurons.activations import register, resolve, unregister
from qneurons.mean_table import BOUND
from qneurons.study import networks
from qneurons.study.packs.means import MeanTables
from qneurons.study.packs.network import PackedNetwork, evaluation_batch_size
from qneurons.study.runs import Run


def run(setting="base", seed=0, network="mnist-mlp", activation="elu", dropout=False):
    return Run("digits", network, dropout, activation, setting, seed, 64, 0.05)


def packed(runs, shape):
    states = [networks.initial_state(r.network, shape, r.seed) for r in runs]
    tensors = {k: torch.stack([s[k] for s in states]).double() for k in states[0]}
    return PackedNetwork(runs, shape, tensors)


SHAPES = {"mnist-mlp": (1, 6, 6), "mnist-cnn": (1, 16, 16), "cifar-cnn": (3, 10, 10)}
SHAPES |= {f"{name}-no-norm": SHAPES[name] for name in ("mnist-mlp", "mnist-cnn")}


@pytest.mark.parametrize("network", networks.NETWORKS)
@pytest.mark.parametrize("training", [False, True])
def test_packed_networks_are_the_modules_side_by_side(network, training):
    shape = SHAPES[network]
    kinds = [("base", "elu"), ("base", "tanh"), ("limit", "tanh")]
    runs = [run(k, seed, network, a) for seed, (k, a) in enumerate(kinds)]
    net = packed(runs, shape)
    x = torch.randn(3, shape[0], 4, *shape[1:], dtype=torch.float64)
    before = {k: v.clone() for k, v in net.tensors.items()}
    whole = net if training else net.frozen()
    logits = whole(x, torch.zeros(net.num_draws, 3, dtype=torch.int64), training=training)
    for i, (kind, activation) in enumerate(kinds):
        module = networks.build(network, shape, resolve(activation), kind).double().train(training)
        module.load_state_dict({k: v[i] for k, v in before.items()}, strict=False)
        torch.testing.assert_close(logits[i].T, module(x[i].transpose(0, 1)))
        for name, value in module.state_dict().items():
            if not name.endswith("tracked"):
                torch.testing.assert_close(net.tensors[name][i], value)


def test_some_runs_are_frozen_as_all_are():
    shape = SHAPES["mnist-cnn"]
    runs = [run(s, seed, "mnist-cnn") for seed, s in enumerate(["base", "limit", "c0.5", "a1"])]
    net = packed(runs, shape)
    net.set_lam([0.0, 0.0, 0.5, 1.0])
    x = torch.randn(4, shape[0], 3, *shape[1:], dtype=torch.float64)
    seeds = torch.arange(4 * net.num_draws).view(net.num_draws, 4)
    some = slice(1, 3)
    all_of_them = net.frozen()(x, seeds, training=False)
    found = net.frozen(some)(x[some], seeds[:, some], training=False)
    torch.testing.assert_close(found, all_of_them[some])


@pytest.mark.parametrize("network", networks.NETWORKS)
def test_gradients_of_a_frozen_network_change_nothing(network):
    shape = SHAPES[network]
    net = packed([run(seed=0, network=network)], shape)
    for value in net.parameters():
        value.requires_grad_()
    before = {name: value.clone() for name, value in net.tensors.items()}
    x = torch.randn(1, shape[0], 3, *shape[1:], dtype=torch.float64, requires_grad=True)
    seeds = torch.zeros(net.num_draws, 1, dtype=torch.int64)
    (grad,) = torch.autograd.grad(net.frozen()(x, seeds, training=False).sum(), x)
    assert grad.any()
    assert all(torch.equal(value, before[name]) for name, value in net.tensors.items())


@pytest.mark.parametrize("network", networks.NETWORKS)
def test_every_normalisation_can_be_folded_into_the_layer_after_it(network):
    layers = [layer for layer in networks.NETWORKS[network] if layer.kind != "dropout"]
    for layer, following in zip(layers, [*layers[1:], None], strict=True):
        if layer.kind == "batch-norm":
            assert following.kind == "dense" or (
                following.kind == "convolution" and not following.same
            )


@pytest.mark.parametrize("network", networks.NETWORKS)
def test_every_pooling_follows_an_activation(network):
    """Because both are one step of a pack."""
    kinds = [layer.kind for layer in networks.NETWORKS[network]]
    assert all(kinds[i - 1] == "activation" for i, kind in enumerate(kinds) if kind == "max-pool")


def test_a_row_without_a_kernel_of_its_own():
    register("bend", lambda x: torch.nn.functional.elu(x))  # as the table's, but by autograd
    try:
        nets = [
            packed([run("c0.5", s, activation=a) for s in (0, 1)], (1, 4, 4))
            for a in ("elu", "bend")
        ]
        results = []
        for net in nets:
            net.set_lam([0.5, 0.7])
            x = torch.linspace(-3, 3, 30, dtype=torch.float64).view(2, 3, 5).requires_grad_()
            out = net._activate(x, torch.tensor([3, 4]), "sample")
            results.append((out, *torch.autograd.grad(out.sum(), x)))
        for ours, expected in zip(*reversed(results), strict=True):
            torch.testing.assert_close(ours, expected)
    finally:
        unregister("bend")


def test_modes():
    net = packed([run("c0.5"), run("c0.5", 1)], (1, 4, 4))
    net.set_lam([0.5, 0.5])
    x = torch.randn(2, 3, 5, dtype=torch.float64)
    seed = torch.tensor([3, 4])
    sampled = net._activate(x, seed, "sample")
    lam = torch.full((2, 1, 1), 0.5, dtype=torch.float64)
    expected = q_activation(x, "elu", lam, 1e-3, seed=seed.view(2, 1, 1))
    torch.testing.assert_close(sampled, expected)
    expected = q_activation(x, "elu", training=False)
    torch.testing.assert_close(net._activate(x, seed, "limit"), expected)
    net.set_means(MeanTables(1e-3, x), [0.5, 0.7], "q")
    found = net._activate(x, seed, "mean")
    for i, lam in enumerate([0.5, 0.7]):
        expected = q_activation(x[i], "elu", lam, training=False, eval_mode="mean")
        torch.testing.assert_close(found[i], expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("activation", ["tanh", "relu", "elu", "softplus"])
def test_the_mean_and_its_gradient(activation):
    net = packed([run("m5", seed, activation=activation) for seed in (0, 1)], (1, 4, 4))
    lams, seeds = [5.0, 0.1], torch.tensor([3, 4])
    x = torch.linspace(-6, 6, 400).expand(2, 5, 400).contiguous().requires_grad_()
    net.set_means(MeanTables(1e-3, x), lams, "mean")
    found = net._activate(x, seeds, "sample")
    (slope,) = torch.autograd.grad(found.sum(), x)
    for mode in ("limit", "mean"):
        assert torch.equal(net._activate(x, seeds, mode), found)
    wide = x.detach().double()
    step = 1e-4
    for i, lam in enumerate(lams):
        low, exact, high = (q_mean(wide[i] + s, activation, lam) for s in (-step, 0.0, step))
        scale = torch.maximum(exact.abs(), wide[i].abs().clamp(max=1))  # f' is at most 1
        assert ((found[i] - exact).abs() <= BOUND * scale).all()
        assert (slope[i] - (high - low) / (2 * step)).abs().max() < 1e-4


def test_tables_of_another_epoch_are_written_into_the_same_memory():
    net = packed([run("m5"), run("m5", 1)], (1, 4, 4))
    addresses = set()
    for lams in ([5.0, 2.0], [1.0, 0.5]):
        net.set_means(MeanTables(1e-3, net.lam), lams, "mean")
        [table] = net.means
        addresses.add(table[0].data_ptr())
    assert len(addresses) == 1
    x = torch.linspace(-3, 3, 30, dtype=torch.float64).view(2, 3, 5)
    found = net._activate(x, torch.tensor([3, 4]), "sample")
    for i, lam in enumerate(lams):
        expected = q_mean(x[i], "elu", lam)
        torch.testing.assert_close(found[i], expected, rtol=BOUND, atol=BOUND)


def test_parameters_are_what_is_trained():
    net = packed([run()], (1, 4, 4))
    trained = {id(value) for value in net.parameters()}
    others = {name for name, value in net.tensors.items() if id(value) not in trained}
    assert others == {"3.running_mean", "3.running_var", "7.running_mean", "7.running_var"}


@pytest.mark.parametrize(
    ("network", "shape", "num"),
    [
        ("mnist-mlp", (1, 28, 28), 1024),  # not more, by the CPU's caches
        ("mnist-cnn", (1, 28, 28), 256),  # layers of 32 × 26 × 26
        ("cifar-cnn", (3, 32, 32), 256),  # 32 × 32 × 32: 2^23 elements in all
    ],
)
def test_how_many_images_are_evaluated_at_once_is_fixed(network, shape, num):
    """Else the draws of old stores' evaluations would not be repeated."""
    assert evaluation_batch_size(network, shape) == num
