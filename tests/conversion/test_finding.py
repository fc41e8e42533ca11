"""Which modules and functions are found as activations."""

import functools
import math
import re

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import qneurons as qn
from qneurons.conversion.finding import find_activations, row_of


def test_a_shared_parent_is_visited_once():
    block = nn.Sequential(nn.Linear(3, 3), nn.ReLU())
    twice = nn.Sequential(block, block)
    assert [place.path for place in find_activations(twice, {})] == ["0.1"]
    qn.convert(twice)
    assert twice[0] is twice[1] is block
    assert type(block[1]) is qn.QReLU


class WithFunctions(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(3, 3)
        self.act = F.elu
        self.gate = functools.partial(F.leaky_relu, negative_slope=0.2)
        self.norm = functools.partial(F.softmax, dim=-1)
        self.name = "relu"
        self.nothing = None

    def forward(self, x):
        return self.gate(self.act(self.linear(x)))


def test_functions_kept_as_attributes_are_replaced():
    model = WithFunctions().eval()
    norm = model.norm
    qn.convert(model)
    assert type(model.act) is qn.QELU
    assert repr(model.gate).startswith("QLeakyReLU(negative_slope=0.2, ")
    assert (model.norm, model.name, model.nothing) == (norm, "relu", None)
    assert "act" not in vars(model)
    assert not model.act.training
    x = torch.tensor([[-1.0, 0.5, 2.0]])
    inner = qn.q_limit(model.linear(x), "elu")
    assert torch.equal(model(x), qn.q_limit(inner, nn.LeakyReLU(0.2)))


def test_what_is_no_row_is_left_alone_and_named():
    others = [nn.Identity(), nn.PReLU(), nn.Softmax(-1), nn.Softplus(threshold=5), nn.Dropout()]
    model = nn.Sequential(nn.ELU(), *others)
    message = (
        r"PReLU\(.*\) \(2\): not in the table; Softplus\(.*threshold=5\) \(4\): its parameters"
    )
    with pytest.warns(UserWarning, match=message):
        qn.convert(model)
    assert isinstance(model[0], qn.QELU)
    assert list(model)[1:] == others


@pytest.mark.parametrize(
    "odd",
    [nn.Hardtanh(0.0, math.inf), nn.CELU(-1.0), nn.LeakyReLU(math.nan), nn.ELU(alpha="a")],
)
def test_parameters_that_a_row_refuses_do_not_stop_the_others(odd):
    model = nn.Sequential(nn.Tanh(), odd)
    with pytest.warns(UserWarning, match=f"{re.escape(str(odd))} \\(1\\): its parameters"):
        qn.convert(model)
    assert isinstance(model[0], qn.QTanh)
    assert model[1] is odd


@pytest.mark.parametrize("empty", [nn.Identity(), nn.Linear(2, 2), nn.Sequential(nn.Identity())])
def test_nothing_to_convert(empty):
    known = "Sigmoid, Tanh, ReLU, LeakyReLU, ELU, SELU, CELU, Softplus, SiLU, GELU, Mish, Hardtanh,"
    known += " ReLU6, Hardsigmoid, Hardswish, Softsign"
    with pytest.raises(ValueError, match=f"no activation module.*{known}$"):
        qn.convert(empty)


# --- subclasses, other libraries, aliases ---------------------------------------------------------


class OwnReLU(nn.ReLU):
    pass


class OwnReLU6(nn.ReLU6):
    pass


class Shifted(nn.ReLU):
    def forward(self, x):
        return super().forward(x) + 1


def test_a_subclass_with_parameters_would_lose_them_and_is_left():
    class Scaled(nn.ReLU):
        def __init__(self):
            super().__init__()
            self.scale = nn.Parameter(torch.ones(1))

    model = nn.Sequential(nn.Linear(2, 2), Scaled(), nn.ReLU())
    assert [place.path for place in find_activations(model, {})] == ["2"]


def test_a_subclass_with_the_forward_of_its_class_is_found():
    assert row_of(OwnReLU(), {}).name == "relu"
    assert row_of(OwnReLU6(), {}).name == "relu6"
    assert row_of(Shifted(), {}) is None
    patched = nn.ReLU()
    patched.forward = torch.tanh
    assert row_of(patched, {}) is None
    model = qn.convert(nn.Sequential(OwnReLU(), nn.Tanh(), nn.ELU()), include=[OwnReLU])
    assert [type(part) for part in model] == [qn.QReLU, nn.Tanh, nn.ELU]


def named(name, f):
    """A module and a function of another library: all that is known of them is the name."""
    cls = type(name, (nn.Module,), {"forward": lambda self, x: f(x)})
    function = lambda x: f(x)  # noqa: E731
    function.__name__ = name
    return cls(), function


@pytest.mark.parametrize(
    ("name", "f", "row"),
    [
        ("SiLUActivation", F.silu, "silu"),
        ("SwishMe", lambda x: x.mul(x.sigmoid()), "silu"),
        ("swish", lambda x: x.mul_(x.sigmoid()), "silu"),
        ("NewGELUActivation", lambda x: F.gelu(x, approximate="tanh"), "gelu_tanh"),
        ("gelu_new", lambda x: F.gelu(x, approximate="tanh").float(), "gelu_tanh"),
        ("GELUTanh", lambda x: F.gelu(x, approximate="tanh"), "gelu_tanh"),
        ("GELU", F.gelu, "gelu"),
        ("HardSwish", F.hardswish, "hardswish"),
        ("hard_swish", F.hardswish, "hardswish"),
        ("QuickGELUActivation", lambda x: x * torch.sigmoid(1.702 * x), "quick_gelu"),
        ("ReLUSquaredActivation", lambda x: F.relu(x) * F.relu(x), "relu2"),
        ("HardSigmoid", F.hardsigmoid, "hardsigmoid"),
        ("MishActivation", F.mish, "mish"),
        ("LinearActivation", lambda x: x, None),
        ("GELU", lambda x: F.gelu(x, approximate="tanh"), None),
        ("GELUActivation", lambda x: F.gelu(x, approximate="tanh"), None),
        ("SiLU", lambda x: x.sum(), None),
        ("SiLU", lambda x: [x], None),
        ("SiLU", lambda x: x.undefined, None),
        ("Unknown", F.silu, None),
    ],
)
def test_other_libraries_activations_are_found_by_name_and_checked(name, f, row):
    for member in named(name, f):
        found = row_of(member, {})
        assert (found and found.name) == row


def test_an_activation_with_parameters_of_its_own_is_not_replaced():
    swish, _ = named("Swish", F.silu)
    assert row_of(swish, {}).name == "silu"
    swish.weight = nn.Parameter(torch.ones(1))
    assert row_of(swish, {}) is None


class MySwish(nn.Module):
    def forward(self, x):
        return x * torch.sigmoid(x)


def my_slope(x):
    return F.leaky_relu(x, 0.2)


def test_an_alias_says_what_a_class_or_a_function_computes():
    model = nn.Sequential(MySwish(), nn.Linear(2, 2), MySwish())
    model.function = my_slope
    alias = {MySwish: "silu", my_slope: nn.LeakyReLU(0.2)}
    qn.convert(model, alias=alias)
    assert type(model[0]) is type(model[2]) is qn.QSiLU
    assert model.function.activation.parameters == {"negative_slope": 0.2}


def test_a_wrong_alias_is_refused():
    model = nn.Sequential(MySwish())
    with pytest.raises(ValueError, match=r"MySwish computes gelu, but .*register"):
        qn.convert(model, alias={MySwish: "gelu"})
    with pytest.raises(ValueError, match="the model has no my_slope"):
        qn.convert(model, alias={MySwish: "silu", my_slope: "relu"})
    with pytest.raises(TypeError, match=r"alias maps .* got 'MySwish'; .*MySwish: 'silu'"):
        qn.convert(model, alias={"MySwish": "silu"})
    assert type(model[0]) is MySwish
