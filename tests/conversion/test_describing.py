"""What is named as not converted: code, gates, containers."""

import functools
import warnings

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import qneurons as qn
from qneurons.conversion.describing import describe_unconverted


class Functional(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(3, 3)
        self.relu = nn.ReLU()
        self.inner = nn.Sequential()
        self.inner.tanh = nn.ELU()


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
    message = rf": {names} \({cls.__name__}\.forward\): called in code$"
    with pytest.warns(UserWarning, match=message) as caught:
        model = qn.convert(nn.Sequential(cls(), cls()))
    assert len(caught) == 1
    assert caught[0].filename == __file__
    assert type(model[1].relu) is qn.QReLU


class Shifted(nn.ReLU):
    def forward(self, x):
        return F.relu(x) + 1


class Doubled(nn.GELU):
    def forward(self, x):
        return 2 * super().forward(x)


@pytest.mark.parametrize("cls", [Shifted, Doubled])
def test_a_subclass_that_computes_something_else_is_named(cls):
    with pytest.warns(UserWarning, match=rf": {cls.__name__}\(.*\) \(0\): not in the table$"):
        model = qn.convert(nn.Sequential(cls(), nn.ReLU()))
    assert type(model[0]) is cls


def test_attributes_named_like_an_activation_are_no_calls():
    model = CallsOnlyItsOwn()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        qn.convert(model)
    assert type(model.inner.tanh) is qn.QELU


@pytest.mark.parametrize(
    "layer", [nn.LSTM(3, 3), nn.GRU(3, 3), nn.RNN(3, 3), nn.LSTMCell(3, 3), nn.GRUCell(3, 3)]
)
def test_gates_are_named_in_a_warning(layer):
    model = nn.ModuleDict({"memory": layer, "again": layer, "act": nn.ReLU()})
    with pytest.warns(UserWarning, match=rf"gates of {type(layer).__name__} \(memory\): part"):
        qn.convert(model)
    with pytest.raises(ValueError, match=rf"gates of {type(layer).__name__} \(the model\)"):
        qn.convert(layer)


def test_everything_unseen_is_in_one_warning():
    model = nn.ModuleDict({"a": CallsF(), "b": nn.LSTM(3, 3), "c": CallsMethod()})
    message = (
        r"gelu, sigmoid \(CallsF.forward\).*the gates of LSTM \(b\).*tanh \(CallsMethod.forward\)"
    )
    with pytest.warns(UserWarning, match=message) as caught:
        qn.convert(model)
    assert len(caught) == 1


class OnlyCode(nn.Module):
    def forward(self, x):
        return F.relu(x)


def test_nothing_to_convert_but_code():
    with pytest.raises(ValueError, match=r"relu \(OnlyCode\.forward\).*nn\.ReLU.*q_relu .*Sigmoid"):
        qn.convert(OnlyCode())


class OnlySine(nn.Module):
    def forward(self, x):
        return x.sin()


class MadeInForward(nn.Module):
    def forward(self, x):
        return nn.GELU()(x)


def test_the_advice_names_the_function_that_was_found():
    with pytest.raises(ValueError, match=r"such as QActivation\('sin'\), or call qneurons.q_sin"):
        qn.convert(OnlySine())
    with pytest.raises(ValueError, match=r"GELU \(MadeInForward.forward\).*nn\.GELU, .*q_gelu "):
        qn.convert(MadeInForward())


class Rotary(nn.Module):
    def forward(self, x):
        return torch.cat([x.cos(), x.sin()], -1)


class Attention(nn.Module):
    """As in timm: a gate in code, and one that is never used."""

    def __init__(self):
        super().__init__()
        self.project, self.gate, self.other = nn.Linear(3, 3), nn.Linear(3, 3), None

    def forward(self, x, mask=None):
        if mask is not None:
            x = F.relu(x)
        gate = self.gate(x).sigmoid()
        x = self.project(x)
        return x * gate


def test_positions_gates_and_what_is_never_called_are_no_activations_in_code():
    assert describe_unconverted(nn.Sequential(Rotary(), Attention()), {}) == []


class Untraceable(Attention):
    def forward(self, x, mask=None):
        if x.sum() > 0:
            x = F.relu(x)
        return x * self.gate(x).sigmoid()


def test_a_forward_that_cannot_be_traced_is_read():
    (one,) = describe_unconverted(Untraceable(), {})
    assert (one.what, one.where) == ("relu, sigmoid", "Untraceable.forward")


class QuickGate(nn.Module):
    def forward(self, x):
        return x * torch.sigmoid(3 * x)


def test_a_module_that_may_be_an_activation_is_named_though_it_has_a_gate():
    (one,) = describe_unconverted(nn.Sequential(QuickGate()), {})
    assert (one.what, one.where) == ("sigmoid", "QuickGate.forward")


def test_torch_s_own_modules_are_not_reported():
    model = nn.Sequential(nn.Transformer(8, 2, 1, 1, 16, batch_first=True), nn.GLU(), nn.ReLU())
    assert describe_unconverted(model, {}) == []
