"""Where g turns, and where the cells of its law end."""

import math

import pytest
import torch

from qneurons import activations
from qneurons.given_delta import difference
from qneurons.moments import atoms, cdf, density
from qneurons.output_law import OutputLaw, find_cells


def f64(*values):
    return torch.tensor(values, dtype=torch.float64)


@pytest.mark.parametrize(
    ("name", "x", "turn"),
    [
        ("tanh", 0.5, -1.488108919),
        ("tanh", 1.0, -1.458299385),
        ("tanh", -2.0, -1.384939757),
        ("tanh", 3.0, -1.323438647),
        ("sigmoid", 2.0, -1.458299385),
        ("softsign", 1.5, -1 - 1 / (1 + math.sqrt(5))),
        ("silu", 1.0, 2.599811909),
        ("silu", -2.0, 0.3134762328),
        ("silu", 3.0, -0.2841275175),
        ("gelu", 1.0, 0.6600876513),
        ("gelu", 2.0, -0.4095952739),
        ("gelu", -3.0, -0.6746142578),
        ("mish", 1.0, 0.8032499078),
        ("mish", 2.0, -0.356990241),
        ("mish", 3.0, -0.642902406),
        ("mish", -2.0, 0.1983636019),
        ("hardswish", 1.5, 1.0),
        ("hardswish", -2.0, 0.5),
    ],
)
def test_g_turns_where_it_should(name, x, turn):
    # The extreme value x f'(b*) ends the law: all of it lies on one side.
    row = activations.resolve(name)
    extreme = difference(f64(x), f64(turn), row).item()
    is_minimum = name in {"tanh", "sigmoid", "softsign"} and x < 0
    y = extreme + (-1 if is_minimum else 1) * f64(1e-9, -1e-9)
    outside, inside = cdf(y, x, name, 2.0)
    assert outside.item() == pytest.approx(0 if is_minimum else 1, abs=1e-15)
    assert 0 < inside < 1
    outside, inside = density(y, x, name, 2.0)
    assert outside == 0
    is_kink = name == "hardswish"
    assert (0.1 < inside < 1) if is_kink else inside > 100
    # And the piece ends at that δ.
    law = OutputLaw(row, f64(x), f64(2.0), 1e-3)
    assert (law.pieces(law.cells()).start - turn).abs().min() < 1e-8


@pytest.mark.parametrize(
    ("name", "bends"),
    [
        ("silu", [-2.39935728051547, 2.39935728051547]),
        ("gelu", [-math.sqrt(2), math.sqrt(2)]),
        ("gelu_tanh", [-1.41850400879083, 1.41850400879083]),
        ("mish", [-2.25637639636079, 1.49057117948543]),
        ("hardswish", [-3.0, 3.0]),
        ("tanh", [0.0]),
        ("celu", [0.0]),
        ("softplus", []),
        ("identity", []),
        ("hardtanh", [-1.0, 1.0]),
    ],
)
def test_the_cells_end_at_bends_and_kinks(name, bends):
    edges, *_ = find_cells(activations.resolve(name), torch.device("cpu"))
    assert edges.tolist() == pytest.approx([-math.inf, *bends, math.inf], abs=2e-14)


@pytest.mark.parametrize("beta", [1e-3, 100.0, 1e4])
def test_underflow_far_out_is_not_taken_for_a_straight_line(beta):
    x = f64(-3.0, 0.2, 4.0) / beta
    assert (atoms(x, torch.nn.Softplus(beta), 1.0)[1] == 0).all()
    expected = cdf(0.3, x * beta, "softplus", 1.0)
    torch.testing.assert_close(cdf(0.3 / beta, x, torch.nn.Softplus(beta), 1.0), expected)
