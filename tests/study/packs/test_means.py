"""The table of means against quadrature."""

import pytest
import torch

from qneurons import q_mean
from qneurons.activations import resolve
from qneurons.study.packs.means import MeanTable, look_up

LAMS = [0.02, 0.5, 9.0]


@pytest.mark.parametrize("name", ["tanh", "relu", "elu", "softplus", "hardtanh"])
def test_looked_up_means_are_those_of_quadrature(name):
    row = resolve(name)
    table = MeanTable(1e-3, torch.empty(0, dtype=torch.float64))
    x = torch.linspace(-31, 31, 301, dtype=torch.float64).expand(len(LAMS), -1)
    found = look_up(x, *table.rows(row, LAMS))
    for i, lam in enumerate(LAMS):
        expected = q_mean(x[i], row, lam)
        error = (found[i] - expected).abs() / expected.abs().clamp(min=1)
        if any(row.kinks(**row.parameters)):  # other than at zero
            assert error.mean() < 1e-4
        else:
            assert error.max() < 2e-5, (lam, x[i][error.argmax()])


def test_every_run_looks_up_its_own():
    row = resolve("tanh")
    table = MeanTable(1e-3, torch.empty(0))
    x = torch.full((2, 3, 4), 0.7)
    first, second = look_up(x, *table.rows(row, [0.1, 5.0]))
    torch.testing.assert_close(first, q_mean(x[0], row, 0.1), rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(second, q_mean(x[1], row, 5.0), rtol=1e-4, atol=1e-5)


def test_outside_and_not_a_number():
    row = resolve("relu")
    table = MeanTable(1e-3, torch.empty(0, dtype=torch.float64))
    x = torch.tensor([[1e4, -1e4, float("nan")]], dtype=torch.float64)
    found = look_up(x, *table.rows(row, [0.1]))
    assert found[0, 0] == pytest.approx(1e4, rel=1e-4)
    assert found[0, 1] == pytest.approx(0, abs=1)
    assert found[0, 2].isnan()


def test_what_is_known_is_not_computed_again(monkeypatch):
    table = MeanTable(1e-3, torch.empty(0))
    table.add(resolve("elu"), [0.1, 0.2])
    known = table.known["elu", 0.1]
    monkeypatch.setattr("qneurons.study.packs.means.q_mean", None)
    table.rows(resolve("elu"), [0.2, 0.1])
    assert table.known["elu", 0.1] is known
