"""Training: a pack against the same runs alone, against ordinary modules, and resumed."""

import dataclasses
import math
from functools import partial
from itertools import product

import pytest
import torch
import torch.nn.functional as F

from qneurons import q_mean
from qneurons.activations import resolve
from qneurons.study.data import NUM_DRAWS, Dataset, move, parse_augmentation
from qneurons.study.networks import Elementwise, build
from qneurons.study.packs import Pack
from qneurons.study.packs.network import MODES
from qneurons.study.packs.randomness import orders, stream, uniforms
from qneurons.study.runs import Run

CPU = torch.device("cpu")
SHAPES = {"mnist-mlp": (1, 8, 8), "mnist-cnn": (1, 16, 16), "cifar-cnn": (3, 10, 10)}
AUGMENT = "rotation=30 shift=0.1 shear=10 zoom=0.2 flip=both"
PROTOCOL = {"momentum": 0.5, "augment": AUGMENT, "held_out": 8}


def data(shape=(1, 8, 8), num=44):
    generator = torch.Generator().manual_seed(0)
    images = torch.randint(256, (num + 10, *shape), dtype=torch.uint8, generator=generator)
    labels = torch.randint(10, (num + 10,), generator=generator)
    return Dataset("random", images[:num], labels[:num], images[num:], labels[num:], "0" * 16)


def runs(
    settings, network="mnist-mlp", seeds=(0,), dropout=False, activations=("elu",), **protocol
):
    return [
        Run("random", network, dropout, activation, setting, seed, 16, 0.05, 1e-3, **protocol)
        for activation in activations
        for setting in settings
        for seed in seeds
    ]


def train(of_pack, dataset, epochs=2, precision="fp64", device=CPU, **options):
    pack = Pack(of_pack, dataset, device=device, precision=precision, **options)
    for _ in range(epochs - pack.epoch):
        records = pack.train_epoch()
    return pack, records


def numbers(record):
    """Without those that were not recorded, which are NaN and equal to nothing."""
    values = dataclasses.asdict(record).items()
    return [v for k, v in values if k not in ("run", "seconds") and v == v]


@pytest.mark.parametrize(
    ("network", "epochs"), [("mnist-mlp", 5), ("mnist-cnn", 1), ("cifar-cnn", 1)]
)
@pytest.mark.parametrize("dropout", [False, True])
def test_a_run_in_a_pack_is_the_run_alone(network, epochs, dropout):
    settings, every = ["base", "a5"], 3  # one of each setting
    if network == "mnist-mlp":
        settings, every = ["base", "n0.01", "limit", "m5", "a5"], 2
    dataset = data(SHAPES[network])
    together = runs(settings, network, (3,), dropout, ("elu", "tanh"))
    pack, records = train(together, dataset, epochs)
    for i in range(0, len(together), every):
        alone, [record] = train(together[i : i + 1], dataset, epochs)
        for name, value in alone.state().items():
            torch.testing.assert_close(pack.state()[name][i], value[0], rtol=1e-9, atol=1e-9)
        assert numbers(records[i]) == pytest.approx(numbers(record), rel=1e-9)


@pytest.mark.parametrize("network", ["mnist-mlp", "mnist-cnn-no-norm", "cifar-cnn"])
def test_a_run_of_another_protocol_in_a_pack_is_the_run_alone(network):
    dataset = data(SHAPES[network.removesuffix("-no-norm")])
    together = runs(["base", "n0.01", "c0.1"], network, (3, 4), True, **PROTOCOL)
    pack, records = train(together, dataset, 1)
    for i in (3, 4):  # noise on the gradients, and q; of one seed and of the other
        alone, [record] = train(together[i : i + 1], dataset, 1)
        for name, value in alone.state().items():
            torch.testing.assert_close(pack.state()[name][i], value[0], rtol=1e-9, atol=1e-9)
        assert numbers(records[i]) == pytest.approx(numbers(record), rel=1e-9)


def test_learning_rates_and_moves_may_be_mixed():
    own = [
        {"learning_rate": 0.05, "augment": "shift=0.1"},
        {"learning_rate": 0.2, "augment": "shift=0.1"},
        {"learning_rate": 0.2, "learning_rate_decay": 0.1, "augment": "rotation=30 flip=both"},
    ]
    together = [
        dataclasses.replace(run, **changes)
        for changes in own
        for run in runs(["base", "n0.01", "c0.1"], seeds=(3, 4))
    ]
    pack, records = train(together, data(), 2)
    assert len(pack.moves) == 2 * 2  # of two seeds, in two ways
    ends = set()
    for i in (0, 7, 10, 15, 17):  # n0.01 at 7 and 15, and c0.1 at 10 and 17
        alone, [record] = train(together[i : i + 1], data(), 2)
        for name, value in alone.state().items():
            torch.testing.assert_close(pack.state()[name][i], value[0], rtol=1e-9, atol=1e-9)
        assert numbers(records[i]) == pytest.approx(numbers(record), rel=1e-9)
        ends.add(record.train_loss)
    assert len(ends) == 5


@pytest.mark.parametrize("network", ["mnist-mlp", "mnist-mlp-no-norm", "cifar-cnn"])
def test_a_run_of_another_protocol_is_what_an_ordinary_loop_gives(network):
    """Momentum as in Keras, images moved one by one, the last of them held out."""
    shape = SHAPES[network.removesuffix("-no-norm")]
    dataset = data(shape)
    [run] = runs(["base"], network, (5,), **PROTOCOL)
    pack = Pack([run], dataset, device=CPU, precision="fp64")
    model = build(network, shape, resolve("elu")).double()
    model.load_state_dict({k: v[0] for k, v in pack.state().items()}, strict=False)
    velocities = [torch.zeros_like(parameter) for parameter in model.parameters()]
    images, labels = dataset.x_train.double() / 255, dataset.y_train
    rate = run.learning_rate
    for epoch in (1, 2):
        order = orders(torch.tensor([stream(run.seed, "order", epoch)]), 36)[0]
        draws = uniforms(stream(run.seed, "augmentation", epoch), 36, NUM_DRAWS, CPU)
        matrices = parse_augmentation(AUGMENT).matrices(draws)
        for batch, own in zip(order.split(16), matrices.split(16), strict=True):
            loss = F.cross_entropy(model(move(images[batch], own)), labels[batch])
            gradients = torch.autograd.grad(loss, list(model.parameters()))
            with torch.no_grad():
                for parameter, v, gradient in zip(
                    model.parameters(), velocities, gradients, strict=True
                ):
                    v.copy_(0.5 * v - rate * gradient)
                    parameter += v
            rate *= 1 - run.learning_rate_decay
        [record] = pack.train_epoch()
    state = pack.state()
    for (name, parameter), v in zip(model.named_parameters(), velocities, strict=True):
        torch.testing.assert_close(state[name][0], parameter.detach(), rtol=1e-9, atol=1e-9)
        torch.testing.assert_close(state[f"{name}.velocity"][0], v, rtol=1e-9, atol=1e-9)
    model.eval()
    with torch.no_grad():  # the images are as they were
        losses = F.cross_entropy(model(images), labels, reduction="none")
    assert record.train_loss == pytest.approx(losses[:36].mean().item(), rel=1e-9)
    assert record.test_loss == pytest.approx(losses[36:].mean().item(), rel=1e-9)


def test_images_move_by_seed_and_epoch_whatever_the_setting():
    of_pack = runs(["base", "c0.1"], seeds=(0, 1), augment="shift=0.1")
    pack = Pack(of_pack, data(), device=CPU, precision="fp32")
    pack._begin(1)
    first = pack.moves.clone()
    assert first.shape == (2, 44, 2, 3)  # two seeds
    assert not torch.equal(first[0], first[1])
    pack._begin(2)
    assert not torch.equal(first, pack.moves)
    other = Pack(of_pack[3:], data(), device=CPU, precision="fp32")
    other._begin(1)
    assert torch.equal(other.moves[0], first[1])


@pytest.mark.parametrize("network", SHAPES)
@pytest.mark.parametrize("kind", ["base", "limit"])
def test_a_run_is_what_an_ordinary_loop_gives(network, kind):
    dataset = data(SHAPES[network])
    [run] = runs([kind], network)
    pack = Pack([run], dataset, device=CPU, precision="fp64")
    model = build(network, SHAPES[network], resolve("elu"), kind).double()
    model.load_state_dict({k: v[0] for k, v in pack.state().items()}, strict=False)
    optimizer = torch.optim.SGD(model.parameters(), lr=run.learning_rate)
    decay = torch.optim.lr_scheduler.ExponentialLR(optimizer, 1 - run.learning_rate_decay)
    images, labels = dataset.x_train.double() / 255, dataset.y_train
    for epoch in (1, 2):
        order = orders(torch.tensor([stream(run.seed, "order", epoch)]), len(labels))[0]
        for batch in order.split(run.batch_size):  # the last one is smaller
            optimizer.zero_grad()
            F.cross_entropy(model(images[batch]), labels[batch]).backward()
            optimizer.step()
            decay.step()
        [record] = pack.train_epoch()
    for name, value in pack.state().items():
        torch.testing.assert_close(value[0], model.state_dict()[name], rtol=1e-9, atol=1e-9)
    model.eval()
    with torch.no_grad():
        logits = model(dataset.x_test.double() / 255)
        train_loss = F.cross_entropy(model(images), labels).item()
    assert record.train_loss == pytest.approx(train_loss, rel=1e-9)
    assert record.test_loss == pytest.approx(F.cross_entropy(logits, dataset.y_test).item(), 1e-9)
    right = (logits.argmax(1) == dataset.y_test).double().mean().item()
    assert record.test_accuracy == record.test_accuracy_mean == pytest.approx(right)


def test_the_mean_is_what_an_ordinary_loop_of_quadrature_gives():
    dataset = data()
    [run] = runs(["m5"])
    pack = Pack([run], dataset, device=CPU, precision="fp64")
    model = build(run.network, SHAPES[run.network], resolve("elu")).double()
    model.load_state_dict({k: v[0] for k, v in pack.state().items()}, strict=False)
    optimizer = torch.optim.SGD(model.parameters(), lr=run.learning_rate)
    decay = torch.optim.lr_scheduler.ExponentialLR(optimizer, 1 - run.learning_rate_decay)
    images, labels = dataset.x_train.double() / 255, dataset.y_train
    for epoch in (1, 2, 3):
        for module in model:
            if isinstance(module, Elementwise):
                module.function = partial(q_mean, activation="elu", lam=10 / (1 + epoch))
        order = orders(torch.tensor([stream(run.seed, "order", epoch)]), len(labels))[0]
        for batch in order.split(run.batch_size):
            optimizer.zero_grad()
            F.cross_entropy(model(images[batch]), labels[batch]).backward()
            optimizer.step()
            decay.step()
        [record] = pack.train_epoch()
    model.eval()
    with torch.no_grad():
        loss = F.cross_entropy(model(dataset.x_test.double() / 255), dataset.y_test).item()
    assert record.test_loss == pytest.approx(loss, rel=1e-5)
    for name, value in model.state_dict().items():
        if name in pack.state():
            torch.testing.assert_close(pack.state()[name][0], value, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("precision", "protocol"), [("fp32", {}), ("bf16", PROTOCOL)], ids=["paper", "another"]
)
def test_resumed_bit_for_bit(precision, protocol):
    dataset = data()
    settings = ["base", "n0.01", "m5", "c0.1", "a1"]
    of_pack = runs(settings, seeds=(0, 1), dropout=True, **protocol)
    whole, expected = train(of_pack, dataset, 4, precision)
    first, _ = train(of_pack, dataset, 2, precision)
    second, records = train(of_pack, dataset, 4, precision, state=first.state(), epoch=2)
    assert all(torch.equal(second.state()[k], v) for k, v in whole.state().items())
    assert [numbers(r) for r in records] == [numbers(r) for r in expected]


def test_a_state_is_a_copy():
    pack, _ = train(runs(["base"]), data(), 1, "fp32")
    state = pack.state()
    kept = {k: v.clone() for k, v in state.items()}
    pack.train_epoch()
    assert all(torch.equal(state[k], v) for k, v in kept.items())


def test_settings_with_a_seed_share_weights_and_order():
    of_pack = runs(["base", "c0.1"], seeds=(0, 1))
    pack = Pack(of_pack, data(), device=CPU, precision="fp32")
    weight = pack.state()["1.weight"]
    assert torch.equal(weight[0], weight[2])
    assert not torch.equal(weight[0], weight[1])
    assert pack.which_order.tolist() == [0, 1, 0, 1]


def test_lam_follows_the_schedule_and_is_recorded():
    pack, records = train(runs(["base", "c0.1", "a1"]), data(), 3, "fp32")
    assert [r.lam for r in records] == [0.0, 0.1, 0.5]
    torch.testing.assert_close(pack.network.lam, torch.tensor([0.0, 0.1, 0.5]))


def test_modes_differ_where_there_is_noise():
    _, [base, mean, noisy] = train(runs(["base", "m2", "c2"]), data(), 2, "fp32")
    assert base.test_loss == base.test_loss_limit == base.test_loss_mean
    assert mean.test_loss == mean.test_loss_limit == mean.test_loss_mean
    assert len({noisy.test_loss, noisy.test_loss_limit, noisy.test_loss_mean}) == 3


def test_the_training_loss_without_noise_comes_every_tenth_epoch():
    of_pack = runs(["base", "limit", "c2"])
    _, ninth = train(of_pack, data(), 9, "fp32")
    assert all(math.isnan(record.train_loss_limit) for record in ninth)
    pack, [base, limit, noisy] = train(of_pack, data(), 10, "fp32")
    assert base.train_loss_limit == base.train_loss
    assert limit.train_loss_limit == limit.train_loss
    other = dataclasses.replace(of_pack[2], setting="limit")
    state = {name: values[2:] for name, values in pack.state().items()}
    as_limit = Pack([other], data(), device=CPU, precision="fp32", state=state, epoch=10)
    x_train, y_train, *_ = as_limit.data
    expected = as_limit._evaluate(slice(1), x_train, y_train, "limit", lambda: False)[0]
    assert noisy.train_loss_limit == pytest.approx(expected.item(), rel=1e-5)
    assert noisy.train_loss_limit != noisy.train_loss


@pytest.mark.parametrize(
    ("planned", "first_of_last"), [(0, 1), (1, 1), (10, 1), (12, 3), (100, 91), (300, 271)]
)
def test_everything_is_evaluated_every_fifth_epoch_and_in_the_last(planned, first_of_last):
    pack = Pack(runs(["base"]), data(), device=CPU, precision="fp32", num_epochs=planned)
    last = max(planned, 20)
    full = {1, *range(5, last + 1, 5), *range(first_of_last, last + 1)}
    assert {epoch for epoch in range(1, last + 1) if pack._is_full(epoch)} == full


def test_what_is_evaluated_does_not_depend_on_the_planned_epochs():
    of_pack, dataset = runs(["base", "c2", "a1"]), data()
    packs = [Pack(of_pack, dataset, device=CPU, precision="fp32", num_epochs=n) for n in (10, 21)]
    sometimes = {
        "train_loss",
        *(f"test_{what}_{mode}" for what, mode in product(("loss", "accuracy"), MODES[1:])),
    }
    for epoch in range(1, 13):
        for records in zip(*(pack.train_epoch() for pack in packs), strict=True):
            whole, part = map(dataclasses.asdict, records)
            lacking = {name for name, value in part.items() if value != value}
            assert {n: v for n, v in part.items() if n not in {*lacking, "seconds"}} == {
                n: v for n, v in whole.items() if n not in {*lacking, "seconds"}
            }
            assert lacking - {"train_loss_limit"} == (
                set() if epoch in (1, 5, 10, 12) else sometimes
            )
            assert ("train_loss_limit" in lacking) == (epoch != 10)
            assert not part["diverged"]


@pytest.mark.parametrize("momentum", [0.0, 0.5])
def test_gradient_noise_has_its_law(momentum):
    """After one step two runs differ by the learning rate times the noise of step t = 0.

    With momentum their velocities differ by that, too.
    """
    two = runs(["base", "n0.01"], momentum=momentum)
    of_pack = [dataclasses.replace(run, batch_size=44) for run in two]
    pack, _ = train(of_pack, data(), 1)
    for name, (base, noisy) in pack.state().items():
        noise = (base - noisy).flatten() / of_pack[0].learning_rate
        if ".running_" not in name:
            assert noise.std().item() == pytest.approx(0.1, rel=5 / (2 * len(noise)) ** 0.5)
            assert abs(noise.mean()) < 5 * 0.1 / len(noise) ** 0.5
    assert pack.deviations.shape == (1, 1)
    pack._begin(5)
    assert pack.deviations.item() == pytest.approx((0.01 / 5**0.55) ** 0.5)


def test_a_diverged_run_does_not_disturb_the_others():
    dataset = data()
    healthy = runs(["base"], seeds=(0, 1, 2))
    _, expected = train(healthy, dataset, 1, "fp32")
    spoilt = Pack(healthy, dataset, device=CPU, precision="fp32")
    with torch.no_grad():
        spoilt.network.tensors["1.weight"][1] = float("inf")
    records = spoilt.train_epoch()
    assert [r.diverged for r in records] == [False, True, False]
    assert math.isnan(records[1].train_loss)
    later = Pack(healthy, dataset, device=CPU, precision="fp32", num_epochs=100, epoch=1)
    with torch.no_grad():
        later.network.tensors["1.weight"][1] = float("inf")
    assert [r.diverged for r in later.train_epoch()] == [False, True, False]
    assert numbers(records[0]) == numbers(expected[0])
    assert numbers(records[2]) == numbers(expected[2])


def test_stopped_in_the_middle():
    pack = Pack(runs(["base"]), data(), device=CPU, precision="fp32")
    asked = iter([False, False, True])
    assert pack.train_epoch(stop=lambda: next(asked)) is None


def test_global_state_is_left_alone():
    state = torch.random.get_rng_state()
    train(runs(["c0.1", "n0.1"], dropout=True), data(), 1, "fp32")
    assert torch.equal(state, torch.random.get_rng_state())
    assert torch.get_default_dtype() == torch.float32


needs_device = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")


@pytest.mark.gpu
@needs_device
class TestOnDevice:
    @pytest.mark.parametrize("network", SHAPES)
    @pytest.mark.parametrize("dropout", [False, True])
    @pytest.mark.parametrize("protocol", [{}, PROTOCOL], ids=["paper", "another"])
    def test_graphs_train_as_the_cpu_does(self, network, dropout, protocol):
        dataset = data(SHAPES[network])
        settings = ["base", "limit", "m5", "c0.1", "a5", "n0.01"]
        of_pack = runs(settings, network, (0, 1), dropout, **protocol)
        here, expected = train(of_pack, dataset, 1, "fp64")  # rounding grows with every step
        there, records = train(of_pack, dataset, 1, "fp32", torch.device("cuda"))
        for name, value in here.state().items():
            torch.testing.assert_close(there.state()[name].double(), value, rtol=2e-2, atol=2e-3)
        for ours, theirs in zip(records, expected, strict=True):
            assert ours.train_loss == pytest.approx(theirs.train_loss, rel=1e-2)

    @pytest.mark.parametrize("network", SHAPES)
    def test_float64_trains_as_on_the_cpu_but_for_rounding(self, network):
        """The noise is drawn in float32 and rounded otherwise on the device, by about 1e-7."""
        without_noise, with_noise = ["base", "limit", "m5"], ["c0.1", "a5", "n0.01"]
        settings = without_noise + with_noise
        of_pack = runs(settings, network, (0, 1), True, ("elu", "tanh"), **PROTOCOL)
        here, _ = train(of_pack, data(SHAPES[network]), 1)
        there, _ = train(of_pack, data(SHAPES[network]), 1, device=torch.device("cuda"))
        for name, value in here.state().items():
            errors = (there.state()[name] - value).abs().flatten(1).amax(1)
            scales = value.abs().flatten(1).amax(1).clamp(min=1e-9)
            for run, error in zip(of_pack, errors / scales, strict=True):
                if run.setting in without_noise:
                    assert error < 1e-8, (name, run)
                elif (run.activation, network) != ("tanh", "mnist-cnn"):  # enlarges any difference
                    assert error < 1e-4, (name, run)

    def test_a_graph_trains_the_mean_of_the_epochs_lambda(self):
        """The graph is captured in the first epoch, and λ is lower in the others."""
        of_pack = runs(["m9"], seeds=(0, 1), activations=("elu", "tanh"))
        _, expected = train(of_pack, data(), 3, "fp64")
        _, records = train(of_pack, data(), 3, "fp32", torch.device("cuda"))
        [frozen] = runs(["m9@0"])  # the same with the λ of the first epoch
        _, [constant] = train([frozen], data(), 3, "fp64")
        moved = abs(constant.train_loss - expected[0].train_loss)
        for ours, theirs in zip(records, expected, strict=True):
            assert ours.lam == theirs.lam
            assert abs(ours.train_loss - theirs.train_loss) < moved / 10

    @pytest.mark.parametrize("protocol", [{}, PROTOCOL], ids=["paper", "another"])
    def test_resumed(self, protocol):
        dataset, device = data(), torch.device("cuda")
        of_pack = runs(["base", "m5", "c0.1"], seeds=(0, 1), dropout=True, **protocol)
        _, expected = train(of_pack, dataset, 4, "tf32", device)
        first, _ = train(of_pack, dataset, 2, "tf32", device)
        _, records = train(of_pack, dataset, 4, "tf32", device, state=first.state(), epoch=2)
        assert [numbers(r) for r in records] == [numbers(r) for r in expected]

    @pytest.mark.parametrize("precision", ["tf32", "bf16", "fp64"])
    @pytest.mark.parametrize("network", SHAPES)
    @pytest.mark.parametrize("protocol", [{}, PROTOCOL], ids=["paper", "another"])
    def test_every_precision_learns_the_same(self, precision, network, protocol):
        dataset, device = data(SHAPES[network]), torch.device("cuda")
        # At the usual rate of 0.05 momentum makes a change by 1e-3 three times as large a loss.
        usual = runs(["base", "c0.1"], network, **protocol)
        of_pack = [dataclasses.replace(run, learning_rate=0.01) for run in usual]
        _, exact = train(of_pack, dataset, 2, "fp32", device)
        _, records = train(of_pack, dataset, 2, precision, device)
        for ours, theirs in zip(records, exact, strict=True):
            assert ours.train_loss == pytest.approx(theirs.train_loss, rel=0.05)
