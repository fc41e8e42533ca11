"""q-activations under what PyTorch does to a model: func, compile, checkpoint, export, DDP."""

import datetime
import gc
import io
import itertools
import warnings
from functools import partial

import pytest
import torch
import torch._dynamo.testing
from torch import multiprocessing, nn
from torch.distributed.tensor import DTensor, Replicate, Shard, init_device_mesh
from torch.func import hessian, jacfwd, jacrev, jvp, vmap
from torch.nn.parallel import DistributedDataParallel
from torch.utils.checkpoint import checkpoint

import qneurons as qn
from qneurons import measuring, q_activation, q_difference, q_limit, q_mean
from qneurons.activations import resolve, rows

ROWS = rows()


def smooth(y: torch.Tensor) -> torch.Tensor:
    return y * torch.sigmoid(y)


each_row_and_callable = pytest.mark.parametrize(
    "row", [*ROWS, resolve(smooth)], ids=lambda row: row.name
)


each_row = pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)


def randn(*shape: int, dtype: torch.dtype = torch.float32, seed: int = 0) -> torch.Tensor:
    return torch.randn(shape, dtype=dtype, generator=torch.Generator().manual_seed(seed))


@pytest.fixture
def fixed():
    """x and a δ that crosses -1, in float64."""
    return randn(3, 4, dtype=torch.float64), 2 * randn(3, 4, dtype=torch.float64, seed=1)


# --- torch.func -----------------------------------------------------------------------------------


@each_row_and_callable
def test_jacobians_are_the_diagonal_gradient(row, fixed):
    x, delta = fixed
    leaf = x.clone().requires_grad_()
    q_difference(leaf, delta, row).sum().backward()

    def g(y):
        return q_difference(y, delta, row)

    want = torch.diag(leaf.grad.flatten())
    for jacobian in (jacrev(g)(x), jacfwd(g)(x)):
        torch.testing.assert_close(jacobian.reshape(12, 12), want)
    torch.testing.assert_close(torch.func.grad(lambda y: g(y).sum())(x), leaf.grad)
    torch.testing.assert_close(jvp(g, (x,), (torch.ones_like(x),))[1], leaf.grad)


@each_row_and_callable
def test_orders_of_differentiation_agree(row, fixed):
    x, delta = (tensor[0] for tensor in fixed)

    def total(y):
        return q_difference(y, delta, row).sum()

    leaf = x.clone().requires_grad_()
    (slope,) = torch.autograd.grad(total(leaf), leaf, create_graph=True)
    curvature = torch.zeros_like(x)
    if slope.requires_grad:
        (curvature,) = torch.autograd.grad(slope.sum(), leaf)
    for outer, inner in itertools.product((jacfwd, jacrev), repeat=2):
        torch.testing.assert_close(outer(inner(total))(x), torch.diag(curvature))
    torch.testing.assert_close(hessian(total)(x), torch.diag(curvature))


def test_third_order_agrees_in_every_mode():
    x = torch.tensor(0.7, dtype=torch.float64)
    results = []
    for transforms in itertools.product((jacfwd, jacrev), repeat=3):
        function = lambda y: q_difference(y, 0.3, "tanh")  # noqa: E731
        for transform in transforms:
            function = transform(function)
        results.append(function(x))
    torch.testing.assert_close(torch.stack(results), results[-1].expand(8))
    assert results[-1].abs() > 1


@each_row_and_callable
def test_vmap_at_given_delta(row, fixed):
    x, delta = fixed
    for got, want in (
        (vmap(lambda y: q_difference(y, delta[0], row))(x), q_difference(x, delta[0], row)),
        (vmap(lambda d: q_difference(x[0], d, row))(delta), q_difference(x[0], delta, row)),
        (vmap(lambda y, d: q_difference(y, d, row))(x, delta), q_difference(x, delta, row)),
        (vmap(lambda y: q_limit(y, row))(x), q_limit(x, row)),
    ):
        torch.testing.assert_close(got, want)


@each_row_and_callable
def test_vmap_of_the_gradient(row, fixed):
    x, delta = fixed
    leaf = x[0].expand(3, 4).clone().requires_grad_()
    q_difference(leaf, delta, row).sum().backward()
    gradient = torch.func.grad(lambda y, d: q_difference(y, d, row).sum())
    torch.testing.assert_close(vmap(gradient, (None, 0))(x[0], delta), leaf.grad)


def test_vmap_of_the_mean(fixed):
    x = fixed[0]
    lam = torch.tensor([0.1, 1.0, 3.0], dtype=torch.float64)
    got = vmap(lambda y, lam: q_mean(y, "tanh", lam))(x, lam)
    torch.testing.assert_close(got, q_mean(x, "tanh", lam[:, None]))


@each_row_and_callable
def test_vmap_randomness(row):
    x = torch.full((2, 50), -0.7)

    def draw(y):
        return q_activation(y, row, 5.0)

    for function in (draw, torch.func.grad(lambda y: draw(y).sum())):
        with pytest.raises(RuntimeError, match="randomness"):
            vmap(function)(x)
        torch.manual_seed(0)
        same = vmap(function, randomness="same")(x)
        assert torch.equal(same[0], same[1])
        different = vmap(function, randomness="different")(x)
        assert row.name == "identity" or not torch.equal(different[0], different[1])


def test_vmap_over_lam():
    x, lam = torch.full((50,), -0.7), torch.tensor([0.1, 2.0])
    torch.manual_seed(0)
    got = vmap(lambda value: q_activation(x, "tanh", value), randomness="same")(lam)
    for row, value in zip(got, lam, strict=True):
        torch.manual_seed(0)
        torch.testing.assert_close(row, q_activation(x, "tanh", value.item()))


# --- torch.compile --------------------------------------------------------------------------------


@pytest.fixture
def compiled():
    yield lambda function, backend="aot_eager", **options: torch.compile(
        function, fullgraph=True, backend=backend, **options
    )
    torch._dynamo.reset()


def g_of_all_rows(x: torch.Tensor, delta: torch.Tensor) -> torch.Tensor:
    return torch.stack([q_difference(x, delta, row) for row in ROWS])


def value_and_gradient(function, x: torch.Tensor, *arguments):
    x = x.detach().requires_grad_()
    value = function(x, *arguments)
    (gradient,) = torch.autograd.grad(value.sum(), x)
    return value.detach(), gradient


def test_compiled_values_and_gradients_of_every_row(compiled):
    x, delta = randn(64), 2 * randn(64, seed=1)
    # Dynamo alone: what follows it is the same for all rows, and is tested with two of them below.
    got = value_and_gradient(compiled(g_of_all_rows, "eager"), x, delta)
    want = value_and_gradient(g_of_all_rows, x, delta)
    torch.testing.assert_close(got, want, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", ["elu", "tanh"])
def test_inductor_is_as_accurate_as_eager(name, compiled):
    x = torch.linspace(-3, 3, 64)
    delta = torch.logspace(-9, 0, 64)

    def g(x, delta):
        return q_difference(x, delta, name)

    got = value_and_gradient(compiled(g, "inductor"), x, delta)
    want = value_and_gradient(g, x.double(), delta.double())
    for low, high in zip(got, want, strict=True):
        torch.testing.assert_close(low.double(), high, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("is_checkpointed", [False, True])
@pytest.mark.parametrize("is_trained", [False, True])
@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_two_draws_in_one_graph_differ(backend, is_trained, is_checkpointed, compiled):
    """Only a graph for training goes through the pass that merges equal calls."""

    def twice(x):
        return q_activation(x, "tanh", 1.0), q_activation(x, "tanh", 1.0)

    def run(x):
        return checkpoint(twice, x, use_reentrant=False) if is_checkpointed else twice(x)

    run = compiled(run, backend)
    x = randn(1000).requires_grad_(is_trained)
    with torch.set_grad_enabled(is_trained):
        draws = [draw.detach() for _ in range(2) for draw in run(x)]
    for first, second in itertools.combinations(draws, 2):
        assert (first != second).float().mean() > 0.99


def test_compiled_training_uses_one_noise_in_forward_and_backward(compiled):
    # For tanh at x = 1 the value determines δ, and so does the slope: compare the two.
    draw = compiled(lambda x: q_activation(x, "tanh", 0.2))
    torch.manual_seed(0)
    value, slope = value_and_gradient(draw, torch.ones(200, dtype=torch.float64))
    delta = torch.linspace(-0.9, 5, 20001, dtype=torch.float64)
    values, slopes = value_and_gradient(
        lambda x: q_difference(x, delta, "tanh"), torch.ones(20001, dtype=torch.float64)
    )
    nearest = (value[:, None] - values).abs().argmin(1)
    torch.testing.assert_close(slope, slopes[nearest], rtol=0, atol=1e-3)
    assert slope.std() > 0.03


def test_compiled_draw_follows_the_law(compiled):
    draw = compiled(lambda x: q_activation(x, "gelu", 1.0))
    torch.manual_seed(0)
    x = torch.full((200_000,), 0.8, dtype=torch.float64)
    draws = draw(x)
    error = draws.mean() - q_mean(x[:1], "gelu", 1.0)
    assert error.abs() < 4.5 * draws.std() / len(draws) ** 0.5


@pytest.mark.parametrize("eval_mode", ["limit", "mean"])
def test_compiled_evaluation(eval_mode, compiled):
    def evaluate(x):
        return q_activation(x, "tanh", training=False, eval_mode=eval_mode)

    x = randn(64)
    torch.testing.assert_close(compiled(evaluate)(x), evaluate(x))


def test_compiled_limit_of_every_row(compiled):
    functions = [partial(q_limit, activation=row) for row in ROWS]

    def limits(x):
        return torch.stack([function(x) for function in functions])

    x = randn(64)
    torch.testing.assert_close(
        value_and_gradient(compiled(limits), x), value_and_gradient(limits, x)
    )


@each_row
def test_the_limit_keeps_x_alone_for_backward(row):
    assert measuring.bytes_kept(partial(q_limit, activation=row), randn(500).requires_grad_()) == 0


def test_compiled_callable(compiled):
    x, delta = randn(64), randn(64, seed=1)
    g = lambda x, delta: q_difference(x, delta, smooth)  # noqa: E731
    torch.testing.assert_close(
        value_and_gradient(compiled(g), x, delta), value_and_gradient(g, x, delta)
    )


def test_compiled_with_dynamic_shapes(compiled):
    draw = compiled(lambda x: q_activation(x, "tanh"), dynamic=True)
    for size in (5, 7, 64):
        assert draw(randn(size)).shape == (size,)


def test_another_batch_size_compiles(compiled):
    module = compiled(nn.Sequential(nn.Linear(4, 3), qn.QELU()))
    for size in (5, 7, 64):
        assert module(randn(size, 4)).shape == (size, 3)


def test_another_lam_does_not_recompile():
    counter = torch._dynamo.testing.CompileCounterWithBackend("aot_eager")
    draw = torch.compile(
        lambda x, lam: q_activation(x, "tanh", lam), fullgraph=True, backend=counter
    )
    x = torch.full((10_000,), -0.7)
    torch.manual_seed(0)
    deviations = [draw(x, torch.tensor(lam)).std().item() for lam in (0.01, 0.1, 1.0)]
    assert counter.frame_count == 1
    assert deviations[0] < deviations[1] / 5 < deviations[2] / 10
    torch._dynamo.reset()


def test_compiled_channels_last(compiled):
    x = randn(2, 3, 4, 4).to(memory_format=torch.channels_last)
    result = compiled(lambda x: q_activation(x, "gelu"))(x)
    assert result.is_contiguous(memory_format=torch.channels_last)


def test_only_the_first_noise_recompiles():
    counter = torch._dynamo.testing.CompileCounterWithBackend("aot_eager")
    module = qn.QELU(lam=0.0, phi=0.0)
    draw = torch.compile(module, fullgraph=True, backend=counter)
    x = torch.full((100,), -0.7)
    counts = []
    for lam in (0.0, 0.3, 0.2, 0.1):
        module.lam = lam
        assert (draw(x).std() > 1e-4) == (lam > 0)
        counts.append(counter.frame_count)
    assert counts == [1, 2, 2, 2]
    torch._dynamo.reset()


# Each has a closed form that autograd would differentiate otherwise, at zero or anywhere.
IN_A_TRANSFORM = {
    "draw": lambda y: q_activation(y, "tanh", 0.5, seed=torch.tensor(7)),
    "limit": lambda y: q_limit(y, "gelu"),
    "difference": lambda y: q_difference(y, -0.5, "elu"),
}


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
@pytest.mark.parametrize("name", IN_A_TRANSFORM)
def test_transforms_inside_compile(name, backend):
    function, x = IN_A_TRANSFORM[name], torch.tensor([-2.0, -1.0, 0.0, 1.0, 2.0])
    compiled = partial(torch.compile, backend=backend)

    def grad(x):
        return torch.func.grad(lambda y: function(y).sum())(x)

    def grad_of_grad(x):
        return torch.func.grad(lambda y: grad(y).sum())(x)

    def each_grad(x):
        return vmap(torch.func.grad(function), randomness="same")(x)

    def tangent(x):
        return jvp(function, (x,), (torch.ones_like(x),))[1]

    for transformed in (grad, grad_of_grad, each_grad, tangent):
        torch.testing.assert_close(compiled(transformed)(x), transformed(x))
        torch._dynamo.reset()
    batched, gradients = vmap(function, randomness="same"), []
    for call in (compiled(batched), batched):
        leaf = x.clone().requires_grad_()
        call(leaf).sum().backward()
        gradients.append(leaf.grad)
    torch.testing.assert_close(*gradients)
    torch._dynamo.reset()


def test_a_transform_is_not_compiled_into_one_graph(compiled):
    with pytest.raises(torch._dynamo.exc.Unsupported, match="should not be traced"):
        compiled(vmap(IN_A_TRANSFORM["limit"]))(randn(5))


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor"])
def test_a_kernel_that_dynamo_reaches_is_not_traced(backend):
    """Otherwise memory whose address the kernel has would be freed before the kernel runs."""

    def draw(weight):
        torch._dynamo.graph_break()
        return q_activation(weight, "silu", 0.5, seed=torch.tensor(7))

    batched = vmap(draw, randomness="same")
    weights = randn(4000, 3).T  # not contiguous, so that a kernel copies it
    got = torch.compile(lambda weights: batched(weights), backend=backend)(weights)
    torch.testing.assert_close(got, batched(weights))
    torch._dynamo.reset()


def test_parameters_of_an_activation_that_vary_are_compiled(compiled):
    function = compiled(lambda x, alpha: qn.q_elu(x, alpha=alpha, seed=torch.tensor(7)))
    x = randn(50)
    for alpha in (0.5, 0.7, 0.9):
        want = qn.q_elu(x, alpha=alpha, seed=torch.tensor(7))
        torch.testing.assert_close(function(x, alpha), want)


def test_double_backward_of_a_compiled_function_is_refused(compiled):
    x = randn(5).requires_grad_()
    value = compiled(lambda x: q_difference(x, 0.3, "tanh").square())(x)
    (slope,) = torch.autograd.grad(value.sum(), x, create_graph=True)
    with pytest.raises(RuntimeError, match="double backward"):
        torch.autograd.grad(slope.sum(), x)


# --- checkpoint and autocast ----------------------------------------------------------------------


def small_network(activation) -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(16, 16), qn.QActivation(activation, lam=1.0), nn.Linear(16, 3))


@pytest.mark.parametrize("activation", ["elu", "gelu"])
def test_checkpoint_replays_the_noise(activation):
    def gradients(run):
        network = small_network(activation)
        torch.manual_seed(1)
        run(network, randn(5, 16)).square().sum().backward()
        return [parameter.grad for parameter in network.parameters()]

    plain = gradients(lambda network, x: network(x))
    replayed = gradients(lambda network, x: checkpoint(network, x, use_reentrant=False))
    assert all(torch.equal(a, b) for a, b in zip(plain, replayed, strict=True))


def test_checkpoint_of_a_callable_is_refused():
    """The derivative of a callable comes from torch.func, which refuses saved tensor hooks."""
    with pytest.raises(RuntimeError, match=r"torch\.func.* saved tensor hooks"):
        checkpoint(small_network(smooth), randn(5, 16), use_reentrant=False)


@pytest.mark.parametrize("activation", ["elu", "gelu", smooth], ids=["elu", "gelu", "callable"])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_autocast(dtype, activation):
    network = small_network(activation)
    with torch.autocast("cpu", dtype):
        hidden = network[0](randn(5, 16))
        hidden.retain_grad()
        active = network[1](hidden)
        result = network[2](active)
    assert hidden.dtype == active.dtype == result.dtype == dtype
    result.float().square().sum().backward()
    assert hidden.grad.dtype == dtype
    assert network[0].weight.grad.dtype == torch.float32
    assert network[0].weight.grad.abs().sum() > 0


# --- export ---------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore:.*torch.jit")  # deprecated
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning")  # shapes become constants
def test_a_draw_that_is_traced_has_its_gradient(dtype):
    def draw(y, seed):
        return q_activation(y, "elu", 0.5, seed=seed)

    x = randn(2, 3).to(dtype).requires_grad_()
    traced = torch.jit.trace(draw, (x, torch.tensor(3)), check_trace=False)
    for seed in (torch.tensor(3), torch.tensor(4)):
        want, got = draw(x, seed), traced(x, seed)
        assert torch.equal(got, want)
        assert torch.equal(*(torch.autograd.grad(y.sum(), x)[0] for y in (got, want)))
    model = nn.Sequential(nn.Linear(3, 4), qn.QELU(lam=0.5)).to(dtype)
    traced = torch.jit.trace(model, x, check_trace=False)
    assert not torch.equal(traced(x), traced(x))
    traced(x).sum().backward()
    assert model[0].weight.grad.abs().sum() > 0


class EveryRow(nn.Module):
    def __init__(self, rows=ROWS) -> None:
        super().__init__()
        self.linear = nn.Linear(5, 5)  # so that what is activated requires grad
        self.activations = nn.ModuleList(map(qn.QActivation, rows))
        self.activations.append(qn.QLimit("elu"))  # whose code is that of the others in evaluation

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = 4 * self.linear(x)
        return torch.stack([activation(x) for activation in self.activations])


@pytest.mark.filterwarnings("ignore::FutureWarning:copyreg")
def test_export():
    model, x = EveryRow().eval(), randn(6, 5)
    program = torch.export.export(model, (x,), dynamic_shapes=({0: torch.export.Dim.DYNAMIC},))
    other = randn(9, 5, seed=1)
    torch.testing.assert_close(program.module()(other), model(other), rtol=1e-5, atol=1e-5)
    assert list(program.state_dict) == ["linear.weight", "linear.bias"]
    assert "qneurons" not in program.graph_module.code  # all ops are torch's own


@pytest.mark.filterwarnings("ignore::FutureWarning:copyreg")
def test_export_of_the_mean():
    model, x = nn.Sequential(qn.QTanh(lam=0.05, eval_mode="mean")).eval(), randn(6, 5)
    torch.testing.assert_close(torch.export.export(model, (x,)).module()(x), model(x))


each_evaluation = pytest.mark.parametrize(
    ("mode", "rows"),
    [("limit", ROWS), ("mean", ROWS[::5])],  # a mean is looked up, in the same way
)


@each_evaluation
def test_onnx_with_a_dynamic_batch(mode, rows):
    onnxruntime = pytest.importorskip("onnxruntime")
    model, x = qn.configure(EveryRow(rows), eval_mode=mode, lam=0.02).eval(), randn(6, 5)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the exporter's own
        program = torch.onnx.export(
            model,
            (x,),
            dynamo=True,
            verbose=False,
            dynamic_shapes=({0: torch.export.Dim.DYNAMIC},),
        )
    assert {node.domain for node in program.model_proto.graph.node} == {""}  # all ops are standard
    assert not program.model_proto.functions
    session = onnxruntime.InferenceSession(program.model_proto.SerializeToString())
    x = torch.cat([randn(8, 5, seed=1), torch.full((5,), torch.inf).diag()])
    (result,) = session.run(None, {session.get_inputs()[0].name: x.numpy()})
    close = partial(torch.testing.assert_close, rtol=1e-5, atol=1e-5, equal_nan=True)
    close(torch.from_numpy(result), model(x))


@each_evaluation
def test_the_older_exporter_to_onnx(mode, rows):
    onnxruntime = pytest.importorskip("onnxruntime")
    model, x = qn.configure(EveryRow(rows), eval_mode=mode, lam=0.02).eval(), randn(6, 5)
    x[0] = 6 * x[0]
    file = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it is deprecated
        torch.onnx.export(model, (x,), file, dynamo=False)
    session = onnxruntime.InferenceSession(file.getvalue())
    (result,) = session.run(None, {session.get_inputs()[0].name: x.numpy()})
    torch.testing.assert_close(torch.from_numpy(result), model(x), rtol=1e-5, atol=1e-5)


def test_a_traced_model_in_evaluation_needs_no_qneurons(tmp_path):
    model, x = nn.Sequential(nn.Linear(3, 3), qn.QGELU(), qn.QLimit("elu")).eval(), randn(2, 3)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch.jit is deprecated
        traced = torch.jit.trace(model, x)
        torch.jit.save(traced, tmp_path / "model.pt")
    torch.testing.assert_close(traced(x), model(x))
    assert "qneurons::" not in str(traced.inlined_graph)  # no operation of ours


# --- two processes --------------------------------------------------------------------------------


def train_one_step(rank: int, folder: str) -> None:
    store = torch.distributed.FileStore(f"{folder}/store", 2)
    wait = datetime.timedelta(minutes=2)  # if the other process has died
    torch.distributed.init_process_group("gloo", store=store, rank=rank, world_size=2, timeout=wait)
    network = small_network("elu")
    x = torch.ones(4, 16)
    torch.manual_seed(10 + rank)
    noise = network[1](torch.full((100,), -0.7))
    torch.manual_seed(20 + rank)
    (alone,) = torch.autograd.grad(network(x).square().sum(), network[0].weight)
    torch.manual_seed(20 + rank)
    wrapped = DistributedDataParallel(network)  # alive until backward, which it hooks into
    wrapped(x).square().sum().backward()
    mesh = init_device_mesh("cpu", (2,))
    parts = [
        network[1](DTensor.from_local(torch.full((100,), -0.7), mesh, [placement])).to_local()
        for placement in (Replicate(), Shard(0))
    ]
    torch.save((noise, alone, network[0].weight.grad, *parts), f"{folder}/{rank}")
    torch.distributed.barrier()  # the first to leave would close the other's connection
    del wrapped  # holding the last reference, it would wait for a thread that waits for the GIL
    gc.collect()
    torch.distributed.destroy_process_group()


def test_two_processes_draw_their_own_noise_and_share_gradients(tmp_path, monkeypatch):
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "lo")
    other = multiprocessing.spawn(train_one_step, (str(tmp_path),), nprocs=1, join=False)
    train_one_step(1, str(tmp_path))  # here: a process takes seconds to import torch
    while not other.join():
        pass
    ranks = (torch.load(tmp_path / str(rank)) for rank in range(2))
    noises, (alone_0, alone_1), (shared_0, shared_1), replicas, shards = zip(*ranks, strict=True)
    assert (noises[0] != noises[1]).float().mean() > 0.9
    assert not torch.equal(alone_0, alone_1)
    assert torch.equal(shared_0, shared_1)
    torch.testing.assert_close(shared_0, (alone_0 + alone_1) / 2)
    assert torch.equal(*replicas)
    assert (shards[0] != shards[1]).float().mean() > 0.9


# --- compiled, with what else a model is trained with ---------------------------------------------


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_checkpoint_inside_compile(backend, compiled):
    """For tanh at x = 1 the value determines δ, and so does the slope: they must agree."""

    def run(x):
        return checkpoint(lambda y: q_activation(y, "tanh", 0.2), x, use_reentrant=False)

    torch.manual_seed(0)
    value, slope = value_and_gradient(compiled(run, backend), torch.ones(200, dtype=torch.float64))
    delta = torch.linspace(-0.9, 5, 20001, dtype=torch.float64)
    values, slopes = value_and_gradient(
        lambda x: q_difference(x, delta, "tanh"), torch.ones(20001, dtype=torch.float64)
    )
    nearest = (value[:, None] - values).abs().argmin(1)
    torch.testing.assert_close(slope, slopes[nearest], rtol=0, atol=1e-3)


def test_export_of_a_training_model_with_a_dynamic_batch():
    batch = torch.export.Dim("batch", min=2, max=1000)
    program = torch.export.export(
        nn.Sequential(nn.Linear(4, 3), qn.QELU(lam=1.0)),
        (randn(32, 4),),
        dynamic_shapes=[{0: batch}],
    )
    module = program.module()
    first, second = module(randn(7, 4)), module(randn(7, 4))
    assert first.shape == (7, 3)
    assert not torch.equal(first, second)


@pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning", "ignore:.*torch.jit.trace")
@pytest.mark.parametrize(
    "record",
    [
        lambda model, x: torch.export.export(model, (x,)).module(),
        lambda model, x: torch.export.export(model, (x,), strict=True).module(),
        lambda model, x: torch.jit.trace(model, (x,), check_trace=False),
    ],
    ids=["export", "strict export", "trace"],
)
def test_a_recorded_model_is_trained_as_the_model(record):
    model, x = small_network("elu"), randn(5, 16)

    def gradients(model):
        torch.manual_seed(1)
        leaf = x.clone().requires_grad_()
        (slope,) = torch.autograd.grad(model(leaf).square().sum(), leaf, create_graph=True)
        slope.square().sum().backward()
        found = [leaf.grad, *(parameter.grad for parameter in model.parameters())]
        model.zero_grad()
        return found

    recorded = record(model, x)
    for got, want in zip(gradients(recorded), gradients(model), strict=True):
        torch.testing.assert_close(got, want)


@pytest.mark.parametrize(
    "function",
    [lambda x, lam: q_activation(x, "tanh", lam), lambda x, lam: qn.q_mean(x, "relu2", lam)],
    ids=["draw", "mean of a power"],
)
def test_lam_as_a_number_does_not_compile_for_every_value(function):
    counter = torch._dynamo.testing.CompileCounterWithBackend("aot_eager")
    compiled = torch.compile(function, fullgraph=True, backend=counter)
    for lam in (0.01, 0.02, 0.03, 0.04, 0.05):
        compiled(randn(100), lam)
    assert counter.frame_count <= 2
    torch._dynamo.reset()
