"""Finding and choosing the activations of a model, and reporting those that are code."""

import functools
import math
import re
import warnings

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import qneurons as qn
from qneurons import conversion


def changed(model, **selection):
    """The names in the model of what convert replaces."""
    old = dict(model.named_modules(remove_duplicate=False))
    new = dict(qn.convert(model, **selection).named_modules(remove_duplicate=False))
    return [name for name in new if new[name] is not old.get(name)]


def model():
    return nn.ModuleDict(
        {
            "features": nn.Sequential(nn.Conv2d(1, 2, 3), nn.ReLU(), nn.ReLU6(), nn.ELU(0.5)),
            "head": nn.Sequential(nn.Linear(3, 2), nn.ReLU(inplace=True), nn.Hardtanh(), nn.GELU()),
        }
    )


ALL = [f"features.{i}" for i in (1, 2, 3)] + [f"head.{i}" for i in (1, 2, 3)]


# --- choosing -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("selection", "expected"),
    [
        ({}, ALL),
        ({"include": ["*"]}, ALL),
        ({"include": ["features.*"]}, ALL[:3]),
        ({"include": "features.*"}, ALL[:3]),
        ({"include": ["*.1"]}, ["features.1", "head.1"]),
        ({"include": ["head.[12]"]}, ["head.1", "head.2"]),
        ({"include": ["head.3"]}, ["head.3"]),
        ({"include": ["relu"]}, ["features.1", "head.1"]),
        ({"include": "relu"}, ["features.1", "head.1"]),
        ({"include": ["relu6", "elu"]}, ["features.2", "features.3"]),
        ({"include": [nn.ReLU]}, ["features.1", "head.1"]),
        ({"include": nn.ReLU}, ["features.1", "head.1"]),
        ({"include": [nn.Hardtanh]}, ["head.2"]),
        ({"include": ["gelu", nn.ELU, "head.2"]}, ["features.3", "head.2", "head.3"]),
        ({"include": (name for name in ["gelu", "elu"])}, ["features.3", "head.3"]),
        ({"exclude": ["features.*"]}, ALL[3:]),
        ({"exclude": "relu"}, ["features.2", "features.3", "head.2", "head.3"]),
        ({"exclude": nn.Hardtanh}, [name for name in ALL if name != "head.2"]),
        ({"exclude": ["features.*", nn.ReLU, "gelu"]}, ["head.2"]),
        ({"include": "relu", "exclude": "head*"}, ["features.1"]),
    ],
    ids=str,
)
def test_include_and_exclude(selection, expected):
    assert changed(model(), **selection) == expected


def test_names_are_case_sensitive_patterns():
    assert changed(nn.ModuleDict({"Act": nn.ReLU(), "act": nn.ReLU()}), include=["a*"]) == ["act"]


def test_a_module_class_selects_its_function_too():
    layer = nn.TransformerEncoderLayer(8, 2, 16)
    assert layer.activation is F.relu
    pair = nn.Sequential(layer, nn.Tanh())
    assert changed(pair, exclude=[nn.ReLU]) == ["1"]
    assert changed(pair, include=[nn.ReLU]) == ["0.activation"]


@pytest.mark.parametrize("name", ["include", "exclude"])
@pytest.mark.parametrize("wrong", [3, [3], None, [None], ["relu", nn.ReLU()]], ids=str)
def test_a_selector_of_the_wrong_type(name, wrong):
    bad = wrong[-1] if isinstance(wrong, list) else wrong
    message = (
        f"{name} takes patterns, names of activations and module classes, got {bad!r}; "
        'for example "features.*", "relu" or nn.ReLU'
    )
    with pytest.raises(TypeError, match=f"^{re.escape(message)}$"):
        qn.convert(model(), **{name: wrong})


def test_nothing_chosen():
    message = "no activation left to convert; found features.1 (relu), features.2 (relu6), "
    message += "features.3 (elu), head.1 (relu), head.2 (hardtanh), head.3 (gelu): "
    with pytest.raises(ValueError, match=f"^{re.escape(message)}loosen include or exclude$"):
        qn.convert(model(), exclude="*")


@pytest.mark.parametrize(
    "selection",
    [{"include": "nothing.*"}, {"include": ["relu", "eelu"]}, {"exclude": nn.Linear}],
    ids=str,
)
def test_a_selector_that_matches_nothing_is_named(selection):
    with pytest.raises(
        ValueError, match=r"^nothing matches .*; the model has features\.1 \(relu\),"
    ):
        qn.convert(model(), **selection)


def test_hooks_are_carried_over():
    calls = []
    network = nn.Sequential(nn.Linear(2, 2), nn.ReLU())
    network[1].register_forward_hook(lambda *_: calls.append("forward"))
    qn.convert(network)(torch.randn(3, 2))
    assert type(network[1]) is qn.QReLU
    assert calls == ["forward"]


class CallsInAnotherMethod(nn.Module):
    def __init__(self):
        super().__init__()
        self.act = nn.Tanh()
        self.kept = [nn.functional.relu]

    def body(self, x):
        return nn.functional.elu(x)

    def forward(self, x):
        return self.act(self.body(x))


def test_other_methods_and_containers_are_named():
    message = (
        "not converted: elu in CallsInAnotherMethod.body; the list kept of CallsInAnotherMethod"
    )
    with pytest.warns(UserWarning, match=f"^{re.escape(message)}$"):
        qn.convert(CallsInAnotherMethod())


def test_nothing_chosen_of_an_activation():
    with pytest.raises(ValueError, match=r"found the model \(relu\): loosen include or exclude$"):
        qn.convert(nn.ReLU(), exclude="relu")


# --- finding --------------------------------------------------------------------------------------


def test_a_shared_parent_is_visited_once():
    block = nn.Sequential(nn.Linear(3, 3), nn.ReLU())
    twice = nn.Sequential(block, block)
    assert [place.path for place in conversion.find_activations(twice)] == ["0.1"]
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


class OwnReLU(nn.ReLU):
    pass


def test_what_is_no_row_is_left_alone_and_named():
    others = [nn.Identity(), nn.PReLU(), nn.Softmax(-1), nn.Softplus(threshold=5), nn.Dropout()]
    model = nn.Sequential(nn.Tanh(), *others)
    message = "not converted: PReLU(num_parameters=1) (2), not in the table; "
    message += "Softplus(beta=1.0, threshold=5) (4), with parameters that its row refuses"
    with pytest.warns(UserWarning, match=f"^{re.escape(message)}$"):
        assert changed(model) == ["0"]
    assert list(model)[1:] == others


@pytest.mark.parametrize(
    "odd",
    [nn.Hardtanh(0.0, math.inf), nn.CELU(-1.0), nn.LeakyReLU(math.nan), nn.ELU(alpha="a")],
    ids=str,
)
def test_parameters_that_a_row_refuses_do_not_stop_the_others(odd):
    model = nn.Sequential(nn.Tanh(), odd)
    message = f"not converted: {odd} (1), with parameters that its row refuses"
    with pytest.warns(UserWarning, match=f"^{re.escape(message)}$"):
        assert changed(model) == ["0"]
    assert model[1] is odd


@pytest.mark.parametrize("empty", [nn.Identity(), nn.Linear(2, 2), nn.Sequential(nn.Identity())])
def test_nothing_to_convert(empty):
    known = "Sigmoid, Tanh, ReLU, LeakyReLU, ELU, SELU, CELU, Softplus, SiLU, GELU, Mish, Hardtanh,"
    known += " ReLU6, Hardswish, Softsign"
    message = f"the model has no activation module to convert. Known modules: {known}"
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        qn.convert(empty)


# --- what is code ---------------------------------------------------------------------------------


class Functional(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(3, 3)
        self.relu = nn.ReLU()
        self.inner = nn.Sequential()
        self.inner.tanh = nn.Tanh()


class CallsF(Functional):
    def forward(self, x):
        return torch.sigmoid(F.gelu(self.relu(x)))


class CallsMethod(Functional):
    def forward(self, x):
        return self.linear(x).tanh()


class CallsInComprehension(Functional):
    def forward(self, x):
        return [F.relu(layer(x)) for layer in (self.linear, self.relu)]


class CallsBeside(Functional):
    def forward(self, x):
        return F.relu(self.relu(x))


def quietly(forward):
    @functools.wraps(forward)
    def wrapper(*args):
        return forward(*args)

    return wrapper


class CallsDecorated(Functional):
    @quietly
    def forward(self, x):
        return F.silu(x)


class CallsOnlyItsOwn(Functional):
    def forward(this, x):
        return this.inner.tanh(this.relu(this.linear(x)))


class CallsInherited(CallsMethod):
    pass


@pytest.mark.parametrize(
    ("cls", "names"),
    [
        (CallsF, "gelu, sigmoid"),
        (CallsMethod, "tanh"),
        (CallsInComprehension, "relu"),
        (CallsBeside, "relu"),
        (CallsDecorated, "silu"),
        (CallsInherited, "tanh"),
    ],
)
def test_functional_calls_are_named_in_a_warning(cls, names):
    message = f"not converted: {names} in {cls.__name__}.forward"
    with pytest.warns(UserWarning, match=f"^{re.escape(message)}$") as caught:
        model = qn.convert(nn.Sequential(cls(), cls()))
    assert len(caught) == 1
    assert caught[0].filename == __file__
    assert type(model[1].relu) is qn.QReLU


def test_a_subclass_of_an_activation_is_named():
    with pytest.warns(UserWarning, match=r"^not converted: relu in OwnReLU\.forward$"):
        model = qn.convert(nn.Sequential(OwnReLU(), nn.ReLU()))
    assert type(model[0]) is OwnReLU


def test_attributes_named_like_an_activation_are_no_calls():
    model = CallsOnlyItsOwn()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        qn.convert(model)
    assert type(model.inner.tanh) is qn.QTanh


@pytest.mark.parametrize(
    "layer", [nn.LSTM(3, 3), nn.GRU(3, 3), nn.RNN(3, 3), nn.LSTMCell(3, 3), nn.GRUCell(3, 3)]
)
def test_gates_are_named_in_a_warning(layer):
    model = nn.ModuleDict({"memory": layer, "again": layer, "act": nn.ReLU()})
    message = f"not converted: the gates of {type(layer).__name__} (memory)"
    with pytest.warns(UserWarning, match=f"^{re.escape(message)}$"):
        qn.convert(model)
    message = f"has no activation module to convert, only the gates of {type(layer).__name__} (the "
    with pytest.raises(ValueError, match=re.escape(message)):
        qn.convert(layer)


def test_everything_unseen_is_in_one_warning():
    model = nn.ModuleDict({"a": CallsF(), "b": nn.LSTM(3, 3), "c": CallsMethod()})
    message = "gelu, sigmoid in CallsF.forward; the gates of LSTM (b); tanh in CallsMethod.forward"
    with pytest.warns(UserWarning, match=f": {re.escape(message)}$") as caught:
        qn.convert(model)
    assert len(caught) == 1


class OnlyCode(nn.Module):
    def forward(self, x):
        return F.relu(x)


def test_nothing_to_convert_but_code():
    message = "the model has no activation module to convert, only relu in OnlyCode.forward: "
    message += "make these modules, as nn.ReLU, or call q_relu there. Known modules: Sigmoid, Tanh,"
    with pytest.raises(ValueError, match=f"^{re.escape(message)}"):
        qn.convert(OnlyCode())


def test_torch_s_own_modules_are_not_reported():
    model = nn.Sequential(nn.Transformer(8, 2, 1, 1, 16, batch_first=True), nn.GLU(), nn.ReLU())
    assert conversion.find_unseen(model) == []
