"""The figures show the numbers they were given, and nothing that is odd makes them fail."""

import io
import math
from dataclasses import replace

import numpy as np
import pytest

for package in ("matplotlib", "polars", "scipy"):
    pytest.importorskip(package)

from qneurons.report.figures import curves
from qneurons.report.figures.artwork import setting_styles
from qneurons.report.figures.curves import Curve, draw_curves

SETTINGS = ("base", "limit", "c0.02", "c0.1", "a1", "a5", "a9", "n0.001")


def pixels(figure):
    from matplotlib.image import imread

    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=50)
    return imread(io.BytesIO(buffer.getvalue()))[..., :3]


def curve(setting="base", metric="test_accuracy", *, epochs=5, dropout=False, activation="elu"):
    epoch = range(1, epochs + 1)
    mean = [0.9 + 0.01 * e if metric == "test_accuracy" else 1 / e for e in epoch]
    low, high = [y - 0.01 for y in mean], [y + 0.01 for y in mean]
    return Curve(activation, dropout, setting, metric, epoch, mean, low, high)


def both(setting="base", **options):
    return [curve(setting, metric, **options) for metric in ("test_accuracy", "train_loss")]


def axes_by_title(figure):
    return {ax.get_title(): ax for ax in figure.axes if ax.get_title()}


def test_curves_are_arranged_as_in_the_paper():
    lines = [
        each
        for activation in ("tanh", "elu")
        for dropout in (False, True)
        for setting in ("base", "c0.1")
        for each in both(setting, dropout=dropout, activation=activation)
    ]
    figure = draw_curves(lines, setting_styles(["base", "c0.1"]))
    assert list(axes_by_title(figure)) == [
        "tanh, with dropout",
        "tanh, without dropout",
        "elu, with dropout",
        "elu, without dropout",
    ]
    assert len(figure.axes) == 8
    accuracy, loss = figure.axes[0], figure.axes[2]
    assert np.allclose(accuracy.lines[0].get_ydata(), [91, 92, 93, 94, 95])
    assert np.allclose(loss.lines[0].get_ydata(), [1, 1 / 2, 1 / 3, 1 / 4, 1 / 5])
    assert (accuracy.get_ylabel(), loss.get_ylabel()) == ("test accuracy, %", "training loss")
    assert loss.get_yscale() == "log"
    band = accuracy.collections[0].get_paths()[0].vertices
    assert band[:, 1].min() == pytest.approx(90)
    assert band[:, 1].max() == pytest.approx(96)
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["base", "c0.1"]


def test_colours_are_the_settings_in_every_figure():
    styles = setting_styles(SETTINGS)
    for settings in (("base", "a1"), ("a1",), ("c0.02", "a1", "a5")):
        figure = draw_curves([c for s in settings for c in both(s)], styles)
        colours = {line.get_color() for line in figure.axes[0].lines}
        assert colours == {styles[setting].colour for setting in settings}


def test_a_missing_panel_says_so():
    lines = both(activation="elu") + both(activation="tanh", dropout=True)
    figure = draw_curves(lines, setting_styles(["base"]))
    words = [ax.texts[0].get_text() for ax in figure.axes if ax.texts]
    assert words == ["no runs"] * 4
    assert pixels(figure).std() > 0.05


def test_a_setting_that_learns_nothing_does_not_flatten_the_others():
    lost = [replace(curve, mean=[0.1] * 5, low=[0.1] * 5, high=[0.1] * 5) for curve in both("c0.1")]
    figure = draw_curves(both("base") + lost, setting_styles(["base", "c0.1"]))
    accuracy, loss = figure.axes
    assert accuracy.get_ylim()[0] > 50
    assert [text.get_text() for text in accuracy.texts] == ["far below: c0.1"]
    assert loss.get_ylim()[0] < 0.1 < loss.get_ylim()[1]
    assert not loss.texts


@pytest.mark.parametrize("epochs", [1, 2, 100])
def test_few_and_many_epochs_are_drawn(epochs):
    figure = draw_curves(
        both("base", epochs=epochs) + both("a1", epochs=epochs), setting_styles(["base", "a1"])
    )
    image = pixels(figure)
    ticks = [tick for tick in figure.axes[-1].get_xticks() if 1 <= tick <= epochs]
    assert ticks
    assert all(tick == int(tick) for tick in ticks)
    assert image.std() > 0.05
    assert len(np.unique(image.reshape(-1, 3), axis=0)) > 20


def test_one_seed_has_no_band_and_bad_numbers_do_no_harm():
    nothing = [math.nan] * 3
    lines = [
        Curve(
            "elu", False, "base", "test_accuracy", [1, 2, 3], [0.9, math.nan, 0.9], nothing, nothing
        ),
        Curve(
            "elu", False, "base", "train_loss", [1, 2, 3], [0.0, math.nan, -1.0], nothing, nothing
        ),
    ]
    figure = draw_curves(lines, setting_styles(["base"]))
    assert pixels(figure).std() > 0.02
    low, high = figure.axes[0].get_ylim()
    assert low < 90 < high


def test_axes_are_fitted_to_the_means_not_to_wide_intervals():
    lines = [replace(c, low=[-50.0] * 5, high=[50.0] * 5) for c in both()]
    figure = draw_curves(lines, setting_styles(["base"]))
    low, high = figure.axes[0].get_ylim()
    assert 90 < low < high < 96
    low, high = figure.axes[1].get_ylim()
    assert 0.1 < low < 0.2 < 1 < high < 2


@pytest.mark.parametrize(("low", "high"), [(0.049, 0.051), (0.1, 1.0), (0.7, 0.95), (1e-6, 1.0)])
def test_the_loss_axis_has_labels_that_do_not_crowd(low, high):
    lines = [replace(curve(metric=metric), mean=[high] * 4 + [low]) for metric in curves._METRICS]
    figure = draw_curves(lines, setting_styles(["base"]))
    figure.draw_without_rendering()
    axis, (bottom, top) = figure.axes[1].yaxis, figure.axes[1].get_ylim()
    ticks = [*axis.get_major_ticks(), *axis.get_minor_ticks()]
    texts = [t.label1.get_text() for t in ticks if bottom <= t.get_loc() <= top]
    labels = [text for text in texts if text]
    assert 1 <= len(labels) <= 9
    assert all(float(label) > 0 for label in labels)
