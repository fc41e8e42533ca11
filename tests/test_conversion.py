"""What convert finds in a model, what it chooses, what it reports, and the model that it makes."""

import copy
import functools
import io
import logging
import math
import pickle
import re
import warnings

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import qneurons as qn
from qneurons import conversion
from qneurons.activations import register, unregister
from qneurons.conversion import convert
from qneurons.modules import CLASSES, QActivation

LIMIT = {"lam": 0.0, "phi": 0.0}  # a draw at which g is the limit f'(x)x


def normal(*shape, dtype=torch.float64, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return (torch.randn(shape, generator=generator, dtype=torch.float64) * 2).to(dtype)


def drawn(module, x, seed=0):
    torch.manual_seed(seed)
    return module(x)


def saved(module):
    buffer = io.BytesIO()
    torch.save(module, buffer)
    buffer.seek(0)
    return torch.load(buffer, weights_only=False)


COPIES = [copy.deepcopy, lambda module: pickle.loads(pickle.dumps(module)), saved]
every_copy = pytest.mark.parametrize("copied", COPIES, ids=["deepcopy", "pickle", "save"])


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
    with pytest.raises(TypeError, match=rf"{name}.* {re.escape(repr(bad))}.*nn\.ReLU"):
        qn.convert(model(), **{name: wrong})


def test_nothing_chosen():
    found = "features.1 (relu), features.2 (relu6), features.3 (elu), "
    found += "head.1 (relu), head.2 (hardtanh), head.3 (gelu)"
    with pytest.raises(ValueError, match=f"{re.escape(found)}.*include.*exclude"):
        qn.convert(model(), exclude="*")


@pytest.mark.parametrize(
    "selection",
    [{"include": "nothing.*"}, {"include": ["relu", "eelu"]}, {"exclude": nn.Linear}],
    ids=str,
)
def test_a_selector_that_matches_nothing_is_named(selection):
    ((_, selector),) = selection.items()
    unmatched = repr(selector[-1] if isinstance(selector, list) else selector)
    with pytest.raises(ValueError, match=rf"{re.escape(unmatched)}.*features\.1 \(relu\)"):
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
    message = r"elu in CallsInAnotherMethod\.body; the list kept of CallsInAnotherMethod$"
    with pytest.warns(UserWarning, match=message):
        qn.convert(CallsInAnotherMethod())


def test_nothing_chosen_of_an_activation():
    with pytest.raises(ValueError, match=r"the model \(relu\).*exclude"):
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
    message = r"PReLU\(.*\) \(2\).* table.*Softplus\(.*threshold=5\) \(4\).*parameters"
    with pytest.warns(UserWarning, match=message):
        assert changed(model) == ["0"]
    assert list(model)[1:] == others


@pytest.mark.parametrize(
    "odd",
    [nn.Hardtanh(0.0, math.inf), nn.CELU(-1.0), nn.LeakyReLU(math.nan), nn.ELU(alpha="a")],
    ids=str,
)
def test_parameters_that_a_row_refuses_do_not_stop_the_others(odd):
    model = nn.Sequential(nn.Tanh(), odd)
    with pytest.warns(UserWarning, match=f"{re.escape(str(odd))} \\(1\\).*parameters"):
        assert changed(model) == ["0"]
    assert model[1] is odd


@pytest.mark.parametrize("empty", [nn.Identity(), nn.Linear(2, 2), nn.Sequential(nn.Identity())])
def test_nothing_to_convert(empty):
    known = "Sigmoid, Tanh, ReLU, LeakyReLU, ELU, SELU, CELU, Softplus, SiLU, GELU, Mish, Hardtanh,"
    known += " ReLU6, Hardswish, Softsign"
    with pytest.raises(ValueError, match=f"no activation module.*{known}$"):
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
    with pytest.warns(UserWarning, match=rf": {names} in {cls.__name__}\.forward$") as caught:
        model = qn.convert(nn.Sequential(cls(), cls()))
    assert len(caught) == 1
    assert caught[0].filename == __file__
    assert type(model[1].relu) is qn.QReLU


def test_a_subclass_of_an_activation_is_named():
    with pytest.warns(UserWarning, match=r"relu in OwnReLU\.forward$"):
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
    with pytest.warns(UserWarning, match=rf"gates of {type(layer).__name__} \(memory\)$"):
        qn.convert(model)
    with pytest.raises(ValueError, match=rf"gates of {type(layer).__name__} \(the model\)"):
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
    with pytest.raises(ValueError, match=r"relu in OnlyCode\.forward.*nn\.ReLU.*q_relu.*Sigmoid"):
        qn.convert(OnlyCode())


def test_torch_s_own_modules_are_not_reported():
    model = nn.Sequential(nn.Transformer(8, 2, 1, 1, 16, batch_first=True), nn.GLU(), nn.ReLU())
    assert conversion.describe_unconverted(model) == []


# --- the converted model --------------------------------------------------------------------------


class Block(nn.Module):
    def __init__(self, activation=None):
        super().__init__()
        self.linear = nn.Linear(3, 3)
        self.relu = activation or nn.ReLU()

    def forward(self, x):
        return self.relu(self.linear(x))


class Everything(nn.Module):
    """Activations in every container, one of them shared, one at rest in a list of blocks."""

    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(Block(), nn.Sequential(nn.Linear(3, 3), nn.ELU(alpha=0.5)))
        self.blocks = nn.ModuleList([Block(nn.LeakyReLU(0.2)), nn.GELU(approximate="tanh")])
        self.heads = nn.ModuleDict({"a": nn.Sequential(nn.Linear(3, 2), nn.Softplus(beta=2))})
        self.shared = self.body[0].relu
        self.skip = nn.Identity()

    def forward(self, x):
        x = self.shared(self.body(x))
        for block in self.blocks:
            x = block(x)
        return self.heads["a"](self.skip(x))


EVERYTHING = {
    "body.0.relu": "QReLU(",
    "body.1.1": "QELU(alpha=0.5, ",
    "blocks.0.relu": "QLeakyReLU(negative_slope=0.2, ",
    "blocks.1": "QGELUTanh(",
    "heads.a.1": "QSoftplus(beta=2, ",
}


def q_modules(model):
    return {
        name: module for name, module in model.named_modules() if isinstance(module, QActivation)
    }


def test_convert_reaches_every_container():
    model = Everything()
    assert convert(model, lam=0.1, phi=0.01, eval_mode="mean") is model
    settings = "lam=0.1, phi=0.01, eval_mode='mean')"
    found = {name: repr(module) for name, module in q_modules(model).items()}
    assert found == {name: start + settings for name, start in EVERYTHING.items()}
    assert type(model.skip) is nn.Identity
    assert model(torch.ones(2, 3)).shape == (2, 2)


def test_convert_means_the_same_model_with_q_activations():
    model = Everything().double().eval()
    twin, x = copy.deepcopy(model), normal(7, 3)

    def limit(activation):
        return lambda y: qn.q_limit(y, activation)

    y = limit("relu")(twin.body[0].linear(x))
    y = limit(nn.ELU(0.5))(twin.body[1][0](y))
    y = limit("relu")(y)
    y = limit(nn.LeakyReLU(0.2))(twin.blocks[0].linear(y))
    y = limit("gelu_tanh")(y)
    y = limit(nn.Softplus(2))(twin.heads["a"][0](y))
    assert torch.equal(convert(model)(x), y)


def test_a_shared_module_stays_shared():
    model = convert(Everything())
    assert model.shared is model.body[0].relu
    assert type(model.shared) is qn.QReLU


def test_one_place_of_a_shared_module_can_be_excluded():
    model = convert(Everything(), exclude=["shared"])
    assert type(model.shared) is nn.ReLU
    assert type(model.body[0].relu) is qn.QReLU


def test_a_checkpoint_of_the_original_loads_strictly():
    original, model = Everything(), convert(Everything())
    model.load_state_dict(original.state_dict(), strict=True)
    original.load_state_dict(model.state_dict(), strict=True)


@every_copy
def test_copies_of_a_converted_model(copied):
    model = convert(Everything(), 0.3)
    twin, x = copied(model), normal(7, 3, dtype=torch.float32)
    assert twin.shared is twin.body[0].relu
    assert torch.equal(drawn(twin, x), drawn(model, x))


@pytest.mark.parametrize("training", [True, False])
def test_a_model_that_is_an_activation(training):
    old = nn.ELU(alpha=0.5).train(training)
    new = convert(old, lam=0.3, phi=0.01, eval_mode="sample")
    assert repr(new) == "QELU(alpha=0.5, lam=0.3, phi=0.01, eval_mode='sample')"
    assert new.training is training


def test_the_training_flag_is_kept():
    model = nn.Sequential(nn.ReLU(), nn.Sequential(nn.Tanh(), nn.ELU().eval()))
    model[1][0].eval()
    convert(model)
    assert [module.training for module in q_modules(model).values()] == [True, False, False]
    assert model.training


@pytest.mark.parametrize("dtype", [torch.half, torch.bfloat16, torch.double], ids=str)
def test_the_dtype_is_kept(dtype):
    model = convert(nn.Sequential(nn.Linear(3, 3), nn.Softplus()).to(dtype), lam=0.3)
    assert model[1].lam == 0.3
    assert model(torch.ones(2, 3, dtype=dtype)).dtype == dtype


def test_a_model_on_meta_is_converted():
    with torch.device("meta"):
        model = nn.Sequential(nn.Linear(3, 3), nn.Tanh())
    model = convert(model, lam=0.3).to_empty(device="cpu")
    assert model[1].lam == 0.3
    x = normal(31)
    assert torch.equal(drawn(model[1], x), drawn(qn.QTanh(0.3), x))


def test_parameters_keep_their_identity():
    model = Everything()
    parameters = list(model.parameters())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    convert(model, 0.1)
    assert all(a is b for a, b in zip(parameters, model.parameters(), strict=True))
    before = parameters[0].detach().clone()
    drawn(model, torch.ones(2, 3)).sum().backward()
    optimizer.step()
    assert not torch.equal(parameters[0], before)


class Tan(nn.Module):
    def __init__(self, slope):
        super().__init__()
        self.slope = slope
        self.inner = nn.Tanh()

    def forward(self, x):
        return torch.tanh(self.slope * x)


def test_a_registered_row_is_converted():
    register("named", lambda x, slope: torch.tanh(slope * x), parameters={"slope": 1.0}, module=Tan)
    try:
        model = nn.Sequential(nn.Linear(3, 3), Tan(0.25))
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # its own forward, which calls tanh, is gone
            convert(model, 0.3)
        text = "QActivation(named, slope=0.25, lam=0.3, phi=0.001, eval_mode='limit')"
        assert repr(model[1]) == text
        assert list(model[1].children()) == []
        x = normal(31)
        slope = 0.25 / torch.cosh(0.25 * x).square()
        torch.testing.assert_close(model[1].eval()(x), x * slope)
        with pytest.raises(ValueError, match="no activation module to convert"):
            convert(model)
    finally:
        unregister("named")


def test_only_modules_are_converted():
    with pytest.raises(TypeError, match=r"model.* got function; .*q_activation"):
        convert(torch.nn.functional.relu)


def test_q_activations_are_not_converted_again():
    model = nn.Sequential(nn.Linear(3, 3), nn.ReLU())
    module = convert(model)[1]
    with pytest.raises(ValueError, match=r"no activation module.*Sigmoid, Tanh, ReLU"):
        convert(model)
    assert model[1] is module


def test_what_a_q_activation_is_made_of_is_left_alone():
    model = nn.Sequential(QActivation(nn.Sequential(nn.Tanh(), nn.Sigmoid())), nn.ReLU())
    convert(model)
    assert [type(part) for part in model[0].f] == [nn.Tanh, nn.Sigmoid]
    assert type(model[1]) is qn.QReLU


def test_what_was_done_is_logged(caplog):
    with caplog.at_level(logging.INFO, logger="qneurons"):
        convert(Everything(), lam=0.1)
        convert(nn.Tanh())
    lines = [record.getMessage() for record in caplog.records]
    settings = "lam=0.1, phi=0.001, eval_mode='limit')"
    assert lines == [
        f"shared: relu becomes QReLU({settings}",
        f"body.0.relu: relu becomes QReLU({settings}",
        f"body.1.1: elu, alpha=0.5 becomes QELU(alpha=0.5, {settings}",
        f"blocks.1: gelu_tanh becomes QGELUTanh({settings}",
        "blocks.0.relu: leaky_relu, negative_slope=0.2 becomes "
        f"QLeakyReLU(negative_slope=0.2, {settings}",
        f"heads.a.1: softplus, beta=2 becomes QSoftplus(beta=2, {settings}",
        "the model: tanh becomes QTanh(lam=0.1, phi=0.001, eval_mode='limit')",
    ]
    assert {record.name for record in caplog.records} == {"qneurons"}
    assert {record.levelname for record in caplog.records} == {"INFO"}


# --- PyTorch's transformers -----------------------------------------------------------------------


def feed_forward_by_hand(layer, x, activation):
    """What an encoder layer that normalises afterwards computes, with any activation."""
    attended = layer.self_attn(x, x, x, need_weights=False)[0]
    x = layer.norm1(x + attended)
    return layer.norm2(x + layer.linear2(activation(layer.linear1(x))))


@pytest.mark.parametrize(
    ("activation", "row"),
    [
        ("relu", "relu"),
        ("gelu", "gelu"),
        (F.silu, "silu"),
        (nn.ReLU(), "relu"),
        (functools.partial(F.gelu, approximate="tanh"), "gelu_tanh"),
    ],
)
@pytest.mark.parametrize("grad", [True, False])
def test_a_transformer_layer_uses_the_q_activation_in_evaluation(activation, row, grad):
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(
        8, 2, 16, dropout=0.0, activation=activation, batch_first=True, dtype=torch.float64
    ).eval()
    convert(layer)
    assert type(layer.activation) is CLASSES[row]
    assert not layer.activation.training
    x = normal(2, 5, 8)
    with torch.set_grad_enabled(grad):
        expected = feed_forward_by_hand(layer, x, lambda y: qn.q_limit(y, row))
        torch.testing.assert_close(layer(x), expected)


@pytest.mark.parametrize("eval_mode", ["limit", "mean", "sample"])
@pytest.mark.parametrize("activation", ["relu", "gelu"])
def test_an_encoder_with_padding(activation, eval_mode):
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(
        8, 2, 16, dropout=0.0, activation=activation, batch_first=True, dtype=torch.float64
    )
    model = convert(nn.TransformerEncoder(layer, 2).eval(), **LIMIT, eval_mode=eval_mode)
    x, padding = normal(2, 5, 8), torch.zeros(2, 5, dtype=torch.bool)
    padding[0, 3:] = True
    with torch.no_grad():
        y = model(x, src_key_padding_mask=padding)
    first = x[:1, :3]
    for layer in model.layers:
        first = feed_forward_by_hand(layer, first, lambda y: qn.q_limit(y, activation))
    torch.testing.assert_close(y[:1, :3], first.detach())


def test_an_encoder_left_as_it_was_keeps_its_fast_path():
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    model = nn.Sequential(nn.TransformerEncoder(layer, 1), nn.Tanh())
    convert(model, exclude=["relu"])
    assert model[0].layers[0].activation_relu_or_gelu
    assert model[0].use_nested_tensor


def test_a_whole_transformer():
    model = convert(nn.Transformer(8, 2, 2, 2, 16, batch_first=True), 0.1)
    names = [f"{side}.layers.{i}.activation" for side in ("encoder", "decoder") for i in (0, 1)]
    assert list(q_modules(model)) == names
    assert len(set(q_modules(model).values())) == 4
    twin, x = copy.deepcopy(model).eval(), normal(2, 5, 8, dtype=torch.float32)
    assert torch.equal(twin(x, x), model.eval()(x, x))


# --- settings -------------------------------------------------------------------------------------


def test_the_setting_limit_makes_limits():
    converted = convert(model(), "limit")
    assert [repr(converted.get_submodule(name)) for name in ALL[:3]] == [
        "QLimit(relu)",
        "QLimit(relu6)",
        "QLimit(elu, alpha=0.5)",
    ]
    with pytest.raises(ValueError, match="no activation module to convert"):
        convert(converted, "c0.1")


@pytest.mark.parametrize(
    ("setting", "lam", "schedule"),
    [("c0.02", 0.02, None), ("a5", 5.0, "a5"), ("a2@0.25", 2.0, "a2@0.25"), (0.3, 0.3, None)],
)
def test_a_setting_is_written_as_in_the_study(setting, lam, schedule):
    new = convert(nn.Sequential(nn.ELU()), setting)[0]
    assert isinstance(new, qn.QELU)
    assert new.lam == lam
    assert new.schedule == (schedule and qn.parse_schedule(schedule))


@pytest.mark.parametrize("setting", ["base", "0.1", "LIMIT", "a", ""])
def test_an_unknown_setting_is_refused_and_the_model_kept(setting):
    old = model()
    with pytest.raises(ValueError, match=f"unknown setting {setting!r}.*'limit'.*'c0.1', 'a1' or"):
        convert(old, setting)
    assert isinstance(old["head"][1], nn.ReLU)


@every_copy
def test_a_schedule_survives_copies(copied):
    new = copied(convert(nn.Sequential(nn.ELU()), "a5"))
    assert "schedule='a5'" in repr(new)
    assert qn.LambdaScheduler(new).get_last_lam() == 5.0
