"""The grid of the paper that claims are about."""

import pytest

pytest.importorskip("polars")
pytest.importorskip("scipy")

from qneurons.report.claims.grid import CURVED, Q_SETTINGS, paper_cells
from qneurons.study.spec import load_study


def test_the_grid_is_that_of_the_study():
    study = load_study("paper")
    assert set(paper_cells()) == {run.cell for run in study.runs}
    assert {"base", "limit", *Q_SETTINGS} == {run.setting for run in study.runs}


def test_cells_of_some_activations():
    assert len(paper_cells()) == 24
    assert {cell.activation for cell in paper_cells(CURVED)} == {"tanh", "elu", "softplus"}
