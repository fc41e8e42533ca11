"""What only a CUDA device shows: graphs, compiled training, sizes beyond 2^31, launches."""

import gc
import itertools

import pytest
import torch
import torch._dynamo.testing
from torch import multiprocessing, nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.checkpoint import checkpoint

import qneurons as qn
from qneurons import closed_forms, noise, q_activation
from qneurons.comparison.store import TrialStore
from qneurons.comparison.trial import Trial, run_trial
from qneurons.measuring import bytes_kept, count_kernels

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device"),
]


def randn(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    generator = torch.Generator().manual_seed(0)
    return torch.randn(shape, generator=generator).to("cuda", dtype)


def differ(*draws: torch.Tensor) -> bool:
    pairs = itertools.combinations(draws, 2)
    return all((first != second).float().mean() > 0.99 for first, second in pairs)


@pytest.fixture
def compiled():
    yield lambda function, **options: torch.compile(function, fullgraph=True, **options)
    torch._dynamo.reset()


# --- the same noise on every device ---------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_a_seed_draws_the_same_on_the_cpu(dtype):
    x = randn(100, 77, dtype=dtype)
    seed = torch.tensor(5)
    on_cpu = q_activation(x.cpu(), "gelu", 0.5, seed=seed)
    tolerance = max(torch.finfo(dtype).eps, 4e-6)
    torch.testing.assert_close(
        q_activation(x, "gelu", 0.5, seed=seed.cuda()).cpu(), on_cpu, rtol=tolerance, atol=tolerance
    )


def test_a_callable_takes_the_generic_path():
    x = randn(1000).requires_grad_()
    value = q_activation(x, lambda y: y * torch.sigmoid(y), 0.1)
    value.sum().backward()
    assert value.is_cuda
    assert x.grad.isfinite().all()


# --- CUDA graphs ----------------------------------------------------------------------------------


def capture(function):
    """A graph of one call and its result, as torch.cuda's documentation says to capture it."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        function()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result = function()
    # Capturing fills torch's seed on its own stream. The first replay does not wait for that, and
    # on a GPU that another process uses too it drew from the seed of the capture.
    torch.cuda.synchronize()
    return graph, result


def replay(graph, result):
    graph.replay()
    return result.clone()


def test_replays_differ_and_equal_seeds_reproduce():
    x, module = randn(10_000), qn.QTanh(1.0).cuda()
    graph, result = capture(lambda: module(x))
    torch.cuda.manual_seed(1)
    draws = [replay(graph, result) for _ in range(3)]
    assert differ(*draws)
    torch.cuda.manual_seed(1)
    assert all(torch.equal(draw, replay(graph, result)) for draw in draws)


def test_means_in_a_graph_follow_lam():
    x, module = randn(10_000), qn.QHardswish(0.1, eval_mode="mean").cuda().eval()
    graph, result = capture(lambda: module(x))
    for lam in (0.1, 0.5):
        module.lam = lam
        exact = qn.q_mean(x.double(), "hardswish", lam)
        torch.testing.assert_close(replay(graph, result).double(), exact, rtol=1e-6, atol=1e-6)
    assert count_kernels(lambda: module(x)) == 1


def test_a_graph_reads_the_seed_and_not_its_address():
    x, seed = randn(10_000), torch.tensor([1], device="cuda")
    graph, result = capture(lambda: q_activation(x, "tanh", 1.0, seed=seed))
    first = replay(graph, result)
    seed.fill_(2)
    second = replay(graph, result)
    seed.fill_(1)
    assert differ(first, second)
    assert torch.equal(first, replay(graph, result))
    assert torch.equal(first, q_activation(x, "tanh", 1.0, seed=seed.clone()))


def test_lam_changes_without_capturing_again():
    x, module = torch.full((10_000,), -0.7, device="cuda"), qn.QTanh(0.01).cuda()
    graph, result = capture(lambda: module(x))
    deviations = []
    for lam in (0.01, 0.1, 1.0):
        module.lam = lam
        deviations.append(replay(graph, result).std().item())
    assert deviations[0] < deviations[1] / 5 < deviations[2] / 10


def test_a_captured_training_step_uses_one_noise_in_forward_and_backward():
    x = randn(10_000).requires_grad_()
    seed = torch.tensor([1], device="cuda")

    def step():
        return torch.autograd.grad(q_activation(x, "tanh", 1.0, seed=seed).sum(), x)[0]

    graph, result = capture(step)
    seed.fill_(7)
    torch.testing.assert_close(replay(graph, result), step())


# --- compile --------------------------------------------------------------------------------------


each_mode = pytest.mark.parametrize(
    "mode",
    [
        "default",
        pytest.param(  # torch captures an empty graph of its own first
            "reduce-overhead", marks=pytest.mark.filterwarnings("ignore:The CUDA Graph is empty")
        ),
    ],
)


@pytest.mark.parametrize("is_trained", [False, True])
@each_mode
def test_compiled_draws_differ(mode, is_trained, compiled):
    def twice(x):
        return q_activation(x, "tanh", 1.0), q_activation(x, "tanh", 1.0)

    twice, draws = compiled(twice, mode=mode), []
    with torch.set_grad_enabled(is_trained):
        for _ in range(4):
            x = randn(1000).requires_grad_(is_trained)
            first, second = twice(x)
            draws += [first.detach().clone(), second.detach().clone()]
            if is_trained:  # or the memory of a graph is not used again
                (first + second).sum().backward()
    assert differ(*draws)


@each_mode
def test_compiled_training_at_a_seed_is_eager_training(mode, compiled):
    def loss(x, seed):
        hidden = q_activation(2 * x, "elu", 0.5, seed=seed)
        return q_activation(hidden + 1, "gelu", 0.1, seed=seed + 1).square().sum()

    step, x = compiled(loss, mode=mode), randn(64, 100)
    for seed in (3, 4, 5, 3):
        seed = torch.tensor([seed], device="cuda")
        gradients = []
        for function in (step, loss):
            leaf = x.clone().requires_grad_()
            function(leaf, seed).backward()
            gradients.append(leaf.grad)
        torch.testing.assert_close(*gradients, rtol=1e-4, atol=1e-4)


def test_another_lam_does_not_recompile():
    counter = torch._dynamo.testing.CompileCounterWithBackend("inductor")
    module = qn.QTanh(0.01).cuda()
    draw = torch.compile(module, fullgraph=True, backend=counter)
    x, deviations = torch.full((10_000,), -0.7, device="cuda"), []
    for lam in (0.01, 0.1, 1.0):
        module.lam = lam
        deviations.append(draw(x).std().item())
    assert counter.frame_count == 1
    assert deviations[0] < deviations[1] / 5 < deviations[2] / 10
    torch._dynamo.reset()


# --- training -------------------------------------------------------------------------------------


def network(memory_format: torch.memory_format = torch.contiguous_format) -> nn.Module:
    torch.manual_seed(0)
    layers = nn.Sequential(
        nn.Conv2d(3, 8, 3), qn.QELU(lam=1.0), nn.Conv2d(8, 4, 3), qn.QGELU(1.0), nn.Flatten(1)
    )
    return layers.cuda().to(memory_format=memory_format)


def gradients(run, model: nn.Module) -> list[torch.Tensor]:
    torch.manual_seed(1)
    run(model, randn(5, 3, 9, 9)).square().mean().backward()
    return [parameter.grad for parameter in model.parameters()]


def test_checkpoint_replays_the_noise():
    direct = gradients(lambda model, x: model(x), network())
    replayed = gradients(lambda model, x: checkpoint(model, x, use_reentrant=False), network())
    torch.testing.assert_close(replayed, direct)


def test_channels_last_changes_the_layout_and_not_the_draw():
    x = randn(5, 8, 7, 7)
    seed = torch.tensor(3, device="cuda")
    last = q_activation(x.to(memory_format=torch.channels_last), "elu", 1.0, seed=seed)
    assert last.is_contiguous(memory_format=torch.channels_last)
    torch.testing.assert_close(last, q_activation(x, "elu", 1.0, seed=seed))
    direct = gradients(lambda model, x: model(x), network())
    channels_last = gradients(lambda model, x: model(x), network(torch.channels_last))
    torch.testing.assert_close(channels_last, direct, rtol=1e-2, atol=1e-3)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_mixed_precision_with_a_gradient_scaler(dtype):
    model, scaler = network(), torch.amp.GradScaler("cuda", init_scale=2.0**10)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    before = [parameter.clone() for parameter in model.parameters()]
    for _ in range(3):
        optimizer.zero_grad()
        with torch.autocast("cuda", dtype):
            result = model(randn(5, 3, 9, 9))
            loss = result.square().mean()
        assert result.dtype == dtype
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
    assert scaler.get_scale() == 2.0**10
    for old, new in zip(before, model.parameters(), strict=True):
        assert new.isfinite().all()
        assert not torch.equal(old, new)


def train_one_rank(rank: int, folder: str) -> None:
    torch.distributed.init_process_group(
        "gloo", init_method=f"file://{folder}/store", rank=rank, world_size=2
    )
    torch.manual_seed(rank)
    layer = nn.Linear(50, 200).cuda()
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.fill_(0.1)
    model = DistributedDataParallel(nn.Sequential(layer, qn.QTanh(1.0).cuda()))
    value = model(torch.ones(20, 50, device="cuda"))
    value.sum().backward()
    torch.save((value.detach().cpu(), layer.weight.grad.cpu()), f"{folder}/{rank}.pt")
    del model, value  # holding the last reference, they would wait for a thread that waits
    gc.collect()
    torch.distributed.destroy_process_group()


def test_two_ranks_draw_their_own_noise_and_share_gradients(tmp_path):
    multiprocessing.spawn(train_one_rank, (str(tmp_path),), nprocs=2)
    (first, first_grad), (second, second_grad) = (
        torch.load(tmp_path / f"{rank}.pt") for rank in range(2)
    )
    assert differ(first, second)
    assert torch.equal(first_grad, second_grad)


# --- size and cost --------------------------------------------------------------------------------


@pytest.mark.parametrize("layout", ["contiguous", "transposed"])
def test_more_than_two_to_the_31_elements(layout):
    size, tail = 2**31 + 3 * 4096, 3 * 4096 + 5
    x = torch.full((size + 5,), -0.7, dtype=torch.bfloat16, device="cuda")
    seed = torch.tensor([9], device="cuda")
    shaped = x if layout == "contiguous" else x.reshape(-1, 1).expand(-1, 1).t()
    value = q_activation(shaped, "tanh", 0.5, seed=seed).flatten()[-tail:].float()
    eps = noise.normals(seed, tail, start=size - 3 * 4096)[0]
    delta = 0.5 * eps + torch.copysign(torch.full_like(eps, 1e-3), eps)
    at = x[:tail].float()
    want = closed_forms.q_tanh(at, delta, False)[0]
    torch.testing.assert_close(value, want, rtol=1e-2, atol=1e-2)


def test_more_than_two_to_the_31_elements_in_channels_last():
    x = torch.full((2, 2**15, 2**15 + 8), -0.7, dtype=torch.bfloat16, device="cuda").mT
    seed = torch.tensor([9], device="cuda")
    value = q_activation(x, "tanh", 0.5, seed=seed)
    assert value.stride() == x.stride()
    num = 4096
    logical = value[1, -1, -num:].float()
    total = x.numel()
    eps = noise.normals(seed, 2 * num, start=(total - num) // 4096 * 4096)[0]
    eps = eps[(total - num) % 4096 :][:num]
    delta = 0.5 * eps + torch.copysign(torch.full_like(eps, 1e-3), eps)
    want = closed_forms.q_tanh(torch.full_like(eps, x[0, 0, 0].item()), delta, False)[0]
    torch.testing.assert_close(logical, want, rtol=1e-2, atol=1e-2)


def test_a_forward_launches_two_kernels():
    x, module = randn(10_000), qn.QELU().cuda()
    module(x)
    assert count_kernels(lambda: module(x)) == 2


def test_backward_keeps_x_and_the_seed():
    x, module = randn(2**20).requires_grad_(), qn.QELU().cuda()
    before = torch.cuda.memory_allocated()
    value = module(x)
    kept = torch.cuda.memory_allocated() - before - value.untyped_storage().nbytes()
    assert kept <= 4 * 512  # a few blocks of the allocator: the seed, and casts of λ and φ


# --- the limit ------------------------------------------------------------------------------------


def test_the_limit_is_one_kernel_each_way_and_keeps_x_alone():
    x = randn(10_000).requires_grad_()
    gradient = torch.ones_like(x)

    def train():
        return torch.autograd.grad(qn.q_limit(x, "gelu"), x, gradient)

    train()
    assert count_kernels(lambda: qn.q_limit(x, "gelu")) == 1
    assert count_kernels(train) == 2
    assert bytes_kept(lambda x: qn.q_limit(x, "gelu"), x) == 0


def test_the_limit_of_a_graph_follows_its_input():
    x, module = randn(1000), qn.QLimit("mish")
    module(x)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        value = module(x)
    x.copy_(x.flip(0))
    graph.replay()
    torch.testing.assert_close(value, module(x))


def test_the_limit_of_more_than_two_to_the_31_elements():
    x = torch.full((2**31 + 5,), -0.7, dtype=torch.bfloat16, device="cuda")
    tail = qn.q_limit(x, "tanh")[-9:]
    assert torch.equal(tail, qn.q_limit(x[:9], "tanh"))


@pytest.mark.parametrize("name", ["elu", "gelu", "mish"])
def test_a_compiled_limit_fuses_with_its_neighbours(name, compiled):
    x, module = randn(10_000), qn.QLimit(name)
    function = compiled(lambda x: 2 * module(x + 1) - 3)
    function(x)
    assert count_kernels(lambda: function(x)) == 1
    torch.testing.assert_close(function(x), 2 * module(x + 1) - 3, rtol=1e-5, atol=1e-5)


# --- comparisons ----------------------------------------------------------------------------------


def test_the_peak_of_a_trial_has_nothing_of_the_trial_before():
    def train(trial):
        model = trial.convert(nn.Sequential(nn.Linear(8, 8), nn.ELU(), nn.Linear(8, 8))).cuda()
        model.itself = [model]  # a cycle, which only the garbage collector frees
        model.large = torch.ones(trial.params["bytes"], dtype=torch.uint8, device="cuda")
        trial.report(loss=model(randn(4, 8)).mean())

    _, large, small = (  # the first one also has the workspace of cuBLAS
        run_trial(train, Trial("c0.1", 0, {"bytes": num}))[0].peak_bytes
        for num in (2**20, 2**28, 2**20)
    )
    assert large - small == pytest.approx(2**28 - 2**20, rel=0.01)


def test_worker_processes_use_the_gpu_after_their_parent_has(tmp_path):
    for package in ("cloudpickle", "jinja2", "matplotlib", "polars", "scipy"):
        pytest.importorskip(package)
    torch.cuda.init()

    def train(trial):
        model = trial.convert(nn.Sequential(nn.Linear(8, 8), nn.ELU(), nn.Linear(8, 8))).cuda()
        loss = model(torch.ones(4, 8, device="cuda")).mean()
        trial.report(loss=loss, num_gpus=torch.cuda.device_count())

    qn.compare(train, ["base", "c0.1"], 2, tmp_path, processes=2, say=lambda text: None)
    store = TrialStore.open(tmp_path / "store", readonly=True)
    assert len(store.finished) == 4
    for trial in store.finished.values():
        assert trial.measured.metrics["num_gpus"] == [1]
        assert trial.measured.peak_bytes > 0
        device = store.records.provenance[trial.provenance]["device"]
        assert device == torch.cuda.get_device_name()
