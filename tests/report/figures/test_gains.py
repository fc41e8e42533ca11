"""The figure of gains shows the gains that it was given."""

import math

import pytest

for package in ("matplotlib", "polars", "scipy"):
    pytest.importorskip(package)

from qneurons.report.comparisons import METRICS, Cell, Contrast
from qneurons.report.figures.artwork import setting_styles
from qneurons.report.figures.gains import draw_gains
from qneurons.report.inference import Estimate

ELU = Cell("mnist", "mnist-mlp", False, "elu")
STYLES = setting_styles(["base", "limit", "c0.1", "a1"])


def gain(cell=ELU, setting="a1", mean=0.002, half=0.001):
    estimate = Estimate(10, mean, 0.1, mean - half, mean + half)
    metric = METRICS["test_accuracy"]
    row = Contrast(cell, setting, "base", metric, estimate, "sign-flip", 0.01, 0.02, (0, 0), 10, {})
    return {(cell, setting): row}


def points(ax):
    return [tuple(container.lines[0].get_xydata()[0]) for container in ax.containers]


def test_every_gain_is_drawn_in_points_with_its_interval():
    gains = gain(setting="limit", mean=-0.001) | gain() | gain(setting="c0.1", mean=0.0)
    figure = draw_gains(gains, STYLES)
    (ax,) = figure.axes
    assert [label.get_text() for label in ax.get_xticklabels()] == ["limit", "c0.1", "a1"]
    assert points(ax) == [(0, pytest.approx(-0.1)), (2, pytest.approx(0.2)), (1, 0)]
    (bar,) = ax.containers[1].lines[2][0].get_segments()
    assert bar[:, 1] == pytest.approx([0.1, 0.3])
    assert ax.containers[1].lines[0].get_color() == STYLES["a1"].colour
    assert not figure.legends


def test_panels_are_activations_with_and_without_dropout():
    cells = [ELU, ELU._replace(dropout=True), ELU._replace(activation="tanh")]
    figure = draw_gains({key: row for cell in cells for key, row in gain(cell).items()}, STYLES)
    titles = [ax.get_title() for ax in figure.axes]
    assert titles == [
        f"{name}, {word} dropout" for word in ("with", "without") for name in ("elu", "tanh")
    ]
    assert [len(ax.containers) for ax in figure.axes] == [1, 0, 1, 1]
    assert [text.get_text() for text in figure.axes[1].texts] == ["no runs"]


@pytest.mark.parametrize("count", [2, 12])
def test_networks_stand_side_by_side_with_markers_of_their_own(count):
    cells = [ELU._replace(network=f"net{k}") for k in range(count - 1)]
    cells.append(cells[0]._replace(protocol="learning rate 0.1"))
    figure = draw_gains({key: row for cell in cells for key, row in gain(cell).items()}, STYLES)
    (ax,) = figure.axes
    places = [x for x, _ in points(ax)]
    assert len(set(places)) == count
    assert -0.5 < min(places) < 0 < max(places) < 0.5
    markers = {container.lines[0].get_marker() for container in ax.containers}
    assert len(markers) == min(count, 9)
    words = [text.get_text() for text in figure.legends[0].get_texts()]
    assert (words[0], words[-1]) == ("net0 on mnist", "net0 on mnist, learning rate 0.1")


def test_a_setting_that_learns_nothing_is_an_arrow():
    gains = gain() | gain(setting="c0.1", mean=-0.88)
    (ax,) = draw_gains(gains, STYLES, {(ELU, "c0.1")}).axes
    assert len(ax.containers) == 1
    assert [text.get_text() for text in ax.texts] == ["↓"]
    assert ax.get_ylim()[0] > -5


def test_missing_numbers_do_no_harm():
    gains = gain(half=math.nan) | gain(setting="limit", mean=math.nan, half=math.nan)
    figure = draw_gains(gains, STYLES)
    figure.draw_without_rendering()
    low, high = figure.axes[0].get_ylim()
    assert low < 0.2 < high


def test_long_names_of_protocols_fit_into_the_figure():
    cells = [ELU, ELU._replace(protocol="batch size 32, learning rate 0.0001")]
    figure = draw_gains({key: row for cell in cells for key, row in gain(cell).items()}, STYLES)
    figure.draw_without_rendering()
    box = figure.legends[0].get_window_extent()
    assert box.x0 >= 0
    assert box.x1 <= figure.bbox.width
