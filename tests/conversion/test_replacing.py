"""The model that convert makes, and the way back."""

import copy
import functools
import logging
import warnings

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import qneurons as qn
from qneurons.activations import register, unregister
from qneurons.conversion import convert
from qneurons.modules import CLASSES, QActivation
from tests.test_modules import LIMIT, drawn, every_copy, normal


def model():
    return nn.ModuleDict(
        {
            "features": nn.Sequential(nn.Conv2d(1, 2, 3), nn.ReLU(), nn.ReLU6(), nn.ELU(0.5)),
            "head": nn.Sequential(nn.Linear(3, 2), nn.ReLU(inplace=True), nn.Hardtanh(), nn.GELU()),
        }
    )


ALL = [f"features.{i}" for i in (1, 2, 3)] + [f"head.{i}" for i in (1, 2, 3)]


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
        model = nn.Sequential(nn.Linear(3, 3), nn.Softplus())
    model = convert(model, lam=0.3).to_empty(device="cpu")
    assert model[1].lam == 0.3
    x = normal(31)
    assert torch.equal(drawn(model[1], x), drawn(qn.QSoftplus(lam=0.3), x))


def test_parameters_keep_their_identity():
    torch.manual_seed(0)  # with other weights all gradients may be 0
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
            convert(model, 0.3, include=Tan)
        text = "QActivation(named, slope=0.25, lam=0.3, phi=0.001, eval_mode='limit')"
        assert repr(model[1]) == text
        assert list(model[1].children()) == []
        x = normal(31)
        slope = 0.25 / torch.cosh(0.25 * x).square()
        torch.testing.assert_close(model[1].eval()(x), x * slope)
        with pytest.raises(ValueError, match="already converted"):
            convert(model)
    finally:
        unregister("named")


def test_only_modules_are_converted():
    with pytest.raises(TypeError, match=r"model.* got function; .*q_activation"):
        convert(torch.nn.functional.relu)


def test_q_activations_are_not_converted_again():
    model = nn.Sequential(nn.Linear(3, 3), nn.ReLU())
    module = convert(model)[1]
    with pytest.raises(ValueError, match="already converted: it has 1 q-activations"):
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
    (record,) = caplog.records
    assert (record.name, record.levelname) == ("qneurons", "INFO")
    assert record.getMessage().splitlines() == [
        "converted Everything",
        "1  shared         relu                            is replaced",
        "1  body.0.relu    relu                            is replaced",
        "1  body.1.1       elu, alpha=0.5                  is replaced",
        "1  blocks.1       gelu_tanh                       is replaced",
        "1  blocks.0.relu  leaky_relu, negative_slope=0.2  is replaced",
        "1  heads.a.1      softplus, beta=2                is replaced",
    ]


# --- the way back ---------------------------------------------------------------------------------


def test_revert_puts_the_same_modules_back():
    model, x = Everything().double(), normal(7, 3)
    before, y = dict(model.named_modules(remove_duplicate=False)), model(x)
    reverted = qn.revert(convert(model))
    assert reverted is model
    assert dict(model.named_modules(remove_duplicate=False)) == before
    assert torch.equal(model(x), y)


@every_copy
def test_a_copy_can_be_reverted(copied):
    model = qn.revert(copied(convert(Everything().double()))).eval()
    assert q_modules(model) == {}
    assert model.shared is model.body[0].relu
    assert not model.shared.training


def test_functions_are_put_back_as_functions():
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True, dtype=torch.float64).eval()
    twin, x = copy.deepcopy(layer), normal(2, 5, 8)
    qn.revert(convert(layer))
    assert layer.activation is F.relu
    assert layer.activation_relu_or_gelu == twin.activation_relu_or_gelu == 1
    with torch.no_grad():
        assert torch.equal(layer(x), twin(x))


def test_hooks_of_the_q_activation_are_carried_back():
    calls = []
    model = convert(nn.Sequential(nn.Linear(2, 2), nn.ReLU()))
    model[1].register_forward_hook(lambda *_: calls.append("forward"))
    qn.revert(model)(torch.randn(3, 2))
    assert calls == ["forward"]


def test_full_backward_hooks_stay_what_they_are():
    """They see and replace gradients, which older backward hooks cannot."""

    def stop(module, inputs, outputs):
        return (torch.zeros_like(inputs[0]),)

    def gradient(model):
        x = torch.randn(3, 2).requires_grad_()
        model(x).sum().backward()
        return x.grad

    model = nn.Sequential(nn.Linear(2, 2), nn.ReLU())
    model[1].register_full_backward_hook(stop)
    assert not gradient(convert(model)).any()
    assert not gradient(qn.revert(model)).any()
    single = nn.ReLU()
    single.register_full_backward_hook(stop)
    assert not gradient(convert(single)).any()
    other = convert(nn.Sequential(nn.Linear(2, 2), nn.ReLU()))
    other[1].register_full_backward_hook(stop)
    assert not gradient(qn.revert(other)).any()


def test_a_single_activation_is_put_back():
    old = nn.Tanh()
    assert qn.revert(convert(old)) is old


def test_what_convert_has_not_made_is_not_reverted():
    model = nn.Sequential(qn.QELU(), nn.Linear(2, 2), nn.ReLU())
    with pytest.raises(ValueError, match=r"Sequential has nothing to revert.*qneurons\.convert"):
        qn.revert(model)
    qn.revert(convert(model))
    assert isinstance(model[0], qn.QELU)
    assert isinstance(model[2], nn.ReLU)


# --- one call for the whole model -----------------------------------------------------------------


def test_configure_sets_what_is_given_on_every_q_activation():
    model = convert(Everything(), 0.3)
    assert qn.configure(model, lam=0.02, eval_mode="mean") is model
    qn.configure(model, phi=0.01)
    found = {(m.lam, m.phi, m.eval_mode) for m in q_modules(model).values()}
    assert found == {(0.02, 0.01, "mean")}


def test_configure_needs_q_activations_and_right_values():
    with pytest.raises(ValueError, match=r"Linear holds no q-activation.*qneurons\.convert"):
        qn.configure(nn.Linear(2, 2), lam=0.1)
    with pytest.raises(ValueError, match="eval_mode must be one of"):
        qn.configure(qn.QELU(), eval_mode="average")


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
    model = nn.Sequential(nn.TransformerEncoder(layer, 1), nn.ELU())
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
    with pytest.raises(ValueError, match=r"already converted: it has 6 .*configure.*revert"):
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
    with pytest.raises(
        ValueError, match=f"unknown setting {setting!r}.*'limit'.*'c0.02', 'a1', .*'cos5/20'"
    ):
        convert(old, setting)
    assert isinstance(old["head"][1], nn.ReLU)


@every_copy
def test_a_schedule_survives_copies(copied):
    new = copied(convert(nn.Sequential(nn.ELU()), "a5"))
    assert "schedule='a5'" in repr(new)
    assert qn.LambdaScheduler(new).get_last_lam() == 5.0
