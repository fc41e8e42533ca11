"""Names of q-activations in configurations; those of transformers: integrations/test_hugging_face.

Models and configurations here only look like those of transformers.
"""

import copy
import pickle
import warnings

import pytest
from torch import nn

import qneurons as qn


class Config:
    def __init__(self, **fields):
        vars(self).update(fields)
        if "proj" in fields:
            self.dense_act = fields["proj"].split("-")[-1]

    def to_dict(self):
        return dict(vars(self))


class Layer(nn.Module):
    def __init__(self, config, act):
        super().__init__()
        self.config, self.linear, self.act = config, nn.Linear(2, 2), act

    def forward(self, x):
        return self.act(self.linear(x))


class Model(nn.Sequential):
    def __init__(self, config, *layers):
        super().__init__(*layers)
        self.config = config

    def save_pretrained(self):
        raise NotImplementedError


def test_all_fields_of_a_row_are_written_and_put_back():
    config = Config(hidden_act="gelu_new", activation_function="gelu_pytorch_tanh", conv_act="relu")
    config.size, config.note = 3, "gelu_new"
    before = config.to_dict()
    gelu = nn.GELU(approximate="tanh")
    model = Model(config, Layer(config, gelu), Layer(config, gelu))
    qn.convert(model, "a5")
    written = {"hidden_act": "q_gelu_tanh(a5)", "activation_function": "q_gelu_tanh(a5)"}
    assert config.to_dict() == before | written
    for same in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert qn.revert(same).config.to_dict() == before
    assert config.to_dict() == before | written
    qn.revert(model)
    assert config.to_dict() == before


def test_parts_have_their_own_configurations_and_copies_are_seen_through():
    eye, ear = Config(hidden_act="relu"), Config(hidden_act="relu")
    config = Config(eye=eye, ear=ear)
    model = Model(config, Layer(eye, nn.ReLU()), Layer(ear, nn.ReLU()))
    with pytest.warns(UserWarning, match="cannot name 1 of"):  # the field of the other is plain
        qn.convert(model, "c0.5", include="0.act")
    assert (eye.hidden_act, ear.hidden_act) == ("relu", "relu")
    qn.revert(model)
    qn.convert(model, "c0.5")
    assert (eye.hidden_act, ear.hidden_act) == ("q_relu(c0.5)", "q_relu(c0.5)")

    config = Config(hidden_act="relu")
    qn.convert(Model(config, Layer(copy.deepcopy(config), nn.ReLU())), "limit")
    assert config.hidden_act == "limit_relu"


@pytest.mark.parametrize(
    "config",
    [
        Config(),
        Config(hidden_act="silu"),
        Config(proj="gated-relu"),  # dense_act follows from it
        Config(note="relu"),
    ],
    ids=["no field", "another", "computed", "not an activation"],
)
def test_what_a_configuration_cannot_name_is_said(config):
    before = config.to_dict()
    model = Model(config, Layer(config, nn.ReLU()))
    with pytest.warns(UserWarning, match=r"Model cannot name 1 .* such as 0\.act; .*convert again"):
        qn.convert(model)
    assert config.to_dict() == before


@pytest.mark.parametrize("config", [None, {"hidden_act": "relu"}])
def test_a_model_of_another_library_has_no_such_configuration(config):
    model = Model(config, Layer(config, nn.ReLU()))
    with pytest.warns(UserWarning, match="cannot name 1 of"):
        qn.convert(model)


def test_a_row_that_is_not_in_the_table_has_no_name():
    def odd(x):
        return x.tanh() * x

    class Odd(nn.Module):
        def forward(self, x):
            return odd(x)

    model = Model(config := Config(hidden_act="odd"), Layer(config, Odd()))
    with pytest.warns(UserWarning, match="cannot name 1 of"):
        qn.convert(model, alias={Odd: odd})
    assert config.hidden_act == "odd"


def test_other_models_are_left_alone():
    config = Config(hidden_act="relu")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        qn.convert(nn.Sequential(Layer(config, nn.ReLU())))
    assert config.hidden_act == "relu"
