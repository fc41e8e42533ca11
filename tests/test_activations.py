"""The table: what resolves to which row, the formulas against torch, and rows of one's own."""

import copy
import functools
import pickle
import re

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import qneurons
from qneurons.activations import Activation, register, resolve, rows, unregister

NAMES = ["sigmoid", "tanh", "relu", "relu2", "leaky_relu", "elu", "selu", "celu", "softplus"]
NAMES += [
    "silu",
    "gelu",
    "gelu_tanh",
    "quick_gelu",
    "mish",
    "hardtanh",
    "relu6",
    "hardsigmoid",
    "hardswish",
]
NAMES += ["softsign", "sin", "identity"]
TABLE = {row.name: row for row in rows()}
SETTINGS = [(name, {}) for name in NAMES] + [
    ("leaky_relu", {"negative_slope": 0.3}),
    ("leaky_relu", {"negative_slope": -0.5}),
    ("elu", {"alpha": 0.5}),
    ("elu", {"alpha": -2.0}),
    ("celu", {"alpha": 0.25}),
    ("softplus", {"beta": 3.0}),
    ("hardtanh", {"min_val": -0.5, "max_val": 2.0}),
]
every_setting = pytest.mark.parametrize(
    ("name", "parameters"), SETTINGS, ids=lambda value: str(value or "")
)


def points(dtype=torch.float64):
    generator = torch.Generator().manual_seed(0)
    return (torch.randn(997, generator=generator, dtype=torch.float64) * 4).to(dtype)


def torch_form(name, parameters):
    """torch's own module of a row, or its function where there is no module."""
    if name == "gelu_tanh":
        return nn.GELU(approximate="tanh")
    if name == "relu2":
        return lambda x: F.relu(x).square()
    if name == "quick_gelu":
        return lambda x: swish(x, 1.702)
    module = TABLE[name].module
    return module(**parameters) if module else getattr(torch, name)


def differentiable_form(name, parameters):
    """torch's form, except hardsigmoid, whose slope torch rounds to float32."""
    if name == "hardsigmoid":
        return lambda x: F.hardtanh(x, -3, 3) / 6
    return torch_form(name, parameters)


def swish(x, beta=1.0):
    return x * torch.sigmoid(beta * x)


def swish_derivative(x, beta=1.0):
    s = torch.sigmoid(beta * x)
    return s * (1 + beta * x * (1 - s))


class Swish(nn.Module):
    def __init__(self, beta=1.0):
        super().__init__()
        self.beta = beta

    def forward(self, x):
        return swish(x, self.beta)


class Doubled(nn.ReLU):
    def forward(self, x):
        return 2 * super().forward(x)


@pytest.fixture
def registered():
    """Registers rows for one test."""
    names = []

    def add(name, *args, **kwargs):
        row = register(name, *args, **kwargs)
        names.append(name)
        return row

    yield add
    for name in names:
        unregister(name)


# --- the rows -------------------------------------------------------------------------------------


def test_the_table_has_the_promised_rows():
    assert [row.name for row in rows()] == NAMES


@every_setting
def test_f_is_torch_s(name, parameters):
    row = resolve(name, **parameters)
    x = points()
    # torch's softplus is the identity from 20 on, ours from where float64 cannot tell.
    atol = 3e-9 if name == "softplus" else 1e-14
    torch.testing.assert_close(row(x), torch_form(name, parameters)(x), rtol=1e-13, atol=atol)


@every_setting
def test_derivative_is_autograd_s(name, parameters):
    row = resolve(name, **parameters)
    x = points().requires_grad_()
    (expected,) = torch.autograd.grad(differentiable_form(name, parameters)(x).sum(), x)
    derivative = row.derivative(x, **row.parameters)
    assert derivative.shape == x.shape
    assert derivative.dtype == x.dtype
    atol = 3e-9 if name == "softplus" else 1e-14
    torch.testing.assert_close(derivative, expected, rtol=1e-12, atol=atol)


@every_setting
def test_derivative_is_differentiable(name, parameters):
    row = resolve(name, **parameters)
    x = points().requires_grad_()
    y = differentiable_form(name, parameters)(x)
    (first,) = torch.autograd.grad(y.sum(), x, create_graph=True)
    expected = torch.zeros_like(x)
    if first.requires_grad:
        (expected,) = torch.autograd.grad(first.sum(), x)
    derivative = row.derivative(x, **row.parameters)
    second = torch.zeros_like(x)
    if derivative.requires_grad:
        (second,) = torch.autograd.grad(derivative.sum(), x)
    atol = 1e-7 if name == "softplus" else 1e-13
    torch.testing.assert_close(second, expected, rtol=1e-11, atol=atol)


@every_setting
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
def test_f_and_derivative_keep_the_dtype(name, parameters, dtype):
    row = resolve(name, **parameters)
    x = points(dtype).reshape(1, 997, 1)
    assert row(x).dtype == row.derivative(x, **row.parameters).dtype == dtype
    assert row(x).shape == row.derivative(x, **row.parameters).shape == x.shape


@every_setting
def test_kinks_are_where_the_derivative_jumps(name, parameters):
    row = resolve(name, **parameters)

    def jump(points):
        at = torch.tensor(points, dtype=torch.float64)
        left = row.derivative(at - 1e-9, **row.parameters)
        return (row.derivative(at + 1e-9, **row.parameters) - left).abs()

    kinks = row.kinks(**row.parameters)
    assert (jump(kinks) > 0.1).all()
    others = set(torch.arange(-8, 8.1, 0.25).tolist()) - set(kinks)
    assert (jump(sorted(others)) < 1e-7).all()


@every_setting
def test_derivative_at_a_kink_is_the_right_one(name, parameters):
    row = resolve(name, **parameters)
    at = torch.tensor(row.kinks(**row.parameters), dtype=torch.float64)
    torch.testing.assert_close(
        row.derivative(at, **row.parameters), row.derivative(at + 1e-12, **row.parameters)
    )


@every_setting
def test_powers_are_those_of_f(name, parameters):
    """Of a row without them f(2y) is not always the same multiple of f(y)."""
    row, y = resolve(name, **parameters), torch.linspace(0.1, 7, 30, dtype=torch.float64)
    if row.powers is not None:
        power, below, above = row.powers(**row.parameters)
        assert power in (1, 2)
        torch.testing.assert_close(row(y), above * y**power)
        torch.testing.assert_close(row(-y), below * (-y) ** power)
        return
    ratios = torch.stack([row(2 * y) / row(y), row(-2 * y) / row(-y)]).nan_to_num()
    assert (ratios.amax(1) - ratios.amin(1)).max() > 1e-3


def test_derivatives_do_not_vanish_early_in_the_tails():
    x = torch.tensor([-30.0, 30.0], dtype=torch.float64)
    for name in ("sigmoid", "tanh"):
        derivative = resolve(name).derivative(x)
        assert (derivative > 0).all()
        assert derivative[0] == derivative[1]


# --- what resolves to which row -------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
def test_a_name_resolves_to_its_row(name):
    assert resolve(name) is TABLE[name]
    assert resolve(TABLE[name]) is TABLE[name]


@pytest.mark.parametrize("name", [name for name in NAMES if TABLE[name].module])
def test_a_module_resolves_to_its_row(name):
    assert resolve(torch_form(name, {})) == TABLE[name]


@pytest.mark.parametrize(
    ("name", "functions"),
    {
        "sigmoid": [torch.sigmoid, F.sigmoid, torch.special.expit, Tensor.sigmoid],
        "tanh": [torch.tanh, F.tanh, Tensor.tanh],
        "relu": [torch.relu, F.relu, F.relu_, torch.relu_, Tensor.relu],
        "leaky_relu": [F.leaky_relu, F.leaky_relu_],
        "elu": [F.elu, F.elu_],
        "selu": [F.selu, F.selu_, torch.selu],
        "celu": [F.celu, F.celu_, torch.celu],
        "softplus": [F.softplus],
        "silu": [F.silu],
        "gelu": [F.gelu],
        "mish": [F.mish],
        "hardtanh": [F.hardtanh, F.hardtanh_],
        "relu6": [F.relu6],
        "hardsigmoid": [F.hardsigmoid],
        "hardswish": [F.hardswish],
        "softsign": [F.softsign],
        "sin": [torch.sin, Tensor.sin],
    }.items(),
)
def test_functions_and_methods_resolve_to_their_row(name, functions):
    assert [resolve(function) for function in functions] == [TABLE[name]] * len(functions)


@pytest.mark.parametrize(
    ("form", "name", "parameters"),
    [
        (nn.ELU(alpha=0.5), "elu", {"alpha": 0.5}),
        (nn.ELU(0.5, inplace=True), "elu", {"alpha": 0.5}),
        (nn.CELU(2.0), "celu", {"alpha": 2.0}),
        (nn.LeakyReLU(0.2), "leaky_relu", {"negative_slope": 0.2}),
        (nn.Softplus(beta=2), "softplus", {"beta": 2}),
        (nn.Hardtanh(-2.0, 3.0), "hardtanh", {"min_val": -2.0, "max_val": 3.0}),
        (functools.partial(F.elu, alpha=0.5), "elu", {"alpha": 0.5}),
        (functools.partial(F.elu, alpha=0.5, inplace=True), "elu", {"alpha": 0.5}),
        (functools.partial(F.relu, inplace=True), "relu", {}),
        (functools.partial(F.relu), "relu", {}),
        (functools.partial(torch.tanh), "tanh", {}),
        (
            functools.partial(F.leaky_relu, negative_slope=0.2),
            "leaky_relu",
            {"negative_slope": 0.2},
        ),
        (functools.partial(F.softplus, beta=2.0, threshold=20), "softplus", {"beta": 2.0}),
        (
            functools.partial(F.hardtanh, max_val=3.0),
            "hardtanh",
            {"min_val": -1.0, "max_val": 3.0},
        ),
        (functools.partial(F.gelu, approximate="none"), "gelu", {}),
        (functools.partial(F.gelu, approximate="tanh"), "gelu_tanh", {}),
        (functools.partial(functools.partial(F.elu, alpha=3.0), alpha=0.5), "elu", {"alpha": 0.5}),
        (nn.GELU(approximate="tanh"), "gelu_tanh", {}),
        (nn.ReLU6(), "relu6", {}),
        (nn.ReLU(inplace=True), "relu", {}),
    ],
)
def test_parameters_of_modules_and_partials_are_kept(form, name, parameters):
    row = resolve(form)
    assert row == resolve(name, **parameters)
    assert row.parameters == parameters
    x = points()
    torch.testing.assert_close(row(x), form(x.clone()), rtol=1e-13, atol=3e-9)


def test_arguments_replace_the_module_s_parameters():
    assert resolve(nn.Hardtanh(-2.0, 3.0), min_val=-1.5).parameters == {
        "min_val": -1.5,
        "max_val": 3.0,
    }
    assert TABLE["hardtanh"].parameters == {"min_val": -1.0, "max_val": 1.0}


@pytest.mark.parametrize(
    "form",
    [
        lambda x: x.atan(),
        torch.atan,
        nn.PReLU(init=0.5).double(),
        nn.Softplus(threshold=5),
        functools.partial(F.softplus, threshold=5),
        functools.partial(torch.pow, torch.tensor(2.0, dtype=torch.float64)),
        Doubled(),
        Doubled(inplace=True),
        nn.Sequential(nn.Tanh(), nn.Sigmoid()),
    ],
)
def test_any_other_callable_is_a_row_of_its_own(form):
    row = resolve(form)
    assert row.name not in TABLE
    assert row.difference is None
    x = points().requires_grad_()
    y = form(x.clone())
    assert torch.equal(row(x.clone()), y)
    (slope,) = torch.autograd.grad(y.sum(), x)
    before = x.detach().clone()
    torch.testing.assert_close(row.derivative(x.detach()), slope)
    assert torch.equal(x, before), "an activation that works in place must not reach x"


def test_softplus_with_another_threshold_is_another_function():
    x = torch.tensor([1.0, 4.9, 5.1, 10.0], dtype=torch.float64)
    row = resolve(nn.Softplus(threshold=5))
    torch.testing.assert_close(row(x), nn.Softplus(threshold=5)(x))
    assert row(x)[2] == x[2] != resolve("softplus")(x)[2]


def test_a_callable_that_is_not_elementwise_is_refused():
    row = resolve(lambda x: x.sum())
    with pytest.raises(ValueError, match=r"shape.*\(3,\).*\(\)"):
        row.derivative(torch.ones(3))


@pytest.mark.parametrize(
    ("name", "nearest"),
    [
        ("rleu", "relu"),
        ("ELU", "elu"),
        ("LeakyReLU", "leaky_relu"),
        ("gelu-tanh", "gelu_tanh"),
        ("sofplus", "softplus"),
    ],
)
def test_an_unknown_name_is_answered_with_the_nearest_and_all(name, nearest):
    with pytest.raises(ValueError, match=rf"{name!r}.*did you mean {nearest!r}") as caught:
        resolve(name)
    assert ", ".join(NAMES) in str(caught.value)


def test_an_unknown_name_like_no_other():
    with pytest.raises(ValueError, match="'zzz'") as caught:
        resolve("zzz")
    assert "did you mean" not in str(caught.value)
    assert ", ".join(NAMES) in str(caught.value)


@pytest.mark.parametrize("wrong", [None, 3, nn.ELU, torch.ones(2), ["elu"]], ids=repr)
def test_what_is_no_activation_is_refused(wrong):
    with pytest.raises(TypeError, match=rf"(?s)activation.*{re.escape(repr(wrong))}.*nn\.ELU"):
        resolve(wrong)


@pytest.mark.parametrize(
    ("name", "parameters", "error", "message"),
    [
        ("elu", {"beta": 1}, TypeError, "elu.*'beta'.*: alpha"),
        ("tanh", {"alpha": 1}, TypeError, "tanh.*'alpha'.*: none"),
        ("hardtanh", {"alpha": 1}, TypeError, "hardtanh.*'alpha'.*: min_val, max_val"),
        ("celu", {"alpha": 0}, ValueError, "celu.*alpha > 0.*alpha=0"),
        ("softplus", {"beta": -1.0}, ValueError, "softplus.*beta > 0.*beta=-1"),
        ("hardtanh", {"min_val": 2.0}, ValueError, "min_val < max_val.*min_val=2, max_val=1"),
        ("softplus", {"beta": float("inf")}, ValueError, "softplus.*beta.*finite.*inf"),
        ("elu", {"alpha": float("nan")}, ValueError, "elu.*alpha.*finite.*nan"),
        ("leaky_relu", {"negative_slope": float("inf")}, ValueError, "negative_slope.*finite.*inf"),
    ],
)
def test_wrong_parameters_are_refused(name, parameters, error, message):
    with pytest.raises(error, match=message):
        resolve(name, **parameters)


def test_repr_has_the_parameters():
    assert repr(resolve("tanh")) == "tanh"
    assert repr(resolve("hardtanh", max_val=2)) == "hardtanh, min_val=-1, max_val=2"


# --- rows of one's own ----------------------------------------------------------------------------


def test_a_registered_row_is_found_by_everything_it_names(registered):
    row = registered(
        "swish",
        swish,
        parameters={"beta": 1.0},
        module=Swish,
        functions=(swish,),
        rule=("beta > 0", lambda beta: beta > 0),
    )
    assert rows()[-1] is row
    assert resolve("swish") is resolve(swish) is row
    assert resolve(Swish(beta=2.0)) == resolve(functools.partial(swish, beta=2.0))
    assert resolve(Swish(beta=2.0)).parameters == {"beta": 2.0}
    with pytest.raises(ValueError, match=r"swish.*beta > 0.*beta=-1"):
        resolve("swish", beta=-1)
    with pytest.raises(ValueError, match=r"'swis'.*did you mean 'swish'"):
        resolve("swis")


def test_registered_without_a_derivative_autograd_supplies_it(registered):
    row = registered("swish", swish, parameters={"beta": 2.0})
    x = points()
    torch.testing.assert_close(row.derivative(x, **row.parameters), swish_derivative(x, 2.0))
    torch.testing.assert_close(qneurons.q_limit(x, "swish"), x * swish_derivative(x, 2.0))


def test_a_registered_derivative_is_used(registered):
    registered("swish", swish, derivative=lambda x: torch.full_like(x, 7.0))
    x = points()
    assert torch.equal(qneurons.q_limit(x, "swish"), 7 * x)


def test_a_registered_difference_is_used(registered):
    x = points()
    generic = registered("cube", lambda y: y**3)
    exact = registered(
        "cube_exact",
        lambda y: y**3,
        difference=lambda y, delta, with_slope: (
            y**3 * (3 + 3 * delta + delta**2),
            3 * y**2 * (3 + 3 * delta + delta**2) if with_slope else None,
        ),
    )
    wrong = registered("zero", lambda y: y**3, difference=lambda y, delta, _: (0 * y, 0 * y))
    expected = x**3 * 3.31
    for row in (generic, exact):
        torch.testing.assert_close(qneurons.q_difference(x, 0.1, row), expected, rtol=1e-11, atol=0)
    assert not qneurons.q_difference(x, 0.1, wrong).any()
    x.requires_grad_()
    (slope,) = torch.autograd.grad(qneurons.q_difference(x, 0.1, "cube_exact").sum(), x)
    torch.testing.assert_close(slope, 9.93 * x.detach() ** 2)


def test_a_registered_row_s_kinks_are_kept(registered):
    row = registered(
        "shrink", F.softshrink, parameters={"lambd": 0.5}, kinks=lambda lambd: (-lambd, lambd)
    )
    assert row.kinks(**row.parameters) == (-0.5, 0.5)


@pytest.mark.parametrize("name", ["relu", "swish"])
def test_a_name_is_registered_once(registered, name):
    row = registered("swish", swish)
    before = resolve("relu")
    with pytest.raises(ValueError, match=f"{name!r}.*already.*another"):
        register(name, torch.tanh)
    assert resolve("swish") is row
    assert resolve("relu") is before


@pytest.mark.parametrize("name", ["", "my act", "2x", "a.b"])
def test_a_name_is_an_identifier(name):
    with pytest.raises(ValueError, match=f"name.*identifier.*{name!r}"):
        register(name, torch.tanh)


def test_unregister_takes_only_registered_rows():
    register("swish", swish)
    unregister("swish")
    assert resolve("swish").name == "silu"  # as it is called without the row
    with pytest.raises(ValueError, match=r"unknown.*'swish'"):
        unregister("swish")
    with pytest.raises(ValueError, match=r"'relu'.*built in"):
        unregister("relu")
    assert [row.name for row in rows()] == NAMES


# --- copies ---------------------------------------------------------------------------------------


def pickled(value):
    return pickle.loads(pickle.dumps(value))


@pytest.mark.parametrize("copied", [copy.deepcopy, pickled])
class TestCopies:
    @every_setting
    def test_of_a_row(self, copied, name, parameters):
        row = resolve(name, **parameters)
        assert copied(row) == row

    def test_of_a_registered_row(self, copied, registered):
        row = registered("swish", lambda x, beta: swish(x, beta), parameters={"beta": 1.0})
        assert copied(row.with_parameters(beta=2.0)) == row.with_parameters(beta=2.0)

    @pytest.mark.parametrize("form", [torch.atan, swish, functools.partial(swish, beta=2.0)])
    def test_of_a_callable(self, copied, form):
        row, x = resolve(form), points()
        twin = copied(row)
        assert twin.name == row.name
        assert torch.equal(twin(x), row(x))
        assert torch.equal(twin.derivative(x), row.derivative(x))
        assert twin.kinks() == ()

    def test_of_a_module(self, copied):
        row, x = resolve(nn.PReLU(init=0.5).double()), points()
        twin = copied(row)
        with torch.no_grad():
            twin.f.weight.fill_(3.0)
        assert row.derivative(x).min() == 0.5
        assert twin.derivative(x).max() == 3.0, "f and its derivative share the copied module"

    def test_of_a_row_built_by_hand(self, copied):
        row = Activation("mine", swish, swish_derivative, _no_difference, parameters={"beta": 2.0})
        assert copied(row) == row

    def test_of_a_changed_row(self, copied):
        row = Activation("elu", F.elu, swish_derivative, parameters={"alpha": 1.0})
        assert copied(row).derivative is swish_derivative


def _no_difference(x, delta, with_slope, beta):
    raise NotImplementedError


def test_a_pickled_registered_row_needs_its_registration():
    row = register("swish", swish)
    data = pickle.dumps(row)
    unregister("swish")
    with pytest.raises(ValueError, match=r"unknown.*'swish'"):
        pickle.loads(data)
    assert copy.deepcopy(row).f is swish


def test_swish_is_a_name_of_silu():
    assert resolve("swish").name == "silu"
