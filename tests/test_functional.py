"""q-activations as functions: shapes, dtypes, noise, evaluation modes, derivatives, bad input."""

import functools
import inspect
import math
import typing

import pytest
import torch
from torch import nn
from torch.autograd import gradcheck, gradgradcheck

import qneurons as qn
from qneurons import kernels, moments, q_activation, q_difference, q_limit, q_mean
from qneurons.activations import resolve, rows
from qneurons.arguments import Options
from qneurons.noise import draw_delta, draw_seed, seeded_delta

ROWS = rows()
INF, NAN = math.inf, math.nan


def smooth(y: torch.Tensor) -> torch.Tensor:
    """A callable that no row knows, equal to silu."""
    return y * torch.sigmoid(y)


each_row = pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
each_row_and_callable = pytest.mark.parametrize(
    "row", [*ROWS, resolve(smooth)], ids=lambda row: row.name
)


@pytest.fixture(autouse=True)
def one_thread():
    # A thread's share of a tensor ends in scalar code, which rounds differently from vector code;
    # and on a busy machine threads wait for each other longer than they work.
    num_threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(num_threads)


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def randn(*shape: int, dtype: torch.dtype = torch.float32, seed: int = 0) -> torch.Tensor:
    return 2 * torch.randn(shape, dtype=dtype, generator=seeded(seed))


def grad(y: torch.Tensor, x: torch.Tensor, create_graph: bool = False) -> torch.Tensor:
    return torch.autograd.grad(y, x, torch.ones_like(y), create_graph=create_graph)[0]


def g_and_slope(x: torch.Tensor, delta, row) -> tuple[torch.Tensor, torch.Tensor]:
    x = x.detach().requires_grad_()
    value = q_difference(x, delta, row)
    return value.detach(), grad(value, x)


# --- shapes and layouts ---------------------------------------------------------------------------

LAYOUTS = {
    "zero-dimensional": lambda: randn(1)[0],
    "empty": lambda: randn(0, 3),
    "1023": lambda: randn(1023),
    "channels-last": lambda: randn(2, 3, 4, 5).to(memory_format=torch.channels_last),
    "permuted": lambda: randn(3, 4, 5).permute(2, 0, 1),
    "transposed": lambda: randn(4, 5).t(),
    "sliced": lambda: randn(8, 9)[1::2, ::3],
    "expanded": lambda: randn(4, 1).expand(4, 5),
    "more-than-a-block": lambda: randn(4099),
    "large-channels-last": lambda: randn(2, 3, 30, 31).to(memory_format=torch.channels_last),
    "large-sliced": lambda: randn(100, 101)[:, ::2],
}
each_layout = pytest.mark.parametrize("layout", LAYOUTS)


@pytest.mark.parametrize("lam", [0.3, torch.ones(0, 1)])
@pytest.mark.parametrize("seed", [None, torch.zeros(0, 1, dtype=torch.int64)])
def test_a_batch_without_rows_has_no_groups(lam, seed):
    x = torch.empty(0, 5, requires_grad=True)
    y = qn.q_elu(x, lam, seed=seed)
    y.sum().backward()
    assert y.shape == x.grad.shape == x.shape


@each_layout
@each_row_and_callable
def test_layout_is_that_of_empty_like(row, layout):
    x = LAYOUTS[layout]()
    want = torch.empty_like(x)
    leaf = x.detach().requires_grad_()
    value = q_activation(leaf, row, generator=seeded())
    results = [
        value,
        grad(value, leaf),
        q_activation(x, row, generator=seeded()),
        q_difference(x, torch.full(x.shape, 0.5), row),
        q_limit(x, row),
    ]
    results.append(q_mean(x, row, 0.02))
    for result in results:
        assert (result.shape, result.stride(), result.dtype) == (x.shape, want.stride(), x.dtype)


@each_layout
@each_row_and_callable
def test_layout_changes_neither_noise_nor_value(row, layout):
    x = LAYOUTS[layout]()
    plain = x.clone(memory_format=torch.contiguous_format)
    got, want = (q_activation(y, row, lam=1.0, generator=seeded()) for y in (x, plain))
    torch.testing.assert_close(got.contiguous(), want, rtol=1e-5, atol=1e-6)


@each_row
def test_delta_of_another_layout_does_not_change_the_layout(row):
    x, delta = randn(4, 5), randn(5, 4, seed=1).t()
    result = q_difference(x, delta, row)
    assert result.is_contiguous()
    torch.testing.assert_close(result, q_difference(x, delta.contiguous(), row))


@each_row
def test_value_is_the_same_with_and_without_gradient(row):
    x, delta = randn(1023), randn(1023, seed=1)
    torch.testing.assert_close(
        g_and_slope(x, delta, row)[0], q_difference(x, delta, row), rtol=1e-6, atol=1e-7
    )


@each_row_and_callable
def test_meta_device(row):
    x = torch.empty(2, 3, dtype=torch.float16, device="meta", requires_grad=True)
    on_meta = torch.ones(3, device="meta")
    results = [q_activation(x, row, lam) for lam in (0.02, torch.tensor(0.5), on_meta)]
    results += [q_difference(x, on_meta, row), q_limit(x, row)]
    for tensor in [*results, *(grad(result, x) for result in results)]:
        assert (tensor.shape, tensor.dtype, tensor.device) == (x.shape, x.dtype, x.device)


@pytest.mark.parametrize("lam", [0.02, 0.5, torch.tensor(0.5)])
def test_mean_on_the_meta_device(lam):
    x = torch.empty(2, 3, device="meta")
    assert q_mean(x, "elu", lam).device == x.device


# --- dtypes ---------------------------------------------------------------------------------------


def within_one_ulp(got: torch.Tensor, want: torch.Tensor) -> torch.Tensor:
    info = torch.finfo(got.dtype)
    exponent = want.abs().clamp(min=info.tiny).log2().floor()
    return (got.double() - want).abs() <= info.eps * torch.exp2(exponent)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@each_row
def test_half_precision_is_within_one_ulp_of_float64(row, dtype):
    x = torch.linspace(-4.93, 4.87, 57).to(dtype)[:, None]
    delta = torch.tensor([0.0, 1e-6, -1e-3, 0.03, -0.4, -0.999, -1.3, 2.5])
    want = g_and_slope(*torch.broadcast_tensors(x.double(), delta.double()), row)
    got = g_and_slope(*torch.broadcast_tensors(x, delta), row)
    for low, high in zip(got, want, strict=True):
        assert low.dtype == dtype
        assert within_one_ulp(low, high).all()
    assert within_one_ulp(q_limit(x, row), q_limit(x.double(), row)).all()
    assert within_one_ulp(q_mean(x, row, 0.5), q_mean(x.double(), row, 0.5)).all()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_every_result_has_the_dtype_of_x(dtype):
    x = randn(5, dtype=torch.float64).to(dtype).requires_grad_()
    for result in (
        q_difference(x, torch.tensor(0.5, dtype=torch.float64), "elu"),
        q_limit(x, "elu"),
        q_mean(x, "elu", 0.1),
        q_activation(x, "elu", torch.tensor(0.1, dtype=torch.float64)),
        q_activation(x, smooth),
    ):
        assert result.dtype == dtype
        assert grad(result, x).dtype == dtype


def test_noise_of_half_precision_is_that_of_float32():
    x = randn(1000).half()
    low, high = (q_activation(y, "tanh", 1.0, generator=seeded()) for y in (x, x.float()))
    assert torch.equal(low, high.half())


# --- δ --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("zero", [0.0, -0.0])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@each_row_and_callable
def test_zero_delta_is_the_limit(row, dtype, zero):
    x = randn(200, dtype=dtype).requires_grad_()
    at_zero, limit = q_difference(x, zero, row), q_limit(x, row)
    tolerance = {"rtol": 8 * torch.finfo(dtype).eps, "atol": 4 * torch.finfo(dtype).eps}
    torch.testing.assert_close(at_zero, limit, **tolerance)
    tolerance["atol"] *= 4  # the slope of the limit is autograd's and cancels in places
    torch.testing.assert_close(grad(at_zero, x), grad(limit, x), **tolerance)


@pytest.mark.parametrize("zero", [0.0, -0.0])
@each_row
def test_zero_delta_at_a_kink_has_the_slope_of_the_limit(row, zero):
    x = torch.tensor([*row.kinks(**row.parameters), 0.0], requires_grad=True)
    value, limit = q_difference(x, zero, row), q_limit(x, row)
    torch.testing.assert_close(value, limit)
    torch.testing.assert_close(grad(value, x), grad(limit, x))


@each_row_and_callable
def test_difference_is_the_quotient(row):
    x, delta = randn(50, dtype=torch.float64), randn(50, dtype=torch.float64, seed=1)
    want = (row(x * (1 + delta)) - row(x)) / delta
    torch.testing.assert_close(q_difference(x, delta, row), want, rtol=1e-9, atol=1e-12)


@each_row_and_callable
def test_delta_and_x_broadcast_against_each_other(row):
    x = randn(3, 1).requires_grad_()
    delta = torch.tensor([0.5, -0.3, -1.5, 2.0])
    value = q_difference(x, delta, row)
    wide = x.detach().expand(3, 4).contiguous().requires_grad_()
    want = q_difference(wide, delta.expand(3, 4).contiguous(), row)
    torch.testing.assert_close(value, want, rtol=1e-6, atol=1e-7)
    torch.testing.assert_close(grad(value, x), grad(want, wide).sum(1, keepdim=True))
    assert q_difference(randn(1)[0], delta, row).shape == (4,)
    assert torch.equal(q_difference(x, 0.5, row), q_difference(x, torch.tensor(0.5), row))


def test_delta_is_not_changed_in_place():
    delta = torch.tensor([0.0, 0.5])
    q_difference(randn(2), delta, "elu")
    assert delta.tolist() == [0.0, 0.5]


@each_row
def test_x_is_not_changed_in_place(row):
    x = randn(100)
    before = x.clone()
    g_and_slope(x, randn(100, seed=1), row)
    q_limit(x, row), q_mean(x, row, 0.1)
    assert torch.equal(x, before)


# --- noise ----------------------------------------------------------------------------------------


def delta_of_seed(x: torch.Tensor, seed: torch.Tensor) -> torch.Tensor:
    lam, phi = torch.tensor([0.7]), torch.tensor([0.1])
    return seeded_delta(x.shape, seed, lam, phi, x.numel(), dtype=x.dtype)


@each_row_and_callable
def test_training_is_the_difference_at_the_delta_of_the_seed(row):
    x, seed = randn(40, 50), torch.tensor([11])
    want = q_difference(x, delta_of_seed(x, seed), row)
    got = q_activation(x, row, 0.7, 0.1, seed=seed)
    torch.testing.assert_close(got, want, rtol=1e-5, atol=1e-5)


@each_row
def test_a_generator_draws_the_seed_of_a_kernel(row):
    if not kernels.is_fused("cpu", torch.float32, f"q_{row.name}"):
        pytest.skip("no kernel was built for the CPU")
    x, seed = randn(40, 50), draw_seed(1, "cpu", seeded())
    got = q_activation(x, row, 0.7, 0.1, generator=seeded())
    assert torch.equal(got, q_activation(x, row, 0.7, 0.1, seed=seed))


@pytest.mark.parametrize("served", ["callable", "row without a kernel"])
def test_without_a_kernel_delta_is_drawn_from_the_generator(served, monkeypatch):
    monkeypatch.setattr(kernels, "is_fused", lambda *_: False)
    activation = smooth if served == "callable" else "elu"
    x = randn(40, 50)
    drawn = draw_delta(x.shape, 0.7, 0.1, dtype=x.dtype, device="cpu", generator=seeded())
    got = q_activation(x, activation, 0.7, 0.1, generator=seeded())
    assert torch.equal(got, q_difference(x, drawn, activation))


def test_a_module_without_a_kernel_takes_any_shape(monkeypatch):
    monkeypatch.setattr(kernels, "is_fused", lambda *_: False)
    for shape in ((), (0,), (3, 1, 2)):
        x = torch.ones(shape, requires_grad=True)
        value = qn.QELU(lam=1.0)(x)
        value.sum().backward()
        assert value.shape == x.grad.shape == shape


@pytest.mark.parametrize("activation", ["elu", smooth], ids=["row", "callable"])
@pytest.mark.parametrize(("shape", "dim"), [((3, 8, 20), 0), ((5, 3, 20), 1), ((9, 6, 3), 2)])
def test_a_group_draws_the_same_alone_and_beside_others(activation, shape, dim):
    x = randn(*shape)
    trailing = (1,) * (2 - dim)
    seed = torch.tensor([5, 6, 7]).reshape(-1, *trailing)
    lam = torch.tensor([0.1, 0.5, 2.0]).reshape(-1, *trailing)
    leaf = x.clone().requires_grad_()
    packed = q_activation(leaf, activation, lam, seed=seed)
    slopes = grad(packed, leaf)
    for run in range(3):
        alone = x.select(dim, run).clone().requires_grad_()
        value = q_activation(alone, activation, lam.flatten()[run], seed=seed.flatten()[run])
        torch.testing.assert_close(packed.select(dim, run), value)
        torch.testing.assert_close(slopes.select(dim, run), grad(value, alone))


def test_seeds_leave_the_generator_alone():
    before = torch.get_rng_state()
    q_activation(randn(100), "elu", seed=torch.tensor(1))
    assert torch.equal(torch.get_rng_state(), before)


def test_generator_is_the_only_source_of_noise():
    x, generator = randn(1000), seeded(3)
    before = torch.get_rng_state()
    first, second = (q_activation(x, "tanh", generator=generator) for _ in range(2))
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.equal(first, q_activation(x, "tanh", generator=seeded(3)))
    assert (first != second).float().mean() > 0.99
    assert (first != q_activation(x, "tanh", generator=seeded(4))).float().mean() > 0.99


def test_without_a_generator_the_default_one_is_the_source():
    x = randn(1000)
    torch.manual_seed(3)
    first, second = (q_activation(x, "tanh") for _ in range(2))
    torch.manual_seed(3)
    assert torch.equal(first, q_activation(x, "tanh"))
    assert torch.equal(second, q_activation(x, "tanh"))
    assert (first != second).float().mean() > 0.99


def test_every_element_has_its_own_noise():
    value = q_activation(torch.full((1000,), -0.5), "tanh", generator=seeded())
    assert value.unique().numel() > 990


def test_evaluation_draws_nothing():
    before = torch.get_rng_state()
    for eval_mode in ("limit", "mean"):
        q_activation(randn(10), "tanh", training=False, eval_mode=eval_mode)
    assert torch.equal(torch.get_rng_state(), before)


LAM_SHAPES = {"channels": (3, 1, 1), "samples": (2, 1, 1, 1), "ends": (2, 1, 1, 40), "all": None}


@pytest.mark.parametrize("size", [20, 2000], ids=["few", "many"])
@pytest.mark.parametrize("shape", LAM_SHAPES)
def test_a_lam_that_broadcasts_scales_its_own_part(shape, size):
    """At x = -1 the deviation of q-tanh grows with λ; every element has noise of its own."""
    x = torch.full((2, 3, size, 40), -1.0)
    lam = torch.full(LAM_SHAPES[shape] or x.shape, 0.01)
    lam[0] = 0.3
    value = q_activation(x, "tanh", lam, generator=seeded())
    is_large = (lam > 0.1).expand_as(x)
    large, small = value[is_large], value[~is_large]
    assert large.std() > 10 * small.std()
    assert value.unique().numel() > value.numel() / 2


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.float64])
def test_lam_as_a_tensor_is_lam_as_a_number(dtype):
    x = randn(100)
    got = q_activation(x, "gelu", torch.tensor(0.5, dtype=dtype), generator=seeded())
    assert torch.equal(got, q_activation(x, "gelu", 0.5, generator=seeded()))
    torch.testing.assert_close(
        q_mean(x, "gelu", torch.tensor(0.5, dtype=dtype)), q_mean(x, "gelu", 0.5)
    )


@each_row
def test_lam_zero_leaves_the_two_values_at_phi(row):
    x = randn(1).expand(200)
    got = q_activation(x, row, 0.0, 0.3, generator=seeded())
    ends = [q_difference(x, sign * 0.3, row) for sign in (1, -1)]
    is_end = [(got - end).abs() <= 1e-6 for end in ends]
    assert (is_end[0] | is_end[1]).all()
    assert all(mask.float().mean() > 0.3 for mask in is_end)


@each_row_and_callable
def test_lam_and_phi_zero_give_the_limit_and_draw_nothing(row):
    x, generator = randn(200), seeded()
    before = torch.get_rng_state(), generator.get_state()
    assert torch.equal(q_activation(x, row, 0.0, 0.0, generator=generator), q_limit(x, row))
    assert torch.equal(q_activation(x, row, 0, 0), q_limit(x, row))
    assert torch.equal(torch.get_rng_state(), before[0])
    assert torch.equal(generator.get_state(), before[1])
    got = q_activation(x, row, torch.tensor(0.0), 0.0)  # reading a tensor would wait for its device
    torch.testing.assert_close(got, q_limit(x, row), rtol=1e-5, atol=1e-6)


@each_row
def test_phi_zero_is_finite_with_its_gradient(row):
    x = randn(2**16).requires_grad_()
    value = q_activation(x, row, 1e-9, 0.0, generator=seeded())
    torch.testing.assert_close(value, q_limit(x, row), rtol=1e-5, atol=1e-5)
    assert grad(value, x).isfinite().all()


# --- NaN and inf ----------------------------------------------------------------------------------


@pytest.mark.parametrize("delta", [0.0, 0.5, -0.5, -1.0, -1.5])
@each_row_and_callable
def test_nan_propagates(row, delta):
    value, slope = g_and_slope(torch.tensor([NAN, 1.0]), delta, row)
    assert value.isnan().tolist() == [True, False]
    assert slope[1].isfinite()
    assert q_difference(torch.tensor([NAN]), delta, row).isnan()


@each_row_and_callable
def test_nan_propagates_through_limit_mean_and_draw(row):
    x = torch.tensor([NAN])
    assert q_limit(x, row).isnan()
    assert q_mean(x, row, 0.02).isnan()
    assert q_mean(x, row, 1.0).isnan()
    assert q_activation(x, row, generator=seeded()).isnan()


@pytest.mark.parametrize("delta", [0.5, -0.5, -1.5, -3.0])
@each_row
def test_infinity_gives_the_limit(row, delta):
    x = torch.tensor([-INF, INF], dtype=torch.float64)
    value = q_difference(x, delta, row)
    far = q_difference(x.clamp(-1e200, 1e200), delta, row)
    expected = torch.where(far.abs() > 1e100, far * INF, far)
    if row.name == "sin":
        expected = torch.full_like(x, NAN)
    torch.testing.assert_close(value, expected, rtol=0, atol=1e-100, equal_nan=True)


@pytest.mark.parametrize("delta", [0.5, -0.5, -1.5])
@pytest.mark.parametrize("name", ["relu", "leaky_relu", "identity"])
def test_plus_infinity_stays_plus_infinity(name, delta):
    value, _ = g_and_slope(torch.tensor([INF]), delta, name)
    assert value.item() == INF


# --- evaluation -----------------------------------------------------------------------------------


@each_row
def test_the_function_of_a_row(row):
    function = getattr(qn, f"q_{row.name}")
    assert function is getattr(qn.functional, f"q_{row.name}")
    x, seed = randn(100), torch.tensor(3)
    for shared in (
        {"lam": 0.5, "phi": 0.1, "seed": seed},
        {"lam": 0.5, "phi": 0.1, "training": False, "eval_mode": "mean"},
        {"training": False},
        {"training": False, "eval_mode": "sample", "seed": seed},
    ):
        assert torch.equal(function(x, **shared), q_activation(x, row, **shared))
    from_generator = function(x, 0.5, 0.1, generator=seeded())
    assert torch.equal(from_generator, q_activation(x, row, 0.5, 0.1, generator=seeded()))
    for name, value in row.parameters.items():
        other = {name: value + 0.5}
        got = function(x, seed=seed, **other)
        assert torch.equal(got, q_activation(x, resolve(row, **other), seed=seed))
        assert not torch.equal(got, function(x, seed=seed))
        assert f"{name}:" in function.__doc__


@each_row
def test_the_signature_of_a_function_is_that_of_its_row(row):
    """As help() shows it, and as type checkers read it."""
    of_q_activation = inspect.signature(q_activation).parameters.values()
    first = [p for p in of_q_activation if p.name in ("x", "lam", "phi")]
    keywords = [p for p in of_q_activation if p.kind is inspect.Parameter.KEYWORD_ONLY]
    own = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=value, annotation=float)
        for name, value in row.parameters.items()
    ]
    function = getattr(qn, f"q_{row.name}")
    signature = inspect.signature(function)
    assert list(signature.parameters.values()) == [*first, *own, *keywords]
    assert signature.return_annotation is torch.Tensor
    assert function.__annotations__["options"] == typing.Unpack[Options]


def test_the_options_of_a_function_are_the_keywords_of_q_activation():
    keywords = {
        name: parameter.annotation
        for name, parameter in inspect.signature(q_activation).parameters.items()
        if parameter.kind is inspect.Parameter.KEYWORD_ONLY
    }
    assert typing.get_type_hints(Options) == keywords


def test_there_is_a_function_for_every_row_and_no_other():
    names = [name for name in vars(qn.functional) if name.startswith("q_")]
    others = {"q_activation", "q_difference", "q_limit", "q_mean"}
    assert [name for name in names if name not in others] == [f"q_{row.name}" for row in ROWS]


@each_row_and_callable
def test_evaluation_modes(row):
    x = randn(50)
    evaluate = functools.partial(q_activation, x, row, 0.5, 0.01, training=False)
    assert torch.equal(evaluate(), q_limit(x, row))
    assert torch.equal(evaluate(eval_mode="limit"), q_limit(x, row))
    assert torch.equal(evaluate(eval_mode="mean"), q_mean(x, row, 0.5, 0.01))
    assert torch.equal(
        evaluate(eval_mode="sample", generator=seeded()),
        q_activation(x, row, 0.5, 0.01, generator=seeded()),
    )


@pytest.mark.parametrize("eval_mode", ["limit", "mean", "sample"])
def test_eval_mode_does_not_matter_in_training(eval_mode):
    x = randn(50)
    got = q_activation(x, "elu", eval_mode=eval_mode, generator=seeded())
    assert torch.equal(got, q_activation(x, "elu", generator=seeded()))


@each_row
def test_limit_is_the_derivative_times_x(row):
    x = randn(200, dtype=torch.float64).requires_grad_()
    torch.testing.assert_close(q_limit(x, row), x * grad(row(x), x), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("lam", [0.02, 1.0])
@each_row_and_callable
def test_mean_is_the_mean_of_draws(row, lam):
    x = torch.tensor([-1.3, 0.8], dtype=torch.float64)
    draws = q_activation(x.expand(50_000, 2), row, lam, generator=seeded())
    error = (draws.mean(0) - q_mean(x, row, lam)).abs()
    assert (error <= 4.5 * draws.std(0) / math.sqrt(len(draws)) + 1e-12).all()


@each_row
def test_mean_is_the_first_moment(row):
    x = torch.tensor([-2.7, -0.4, 0.9, -10.0, 22.0], dtype=torch.float64)
    x = x[:3] if row.name == "sin" else x
    bounds = torch.where(x.abs() <= 3, 1e-9, 3e-9)
    for lam, error in ((0.02, bounds), (0.1, bounds.where(x.abs() <= 3, 2e-5)), (5.0, bounds)):
        mean, variance = moments.mean(x, row, lam), moments.variance(x, row, lam)
        error = 1e-5 if row.name == "sin" else error
        allowed = error * ((mean.square() + variance).sqrt() + 1e-12)
        assert ((q_mean(x, row, lam) - mean).abs() <= allowed).all()


@each_row
def test_mean_of_a_small_float32_at_lam_and_phi_zero_is_the_limit(row):
    x = torch.tensor([-1e-3, 1e-6, 1e-3])
    for lam in (0.0, torch.tensor(0.0)):
        torch.testing.assert_close(q_mean(x, row, lam, 0.0), q_limit(x, row), rtol=1e-5, atol=0)


def test_limit_of_a_huge_input_is_finite():
    x = torch.tensor([-1e20, 1e20])
    torch.testing.assert_close(q_limit(x, "gelu_tanh"), torch.tensor([0.0, 1e20]))


def test_mean_at_lam_and_phi_zero_is_the_limit():
    x = randn(50, dtype=torch.float64)
    torch.testing.assert_close(q_mean(x, "gelu", 0.0, 0.0), q_limit(x, "gelu"))


def test_mean_of_a_lam_that_broadcasts():
    x, lam = randn(3, 4, dtype=torch.float64), torch.tensor([[0.02], [0.7], [3.0]])
    got = q_mean(x, "elu", lam)
    for i in range(3):
        torch.testing.assert_close(got[i], q_mean(x[i], "elu", lam[i].item()), rtol=1e-7, atol=1e-8)


# --- means of powers ------------------------------------------------------------------------------

each_power = pytest.mark.parametrize(
    "row",
    [*(row for row in ROWS if row.powers), resolve("leaky_relu", negative_slope=-2.0)],
    ids=str,
)


@each_power
def test_the_mean_of_a_power_is_exact_and_needs_no_quadrature(row, monkeypatch):
    monkeypatch.setattr(qn.functional, "delta_rule", None)
    x = torch.tensor([-40.0, -1.0, -1e-5, 1e-9, 0.7, 1e3], dtype=torch.float64)
    for lam in (0.02, 0.3, 1.0, 9.0, torch.linspace(0.1, 5.0, 6, dtype=torch.float64)):
        for phi in (0.0, 0.4):
            expected = moments.mean(x, row, lam, phi)
            allowed = 3e-9 * q_limit(x, row).abs() + 1e-9 * q_limit(-x, row).abs()
            assert ((q_mean(x, row, lam, phi) - expected).abs() <= allowed).all()
    torch.testing.assert_close(q_mean(x, row, 0.0, 0.4), q_limit(x, row))


@pytest.mark.parametrize("lam", [0.1, 2.0])
@each_power
def test_the_mean_of_a_power_at_zero_and_infinity(row, lam):
    """By the function, forward and backward, and by a module, which looks its constants up."""
    x = torch.tensor([-INF, -0.0, 0.0, INF, NAN], requires_grad=True)
    far, near = (q_mean(torch.tensor([-size, size]), row, lam).tolist() for size in (1e9, 1e-9))
    ends = [y * INF if y else 0.0 for y in far]
    expected = torch.tensor([ends[0], 0, 0, ends[1], NAN])
    slope = torch.tensor([y / z for y, z in zip(near, (-1e-9, 1e-9), strict=True)])
    for mean in (
        functools.partial(q_mean, activation=row, lam=lam),
        qn.QActivation(row, lam, eval_mode="mean").eval(),
    ):
        value = mean(x)
        torch.testing.assert_close(value, expected, equal_nan=True)
        gradients = grad(value, x), torch.func.jvp(mean, (x.detach(),), (torch.ones(5),))[1]
        for gradient in gradients:
            torch.testing.assert_close(gradient[1:3], slope[[1, 1]], rtol=1e-6, atol=1e-8)
            assert gradient[4].isnan()
            if row.powers(**row.parameters)[0] == 1:
                torch.testing.assert_close(gradient[[0, 3]], slope, rtol=1e-6, atol=1e-8)


def test_the_mean_of_a_power_under_transforms():
    x = randn(3, 50).requires_grad_()
    found = torch.vmap(torch.func.jacfwd(lambda x: q_mean(x, "relu2", 1.0)))(x.detach())
    expected = grad(q_mean(x, "relu2", 1.0), x)
    torch.testing.assert_close(found, torch.diag_embed(expected))


# --- derivatives ----------------------------------------------------------------------------------

# No x and no x(1 + δ) is near a kink of any row: -3, -1, 0, 1, 3, 6.
X = (-4.3, -2.1, -0.7, -0.05, 0.04, 0.6, 1.7, 6.7)
DELTAS = (0.0, 1e-9, 0.3, -0.4, -0.999, -1.0, -1.3, 5.0)


@each_row_and_callable
def test_gradients(row):
    x = torch.tensor(X, dtype=torch.float64, requires_grad=True)
    for delta in DELTAS:
        assert gradcheck(q_difference, (x, delta, row), check_forward_ad=True, fast_mode=True)


@each_row_and_callable
def test_second_gradients(row):
    x = torch.tensor(X, dtype=torch.float64, requires_grad=True)
    delta = torch.tensor(DELTAS, dtype=torch.float64).roll(-2)  # a small x meets δ = -1
    assert gradgradcheck(q_difference, (x, delta, row), check_fwd_over_rev=True, fast_mode=True)


@each_row_and_callable
def test_second_and_third_derivatives(row):
    def slope(x, delta):
        return grad(q_difference(x, delta, row), x, create_graph=True)

    def curvature(x, delta):
        return grad(slope(x, delta), x, create_graph=True)

    x, delta = torch.cartesian_prod(*torch.tensor([X, DELTAS], dtype=torch.float64)).T
    right, left, x = ((x + step).detach().requires_grad_() for step in (1e-5, -1e-5, 0))
    for derivative in (slope, curvature):
        want = (derivative(right, delta) - derivative(left, delta)) / 2e-5
        torch.testing.assert_close(grad(derivative(x, delta), x), want, rtol=1e-5, atol=1e-5)


@each_row
def test_gradients_of_limit_and_mean(row):
    x = torch.tensor(X, dtype=torch.float64, requires_grad=True)
    assert gradcheck(q_limit, (x, row))
    assert gradgradcheck(q_limit, (x, row))
    assert gradcheck(q_mean, (x, row, 0.02), fast_mode=True)


def test_gradient_of_training_is_that_at_the_drawn_delta():
    x = randn(40, 50)
    leaf = x.clone().requires_grad_()
    seed = torch.tensor([11])
    value = q_activation(leaf, "gelu", 0.7, 0.1, seed=seed)
    want = g_and_slope(x, delta_of_seed(x, seed), "gelu")[1]
    torch.testing.assert_close(grad(value, leaf), want, rtol=1e-5, atol=1e-5)


def test_gradient_reaches_the_parameters_of_a_module():
    prelu = nn.PReLU(init=0.3)
    x = torch.tensor([-1.0, -2.0, 3.0], requires_grad=True)
    value = q_difference(x, torch.tensor([0.5, -0.5, -3.0]), prelu)
    value.sum().backward()
    torch.testing.assert_close(value.detach(), torch.tensor([-0.3, -0.6, 1.6]))
    # f(x) is 0.3 x below zero: there g is 0.3 x, and (0.3 (-6) - 3) / -3 at the last.
    torch.testing.assert_close(prelu.weight.grad, torch.tensor([-1.0 - 2.0 + 2.0]))
    torch.testing.assert_close(x.grad, torch.tensor([0.3, 0.3, 1.6 / 3]))


def test_no_graph_without_grad():
    x = randn(3).requires_grad_()
    with torch.no_grad():
        assert not q_activation(x, "elu").requires_grad
    assert not q_activation(x.detach(), "elu").requires_grad


# --- bytes kept for backward ----------------------------------------------------------------------


def bytes_kept(function, x: torch.Tensor) -> int:
    kept = {}

    def pack(tensor):
        storage = tensor.untyped_storage()
        kept[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        result = function(x)
    assert result.requires_grad
    return sum(kept.values())


needs_kernel = pytest.mark.skipif(
    not kernels.is_fused("cpu", torch.float32, "q_elu"), reason="no kernel was built for the CPU"
)


@needs_kernel
@each_row
def test_nothing_but_x_and_a_seed_is_kept(row):
    x = randn(2**12).requires_grad_()
    seed, lam, phi = 8, 4, 4
    assert bytes_kept(lambda x: q_activation(x, row), x) == 4 * x.numel() + seed + lam + phi


def test_a_given_delta_and_the_slope_are_kept_and_no_more():
    x, delta = randn(2**12).requires_grad_(), randn(2**12, seed=1)
    assert bytes_kept(lambda x: q_difference(x, delta, "elu"), x) == 3 * 4 * x.numel()


# --- bad input ------------------------------------------------------------------------------------


FLOATS = torch.ones(4, 3)
BAD_CALLS = {
    "unknown activation": (
        lambda: q_activation(FLOATS, "ellu"),
        (ValueError, "'ellu'.*'elu'.*: sigmoid, tanh, relu"),
    ),
    "no activation": (lambda: q_activation(FLOATS, None), (TypeError, 'None.*"elu"')),
    "training as text": (
        lambda: q_activation(FLOATS, "elu", training="no"),
        (TypeError, "training must be True or False, got 'no'"),
    ),
    "number for generator": (
        lambda: q_activation(FLOATS, "elu", generator=5),
        (TypeError, "generator must be a torch.Generator, got 5; .*manual_seed"),
    ),
    "class for activation": (
        lambda: q_limit(FLOATS, nn.ELU),
        (TypeError, r"<class .*ELU'>.*nn\.ELU\(alpha=0\.5\)"),
    ),
    "shape of delta": (
        lambda: q_difference(FLOATS, torch.ones(4), "elu"),
        (ValueError, r"delta.* broadcast.* \(4,\) and \(4, 3\)"),
    ),
    "delta with gradient": (
        lambda: q_difference(FLOATS, torch.ones(3, requires_grad=True), "elu"),
        (ValueError, r"delta.* grad.*delta\.detach\(\)"),
    ),
    "delta of text": (lambda: q_difference(FLOATS, "0.1", "elu"), (TypeError, "delta.* str")),
    "complex delta": (
        lambda: q_difference(FLOATS, torch.ones(3) * 1j, "elu"),
        (TypeError, "delta.* torch.complex64"),
    ),
    "parameter as text": (lambda: qn.q_elu(FLOATS, alpha="1"), (ValueError, "elu: alpha.*'1'")),
    "no parameter": (lambda: qn.QELU(alpha=None), (ValueError, "elu: alpha.*None")),
    "unknown parameter": (lambda: qn.q_elu(FLOATS, beta=1.0), (TypeError, "'beta'")),
    "parameter that must be positive": (
        lambda: qn.q_celu(FLOATS, alpha=-1.0),
        (ValueError, "celu.*alpha > 0.*alpha=-1"),
    ),
}


@pytest.mark.parametrize("name", BAD_CALLS)
def test_bad_argument(name):
    call, (error, message) = BAD_CALLS[name]
    with pytest.raises(error, match=message):
        call()


def test_a_callable_must_keep_the_shape():
    with pytest.raises(ValueError, match="keep the shape"):
        q_activation(FLOATS, lambda y: y.sum())
