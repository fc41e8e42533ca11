"""Which settings can be compared, and what they are called."""

import re
from pathlib import Path

import pytest
import torch
from torch import nn

from qneurons.comparison.arms import EXAMPLES, parse_arm, parse_arms, rivals
from qneurons.study.errors import StudyError


@pytest.mark.parametrize(
    ("text", "name", "setting"),
    [
        ("base", "base", "base"),
        ("limit", "limit", "limit"),
        ("c.1", "c0.1", "c0.1"),
        ("a1", "a1", "a1/20"),  # over the epochs of the training
        ("a2.0", "a2", "a2/20"),
        ("a1@0.5", "a1@0.5", "a1@0.5"),
        ("a2@0.25", "a2@0.25", "a2@0.25"),
        ("a1/7", "a1/7", "a1/7"),
        ("cos1-0", "cos1", "cos1/20"),
        ("lin1-2/7", "lin1-2/7", "lin1-2/7"),
        ("silu", "silu", "silu"),
        ("rrelu", "rrelu", "rrelu"),
        ("relu2", "relu2", "relu2"),
        ("ReLU", "relu", "relu"),
        ("SiLU", "silu", "silu"),
    ],
)
def test_a_setting_has_a_name_and_is_fitted_to_the_epochs(text, name, setting):
    arm = parse_arm(text)
    assert (arm.name, arm.setting(20)) == (name, setting)
    assert parse_arm(name) == arm


@pytest.mark.parametrize("text", ["", "b1", "c-1", "n0.1", "m1", "relux", "a1/1", "limit "])
def test_a_setting_that_cannot_be_read(text):
    with pytest.raises(StudyError, match=r"write base, limit, c0\.1, .*docs/compare\.md") as error:
        parse_arm(text)
    assert repr(text) in str(error.value)
    assert "\n" not in str(error.value)
    assert len(str(error.value)) < 200


@pytest.mark.parametrize(
    ("text", "near"), [("limti", "limit"), ("LeakyReLU", "leaky_relu"), ("c0,1", "c0.1")]
)
def test_the_nearest_setting_is_suggested(text, near):
    with pytest.raises(StudyError, match=f"^unknown setting '{text}'; did you mean '{near}'\\? "):
        parse_arm(text)


def test_base_comes_first_and_once():
    assert [arm.name for arm in parse_arms(["c0.1", "base", "c.1"])] == ["base", "c0.1"]
    assert [arm.name for arm in parse_arms("limit, a1")] == ["base", "limit", "a1"]


def test_base_alone_compares_nothing():
    with pytest.raises(StudyError, match=r"nothing to compare.*'limit'"):
        parse_arms(["base"])


def test_one_epoch_anneals_nothing():
    assert parse_arm("a1").setting(1) == "a1/2"


def test_what_messages_recommend_can_be_read_and_the_page_has_the_full_list():
    assert [parse_arm(example).name for example in EXAMPLES] == list(EXAMPLES)
    page = (Path(__file__).parents[2] / "docs" / "compare.md").read_text()
    (listed,) = re.findall("The plain activations are (.*?)\n\n", page, re.DOTALL)
    assert re.findall("`(.+?)`", listed) == sorted(rivals())


def test_every_rival_is_an_activation():
    assert {"relu", "silu", "mish", "gelu_tanh", "prelu", "rrelu", "logsigmoid"} <= rivals().keys()
    for make in rivals().values():
        module = make()
        assert isinstance(module, nn.Module)
        assert module(torch.randn(3, 4)).shape == (3, 4)
    assert rivals()["gelu_tanh"]().approximate == "tanh"
    assert rivals()["relu2"]()(torch.tensor([-3.0, 3.0])).tolist() == [0, 9]
