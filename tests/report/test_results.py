"""The statistics of a report, made once from the frame."""

import pytest

pytest.importorskip("polars")
pytest.importorskip("scipy")

from qneurons.report.comparisons import Cell
from qneurons.report.results import Results

ELU = Cell("digits", "mnist-mlp", False, "elu")


def test_everything_is_found_by_its_name(make_frame, digits_cells):
    results = Results(make_frame(settings=("a1", "base", "limit"), epochs=3))
    assert results.cells == sorted(Cell(*cell) for cell in digits_cells)
    assert results.settings(ELU) == ["base", "limit", "a1"]
    assert results.settings(ELU._replace(activation="sin")) == []
    assert results.epoch(ELU) == 3
    for metric in ("test_accuracy", "train_loss"):
        assert results.curves[metric]["epoch"].max() == 3
        for row in results.finals[metric]:
            assert results.final(row.cell, row.setting, metric) is row
        for row in results.contrasts[metric]:
            assert results.contrast(row.cell, row.setting, row.reference, metric) is row


def test_extra_contrasts_are_a_family_of_their_own(make_frame):
    results = Results(make_frame(cells=[ELU], gain={"a1": 0.01}, spread=0))
    [row] = results.extra_contrasts(ELU, [("a1", "c0.1")]).values()
    assert row.p_holm == row.p == 2**-9
    assert row.gain.mean == pytest.approx(0.01, abs=1e-3)


def test_runs_that_learn_nothing_are_counted_by_setting(make_frame):
    lost = ELU._replace(activation="tanh")
    frame = make_frame(
        cells=[ELU, lost],
        loss_gain=lambda cell, setting: -2.3 if (cell, setting) == (lost, "c0.1") else 0,
    )
    results = Results(frame)
    assert (results.untrained(ELU), results.untrained(lost)) == ({}, {"c0.1": 10})
    barely = Results(
        make_frame(cells=[ELU], loss=2.18, loss_noise=0, loss_gain=-0.01)
    )  # ln 10: 2.30
    assert barely.untrained(ELU) == dict.fromkeys(("c0.02", "c0.1", "a1", "a5", "a9"), 10)
