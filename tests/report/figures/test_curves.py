"""The figures show the numbers they were given, and nothing that is odd makes them fail."""

import io
import math
from dataclasses import replace

import numpy as np
import pytest

for package in ("matplotlib", "polars", "scipy"):
    pytest.importorskip(package)

from qneurons.report.figures.artwork import setting_styles
from qneurons.report.figures.curves import GAIN, LABELS, LOSS, Curve, draw_curves

SETTINGS = ("base", "limit", "c0.02", "c0.1", "a1", "a5", "a9", "n0.001")


def pixels(figure):
    from matplotlib.image import imread

    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=50)
    return imread(io.BytesIO(buffer.getvalue()))[..., :3]


def curve(setting="base", metric="test_accuracy", *, epochs=5, dropout=False, activation="elu"):
    epoch = range(1, epochs + 1)
    middle = [1 / e if metric == LOSS else 0.9 * (metric != GAIN) + 0.01 * e for e in epoch]
    low, high = [y - 0.01 for y in middle], [y + 0.01 for y in middle]
    names, numbers = (activation, dropout, setting, metric), (epoch, middle, low, high)
    return Curve(*names, *numbers, is_smoothed=metric != LOSS, final=0.9512)


def both(setting="base", **options):
    return [curve(setting, metric, **options) for metric in ("test_accuracy", LOSS)]


def all_three(setting, **options):
    return [*both(setting, **options), curve(setting, GAIN, **options)]


def drawn(ax):
    """The smoothed lines of a panel, by setting."""
    return {line.get_gid(): line for line in ax.lines if line.get_gid()}


def labels(ax):
    return [text.get_text() for text in ax.texts]


def test_there_is_a_panel_for_every_activation_and_dropout_that_was_trained():
    lines = [
        each
        for activation, dropout in (("tanh", False), ("tanh", True), ("elu", False))
        for each in both(dropout=dropout, activation=activation)
        + all_three("c0.1", dropout=dropout, activation=activation)
    ]
    figure = draw_curves(lines, setting_styles(["base", "c0.1"]))
    titles = [ax.get_title() for ax in figure.axes if ax.get_title()]
    assert titles == [
        "tanh, with dropout (base: 95.12 %)",
        "tanh, without dropout (base: 95.12 %)",
        "elu, without dropout (base: 95.12 %)",
    ]
    assert len(figure.axes) == 6  # none is empty
    assert all(ax.lines for ax in figure.axes)
    gain, loss = figure.axes[0], figure.axes[2]
    assert list(drawn(gain)) == ["c0.1"]
    assert np.allclose(drawn(gain)["c0.1"].get_ydata(), [1, 2, 3, 4, 5])
    assert np.allclose(drawn(loss)["base"].get_ydata(), [1, 1 / 2, 1 / 3, 1 / 4, 1 / 5])
    assert (gain.get_ylabel(), loss.get_ylabel()) == (LABELS[GAIN], "training loss")
    assert loss.get_yscale() == "log"
    band = gain.collections[0].get_paths()[0].vertices
    assert (band[:, 1].min(), band[:, 1].max()) == pytest.approx((0, 6))


def test_without_base_the_accuracy_itself_is_drawn():
    figure = draw_curves(both("a1"), setting_styles(["a1"]))
    assert figure.axes[0].get_ylabel() == "test accuracy, %"
    assert np.allclose(drawn(figure.axes[0])["a1"].get_ydata(), [91, 92, 93, 94, 95])
    assert figure.axes[0].get_title() == "elu, without dropout"


def test_accuracies_are_smoothed_over_a_tenth_of_the_epochs_and_the_raw_ones_are_faint():
    zigzag = [0.9 + 0.01 * (e % 2) for e in range(100)]
    accuracy = replace(curve(epochs=100), middle=zigzag)
    loss = replace(curve(metric=LOSS, epochs=100), middle=zigzag)
    upper, lower = draw_curves([accuracy, loss], setting_styles(["base"])).axes
    raw, smooth = upper.lines
    assert np.allclose(raw.get_ydata(), np.multiply(100, zigzag))
    assert raw.get_alpha() < 0.5
    assert np.allclose(smooth.get_ydata()[5:], 90.5, atol=0.1)
    assert smooth.get_ydata()[0] == raw.get_ydata()[0]
    assert np.allclose([line.get_ydata() for line in lower.lines], [zigzag])


def test_only_the_highest_and_the_lowest_curve_have_bands():
    ends = {"c0.02": 0.91, "c0.1": 0.93, "a1": 0.90, "a5": 0.92}
    lines = [replace(curve(setting), middle=[end] * 5) for setting, end in ends.items()]
    styles = setting_styles(SETTINGS)
    ax = draw_curves(lines, styles).axes[0]
    from matplotlib.colors import to_hex

    colours = {to_hex(band.get_facecolor()[0]) for band in ax.collections}
    assert colours == {styles["c0.1"].colour, styles["a1"].colour}


def test_every_curve_is_named_at_its_end_and_no_name_covers_another():
    lines = [each for setting in SETTINGS for each in both(setting)]  # all end at the same place
    figure = draw_curves(lines, setting_styles(SETTINGS))
    figure.draw_without_rendering()
    for ax in figure.axes:
        assert sorted(labels(ax)) == sorted(SETTINGS)
        texts = sorted(ax.texts, key=lambda text: text.get_position()[1])
        steps = np.diff([text.get_position()[1] for text in texts]) * ax.bbox.height
        assert (steps > 0.8 * texts[0].get_fontsize() * figure.dpi / 72).all()
        assert -1e-9 <= texts[0].get_position()[1] <= texts[-1].get_position()[1] <= 1 + 1e-9


def test_colours_are_the_settings_in_every_figure():
    styles = setting_styles(SETTINGS)
    for settings in (("base", "a1"), ("a1",), ("c0.02", "a1", "a5")):
        figure = draw_curves([c for s in settings for c in both(s)], styles)
        colours = {line.get_color() for line in figure.axes[0].lines}
        assert colours == {styles[setting].colour for setting in settings}


def test_a_setting_that_learns_nothing_does_not_flatten_the_others():
    lost = [replace(curve, middle=[0.1] * 5, learns=False) for curve in both("c0.1")]
    accuracy, loss = draw_curves(both("base") + lost, setting_styles(["base", "c0.1"])).axes
    assert accuracy.get_ylim()[0] > 50
    assert accuracy.get_title() == "elu, without dropout\nlearns nothing: c0.1"
    assert labels(accuracy) == ["base"]
    assert loss.get_ylim()[0] < 0.1 < loss.get_ylim()[1]
    assert sorted(labels(loss)) == ["base", "c0.1"]


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
    lines = [replace(c, middle=[high] * 4 + [low]) for c in both()]
    figure = draw_curves(lines, setting_styles(["base"]))
    figure.draw_without_rendering()
    axis, (bottom, top) = figure.axes[1].yaxis, figure.axes[1].get_ylim()
    ticks = [*axis.get_major_ticks(), *axis.get_minor_ticks()]
    texts = [t.label1.get_text() for t in ticks if bottom <= t.get_loc() <= top]
    labels = [text for text in texts if text]
    assert 1 <= len(labels) <= 9
    assert all(float(label) > 0 for label in labels)
