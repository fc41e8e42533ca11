"""What the sections of a report show, and in which order."""

import re

import numpy as np
import pytest

pl = pytest.importorskip("polars")
pytest.importorskip("matplotlib")
pytest.importorskip("scipy")

from qneurons.report import sections, tables
from qneurons.report.figures.artwork import setting_styles
from qneurons.report.results import Results
from tests.report.conftest import DIGITS_CELLS

SMALL = {"seeds": 3, "epochs": 3, "settings": ("base", "limit", "c0.1", "a1")}
STYLES = setting_styles(SMALL["settings"])


@pytest.fixture
def make_sections(make_frame, monkeypatch):
    monkeypatch.setattr(sections, "paper_figures", lambda names, lams: {"law-of-q": lams})

    def make(**options):
        results = Results(make_frame(**SMALL | options))
        return {s.id: s for s in sections.make_sections(results, tables.count_runs(results.states))}

    return make


@pytest.mark.parametrize("epochs", [2, 50])
def test_the_papers_claims_follow_the_gains_if_its_cells_are_there(
    make_sections, paper_cells, epochs
):
    found = make_sections(epochs=epochs, every=epochs // 2, cells=paper_cells[:1])
    order = ["gains", "verdicts", "noise-or-limit", "learning-curves", "tables", "q-activations"]
    assert list(found) == [*order, "provenance"]
    assert "verdicts" not in make_sections()


@pytest.mark.parametrize("settings", [("base",), ("c0.1", "a1"), ("limit", "a1")], ids=str)
def test_gains_need_base_and_another_setting(make_sections, settings):
    found = make_sections(settings=settings)
    assert "gains" not in found
    first = found["accuracies"]
    assert first is next(iter(found.values()))
    assert [table.title for table in first.tables] == [
        "Test accuracy (%) at epoch 3 (digits, mnist-mlp, no dropout)"
    ]
    assert first.tables[0] not in found["tables"].tables


def test_gains_have_a_figure_and_a_table(make_sections):
    gains = make_sections(gain=0.004)["gains"]
    assert [drawing.name for drawing in gains.figures] == ["gains"]
    assert gains.tables[0].columns[-4:] == ("base, %", "limit", "c0.1", "a1")


def test_learning_curves_go_through_the_epochs_that_are_recorded(make_frame, thin_out):
    frame = make_frame(**SMALL | {"epochs": 23})
    thin = thin_out(frame, pl.col("seed") == 1)
    [drawing] = sections.draw_learning_curves(Results(thin), STYLES)
    accuracy, loss = drawing.figure.axes[::2]
    gains, losses = ([line for line in ax.lines if line.get_gid()] for ax in (accuracy, loss))
    assert [list(line.get_xdata()) for line in gains] == [[*range(1, 24)]] * 3
    assert [list(line.get_xdata()) for line in losses] == [[1, 5, 10, 15, 20]] * 4
    assert all(np.isfinite(line.get_ydata()).all() for line in (*gains, *losses))


def test_curves_of_settings_that_learn_nothing_have_no_highest(make_frame):
    results = Results(make_frame(**SMALL, loss=2.3))
    [drawing] = sections.draw_learning_curves(results, STYLES)
    assert drawing.alt.endswith("All settings learn nothing.")


def test_the_words_of_one_gain_name_no_range(make_frame):
    one = {"settings": ("base", "a1"), "cells": DIGITS_CELLS[:1]}
    results = Results(make_frame(**SMALL | one))
    [drawing] = sections.draw_gains_over_base(results, ())
    assert re.search(r"in 1 cell: .* unclear, [+-]\d\.\d\d \(a1, .*\) points\.$", drawing.alt)
    assert "from" not in drawing.alt


def test_no_table_is_empty(make_sections):
    for settings, count in ((("base",), 2), (("base", "a1"), 5)):
        found = make_sections(settings=settings)
        assert len(found["tables"].tables) == count  # without another setting no contrasts
        assert "noise-or-limit" not in found
        assert ("q-activations" in found) == ("a1" in settings)
        assert all(table.rows for section in found.values() for table in section.tables)


def test_q_neurons_are_drawn_for_the_trained_lam(make_sections):
    found = make_sections(settings=("base", "m9", "c0.1", "c0", "a2@0.25", "a2"))
    [drawing] = found["q-activations"].figures
    assert drawing.figure == [0.1, 2]
    assert "λ = 0.1 and 2" in drawing.alt
    assert "q-activations" not in make_sections(settings=("base", "c0"))  # it has no density


def test_a_trained_mean_has_a_table_of_its_own(make_sections):
    settings = ("base", "limit", "m1", "a1")
    titles = [t.title for t in make_sections(settings=settings)["noise-or-limit"].tables]
    without = [t.title for t in make_sections()["noise-or-limit"].tables]
    assert [title for title in titles if title.startswith("The noise alone")]
    assert len(titles) == len(without) + 1


def test_settings_that_learn_nothing_are_named(make_frame):
    lost = make_frame(loss_gain=lambda cell, setting: -2.3 * (setting == "limit"), seeds=4)
    text = sections.learned_nothing(Results(lost))
    for name in ("elu", "tanh"):
        assert f"mnist-mlp on digits, {name}, no dropout: limit (4)" in text
    assert sections.learned_nothing(Results(make_frame())) == ""


def test_the_curves_are_the_statistics(make_frame):
    results = Results(make_frame(**SMALL))
    (drawing,) = sections.draw_learning_curves(results, STYLES)
    accuracy, loss = drawing.figure.axes[0].lines, drawing.figure.axes[2].lines
    for lines, rows in (
        (accuracy, 100 * results.gain_curves.filter(activation="elu", setting="a1")["mean"]),
        (loss, results.curves["train_loss"].filter(activation="elu", setting="a1")["median"]),
    ):
        values = rows.to_numpy()
        drawn = [line.get_ydata() for line in lines if len(line.get_ydata()) == len(values)]
        assert any(line == pytest.approx(values) for line in drawn)


def test_a_page_shows_each_panel_of_the_curves_alone(make_frame):
    (drawing,) = sections.draw_learning_curves(Results(make_frame(**SMALL)), STYLES)
    titles = [ax.get_title() for ax in drawing.figure.axes if ax.get_title()]
    assert [figure.axes[0].get_title() for figure in drawing.parts] == titles
    assert [len(figure.axes) for figure in drawing.parts] == [2, 2]


def test_provenance_counts_epochs_where_values_differ(make_frame):
    half = make_frame(**SMALL).with_columns(
        precision=pl.when(pl.col("seed") == 0).then(pl.lit("bf16")).otherwise("precision"),
        command=pl.lit("qneurons study run <mine>"),
    )
    facts = dict(sections.provenance(half))
    assert facts["precision"] == ["bf16 (24 epochs)", "fp32 (48 epochs)"]
    assert facts["command"] == ["qneurons study run <mine>"]
