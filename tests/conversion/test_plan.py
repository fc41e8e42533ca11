"""What is chosen, what is left, and how the plan says so."""

import re

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import qneurons as qn


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
    pair = nn.Sequential(layer, nn.ELU())
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
        self.act = nn.ELU()
        self.kept = [nn.functional.relu]

    def body(self, x):
        return nn.functional.elu(x)

    def forward(self, x):
        return self.act(self.body(x))


def test_other_methods_and_containers_are_named():
    message = r"elu \(CallsInAnotherMethod\.body\).*; the list kept \(CallsInAnotherMethod\)"
    with pytest.warns(UserWarning, match=message):
        qn.convert(CallsInAnotherMethod())


def test_nothing_chosen_of_an_activation():
    with pytest.raises(ValueError, match=r"the model \(relu\).*exclude"):
        qn.convert(nn.ReLU(), exclude="relu")


# --- gates and outputs ----------------------------------------------------------------------------


class SqueezeExcitation(nn.Module):
    def __init__(self):
        super().__init__()
        self.reduce, self.act = nn.Conv2d(4, 2, 1), nn.SiLU()
        self.expand, self.gate = nn.Conv2d(2, 4, 1), nn.Sigmoid()

    def forward(self, x):
        return x * self.gate(self.expand(self.act(self.reduce(x.mean((2, 3), keepdim=True)))))


def classifier():
    blocks = nn.Sequential(SqueezeExcitation(), SqueezeExcitation())
    head = nn.Sequential(nn.Flatten(), nn.Linear(4, 3), nn.Tanh(), nn.Linear(3, 1), nn.Sigmoid())
    return nn.Sequential(blocks, nn.AdaptiveAvgPool2d(1), head)


def test_gates_and_outputs_are_left_and_named():
    model = classifier()
    message = r"sigmoid \(\*\.\*\.gate, 2 times\): a gate.*; sigmoid \(2\.4\): .*leaves the model$"
    with pytest.warns(UserWarning, match=message):
        assert changed(model) == ["0.0.act", "0.1.act", "2.2"]
    probability = model(torch.randn(8, 4, 5, 5) * 9)
    assert ((probability >= 0) & (probability <= 1)).all()


@pytest.mark.parametrize("include", [["*", "sigmoid"], ["*", "*.gate", "2.4"], ["*", nn.Sigmoid]])
def test_include_overrides_what_is_left(include):
    model = classifier()
    expected = ["0.0.act", "0.0.gate", "0.1.act", "0.1.gate", "2.2", "2.4"]
    assert changed(model, include=include) == expected


def test_an_output_alone_is_an_error_that_names_the_remedy():
    model = nn.Sequential(nn.Linear(2, 1), nn.Sigmoid())
    with pytest.raises(ValueError, match=r"sigmoid \(1\).*leaves the model.*include='1'"):
        qn.convert(model)
    assert changed(model, include="1") == ["1"]


# --- the plan -------------------------------------------------------------------------------------


def test_the_plan_is_one_table_and_changes_nothing():
    model = classifier()
    qn.convert(model, include="0.1.act")
    before = repr(model)
    plan = qn.conversion_plan(model, exclude="tanh")
    assert repr(model) == before
    wide = len("QSiLU(lam=0.1, phi=0.001, eval_mode='limit')")
    assert [re.sub(" {2,}", "  ", line) for line in str(plan).splitlines()] == [
        "1  0.0.act  silu  is replaced",
        "1  2.2  tanh  is excluded",
        "1  0.1.act  QSiLU(lam=0.1, phi=0.001, eval_mode='limit')  is converted",
        "2  *.*.gate  sigmoid  is left: a gate, because its result multiplies another tensor",
        "1  2.4  sigmoid  is left: bounded, and its result leaves the model",
    ]
    assert {line.index("  is ") for line in str(plan).splitlines()} == {len("1  *.*.gate  ") + wide}
    assert [place.path for place in plan.replaced] == ["0.0.act"]
    assert [place.path for place in plan.excluded] == ["2.2"]
    assert list(plan.converted) == ["0.1.act"]


def test_the_plan_of_a_model_without_activations():
    assert str(qn.conversion_plan(nn.Linear(2, 2))) == "no activations"


def test_a_second_conversion_converts_the_rest_and_then_says_so():
    model = nn.Sequential(nn.ELU(), nn.Linear(2, 2), nn.ReLU())
    assert changed(model, include="elu") == ["0"]
    assert changed(model) == ["2"]
    with pytest.raises(ValueError, match="already converted: it has 2 q-activations"):
        qn.convert(model)
