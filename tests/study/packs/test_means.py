"""The tables of means of many runs against quadrature."""

import torch

from qneurons import q_mean
from qneurons.activations import resolve
from qneurons.mean_table import look_up
from qneurons.study.packs.means import MeanTables


def test_every_run_looks_up_its_own():
    row, x = resolve("tanh"), torch.linspace(-9, 9, 24).expand(3, -1).reshape(3, 4, 6)
    for dtype in (torch.float32, torch.float64):
        x = x.to(dtype)
        found = look_up(x, MeanTables(1e-3, x).rows(row, [5.0, 0.1, 5.0]))
        assert found.dtype == dtype
        for own, lam, expected in zip(x, [5.0, 0.1, 5.0], found, strict=True):
            torch.testing.assert_close(q_mean(own, row, lam), expected, rtol=1e-6, atol=1e-6)


def test_what_is_known_is_not_computed_again(monkeypatch):
    tables = MeanTables(1e-3, torch.empty(0))
    tables.add(resolve("elu"), [0.1, 0.2])
    known = tables.known["elu", 0.1]
    monkeypatch.setattr("qneurons.study.packs.means.build", None)
    tables.rows(resolve("elu"), [0.2, 0.1])
    assert tables.known["elu", 0.1] is known
