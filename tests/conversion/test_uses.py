"""What becomes of an activation's result, as far as it can be traced."""

import functools

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from qneurons.activations import resolve, rows
from qneurons.conversion.uses import find_use, is_bounded


class Model(nn.Module):
    """Calls ``body`` with an activation ``act`` and a few layers."""

    def __init__(self, body, act=None):
        super().__init__()
        self.act = act or nn.Sigmoid()
        self.linear, self.drop = nn.Linear(3, 3), nn.Dropout()
        self.scale, self.body = nn.Parameter(torch.ones(3)), body

    def forward(self, x, mask=None):
        return self.body(self, x)


def stores(model, x):
    model.last = model.act(x)
    return x * model.last


@pytest.mark.parametrize(
    ("body", "use"),
    [
        (lambda m, x: x * m.act(m.linear(x)), "gate"),
        (lambda m, x: x.mul_(m.act(x).view(-1, 3).expand_as(x)), "gate"),
        (lambda m, x: m.drop(m.act(x)[:, None] * 2 + 1).transpose(0, 1) * x, "gate"),
        (lambda m, x: (1 - m.act(x)) * m.scale * x, "gate"),
        (lambda m, x: m.act(x) @ m.linear(x), "gate"),
        (lambda m, x: torch.lerp(x, m.linear(x), m.act(x)), "gate"),
        (lambda m, x: m.linear(m.act(x)) + x * m.act(x), "gate"),
        (stores, "gate"),
        (lambda m, x: m.act(x), "output"),
        (lambda m, x: {"y": (m.drop(m.act(x)) * m.scale, x)}, "output"),
        (lambda m, x: torch.cat([x, m.act(x)], -1), "output"),
        (lambda m, x: m.linear(m.act(x)), "hidden"),
        (lambda m, x: m.act(x) @ m.linear.weight, "hidden"),
        (lambda m, x: x + m.act(x), "hidden"),
        (lambda m, x: x * m.act(x).shape[0], "hidden"),
        (lambda m, x: x, "unknown"),
        (lambda m, x: m.act(x) if x.sum() > 0 else x, "unknown"),
    ],
)
@pytest.mark.parametrize(
    "act",
    [nn.Sigmoid(), torch.sigmoid, F.sigmoid, functools.partial(F.hardtanh, min_val=0.0)],
    ids=str,
)
def test_the_use_of_a_result(body, use, act):
    model = Model(body, act)
    before = dict(vars(model))
    assert find_use(model, "act", act) == use
    assert vars(model) == before


def test_a_result_that_leaves_its_parent_is_followed_upwards():
    inner = nn.Sequential(nn.Linear(3, 3), nn.Sequential(nn.Linear(3, 3), nn.Tanh()))
    act = inner[1][1]
    assert find_use(inner, "1.1", act) == "output"
    assert find_use(nn.Sequential(inner, nn.Linear(3, 3)), "0.1.1", act) == "hidden"
    gated = Model(lambda m, x: x * m.act(x), inner)
    assert find_use(nn.Sequential(gated), "0.act.1.1", act) == "gate"
    puzzling = Model(lambda m, x: m.act(x) if x.sum() > 0 else x, inner)
    assert find_use(puzzling, "act.1.1", act) == "unknown"


def test_a_shared_activation_is_a_gate_if_one_of_its_uses_is():
    shared = nn.Sigmoid()
    model = Model(lambda m, x: m.linear(m.act(x)) * m.again(x), shared)
    model.again = shared
    assert find_use(model, "act", shared) == find_use(model, "again", shared) == "gate"


def test_bounded_rows():
    bounded = {row.name for row in rows() if is_bounded(row)}
    assert bounded == {"sigmoid", "tanh", "hardtanh", "relu6", "hardsigmoid", "softsign", "sin"}
    assert is_bounded(resolve(nn.Hardtanh(-9.0, 9.0)))
