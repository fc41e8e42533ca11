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
        self.loss, self.larger, self.seen = nn.BCELoss(), nn.Upsample(scale_factor=1), []
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x, mask=None):
        return self.body(self, x)


def stores(model, x):
    model.calls += 1
    model.last = model.act(x)
    model.seen.append(model.last)
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
        (lambda m, x: m.act(x).clamp(0.01, 0.99).mean(1), "output"),
        (lambda m, x: m.linear(torch.log(m.act(x))), "probability"),
        (lambda m, x: F.binary_cross_entropy(m.act(x), x.sigmoid()), "probability"),
        (lambda m, x: m.loss(m.act(x), x), "probability"),
        (lambda m, x: x * m.larger(m.act(x)[None])[0], "gate"),
        (lambda m, x: x * m.act(x) ** 2, "gate"),
        (lambda m, x: m.linear(m.act(x).mean(0)), "hidden"),
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
)
def test_the_use_of_a_result(body, use, act):
    model = Model(body, act)
    names = set(vars(model))
    assert find_use(model, "act", act) == use
    assert set(vars(model)) == names
    assert model.seen == []
    assert model.calls == 0


def test_a_result_that_leaves_its_parent_is_followed_upwards():
    inner = nn.Sequential(nn.Linear(3, 3), nn.Sequential(nn.Linear(3, 3), nn.Tanh()))
    act = inner[1][1]
    assert find_use(inner, "1.1", act) == "output"
    assert find_use(nn.Sequential(inner, nn.Linear(3, 3)), "0.1.1", act) == "hidden"
    gated = Model(lambda m, x: x * m.act(x), inner)
    assert find_use(nn.Sequential(gated), "0.act.1.1", act) == "gate"
    puzzling = Model(lambda m, x: m.act(x) if x.sum() > 0 else x, inner)
    assert find_use(puzzling, "act.1.1", act) == "unknown"


def test_a_container_without_a_forward_is_passed_over():
    act = nn.Sigmoid()
    for held in (nn.ModuleList([act]), nn.ModuleDict({"0": act})):
        key = 0 if isinstance(held, nn.ModuleList) else "0"
        model = Model(lambda m, x, key=key: x * m.act[key](m.linear(x)), held)
        assert find_use(model, "act.0", act) == "gate"
    assert find_use(nn.ModuleList([act]), "0", act) == "unknown"


def test_a_shared_activation_is_a_gate_if_one_of_its_uses_is():
    shared = nn.Sigmoid()
    model = Model(lambda m, x: m.linear(m.act(x)) * m.again(x), shared)
    model.again = shared
    assert find_use(model, "act", shared) == find_use(model, "again", shared) == "gate"


def test_bounded_rows():
    bounded = {row.name for row in rows() if is_bounded(row)}
    assert bounded == {"sigmoid", "tanh", "hardtanh", "relu6", "hardsigmoid", "softsign", "sin"}
    assert is_bounded(resolve(nn.Hardtanh(-9.0, 9.0)))
