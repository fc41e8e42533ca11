"""The figure of gains shows the gains that it was given."""

import math
from dataclasses import replace
from itertools import pairwise

import pytest

for package in ("matplotlib", "polars", "scipy"):
    pytest.importorskip(package)

from qneurons.report.contrasts import Contrast
from qneurons.report.figures.gains import COLOURS, FAINTEST, STRONGEST, draw_gains
from qneurons.report.final_values import METRICS, Cell
from qneurons.report.inference import Estimate

ELU = Cell("mnist", "mnist-mlp", False, "elu")
SETTINGS = ["limit", "c0.1", "a1"]


def gain(cell=ELU, setting="a1", mean=0.002, half=0.001, p=0.02):
    estimate = Estimate(10, mean, 0.1, mean - half, mean + half)
    metric = METRICS["test_accuracy"]
    row = Contrast(cell, setting, "base", metric, estimate, "sign-flip", 0.01, p, (0, 0), 10, {})
    return {(cell, setting): row}


def tiles(ax):
    """The words and the patch of every tile, by column and row."""
    found = {}
    for patch in ax.patches:
        x, y = (round(at) for at in patch.get_center())
        texts = [text for text in ax.texts if text.xy == (x, y)]
        found[x, y] = " ".join(names(texts)), patch
    return found


def names(labels):
    return [label.get_text() for label in labels]


def test_every_gain_is_a_tile_in_points_with_its_interval():
    gains = gain(setting="limit", mean=-0.001) | gain() | gain(setting="c0.1", mean=0.0)
    figure = draw_gains(gains, SETTINGS)
    (ax,) = figure.axes
    assert names(ax.get_xticklabels()) == SETTINGS
    assert names(ax.get_yticklabels()) == ["elu"]
    words = [words for words, _ in tiles(ax).values()]
    assert words == ["−0.10 ±0.10", "+0.00 ±0.10", "+0.20 ±0.10"]
    assert names(figure.legends[0].get_texts()) == ["better", "worse", "unclear"]


def test_the_words_of_large_gains_stay_in_their_tiles():
    gains = gain(setting="limit", mean=-0.5234, half=0.2) | gain(mean=0.0999, half=0.1234)
    figure = draw_gains(gains, ["limit", "a1"])
    figure.draw_without_rendering()
    (ax,) = figure.axes
    assert [words for words, _ in tiles(ax).values()] == ["−52.3 ±20.0", "+10.0 ±12.3"]
    for patch, pair in zip(ax.patches, (ax.texts[:2], ax.texts[2:]), strict=True):
        tile, above, below = (drawn.get_window_extent() for drawn in (patch, *pair))
        assert tile.x0 <= min(above.x0, below.x0) < max(above.x1, below.x1) <= tile.x1
        assert tile.y0 <= below.y0 < above.y1 <= tile.y1


def test_words_around_the_tiles_are_neither_cut_nor_over_each_other():
    settings = [*SETTINGS, "a2@0.25", "lin5:0.5/20"]
    gains = {key: row for setting in settings for key, row in gain(setting=setting).items()}
    figure = draw_gains(gains, settings, untrained=[ELU._replace(activation="tanh")])
    figure.draw_without_rendering()
    names = [label.get_window_extent() for label in figure.axes[0].get_xticklabels()]
    assert all(left.x1 < right.x0 for left, right in pairwise(names))
    for words in (figure._suptitle, figure.legends[0]):
        assert 0 <= words.get_window_extent().x0 < words.get_window_extent().x1 <= figure.bbox.x1


def test_a_tile_is_filled_if_its_gain_is_significant_the_larger_the_stronger():
    from matplotlib.colors import to_hex

    gains = gain(setting="limit", mean=-0.001) | gain(p=0.06) | gain(setting="c0.1", mean=0.002)
    (ax,) = draw_gains(gains, SETTINGS).axes
    worse, better, unclear = (patch for _, patch in tiles(ax).values())
    assert not unclear.get_fill()
    for patch, outcome in ((worse, "worse"), (better, "better")):
        assert patch.get_fill()
        assert to_hex(patch.get_facecolor()) == COLOURS[outcome]
    assert better.get_alpha() == pytest.approx(STRONGEST)
    assert worse.get_alpha() == pytest.approx((FAINTEST + STRONGEST) / 2)


def test_a_row_is_a_cell_under_its_network_and_what_is_not_trained_is_hatched():
    tanh, cnn = ELU._replace(activation="tanh"), ELU._replace(network="mnist-cnn")
    cells = [tanh, ELU, ELU._replace(dropout=True), cnn]
    gains = {key: row for cell in cells for s in SETTINGS for key, row in gain(cell, s).items()}
    del gains[tanh, "limit"]
    untrained = [cnn._replace(activation="relu")]
    figure = draw_gains(gains, SETTINGS, untrained=untrained)
    mlp, cnn = figure.axes
    assert (mlp.get_title("left"), cnn.get_title("left")) == (
        "mnist-mlp on mnist",
        "mnist-cnn on mnist",
    )
    assert names(mlp.get_yticklabels()) == ["elu, dropout", "elu", "tanh"]
    assert names(cnn.get_yticklabels()) == ["elu", "relu"]
    hatched = [
        [at for at, (_, patch) in tiles(ax).items() if patch.get_hatch()] for ax in (mlp, cnn)
    ]
    assert hatched == [[(0, 2)], [(0, 1), (1, 1), (2, 1)]]
    assert names(figure.legends[0].get_texts())[-1] == "not trained"


def test_a_setting_that_learns_nothing_says_so_and_does_not_set_the_scale():
    gains = gain() | gain(setting="c0.1", mean=-0.88)
    (ax,) = draw_gains(gains, SETTINGS[1:], {(ELU, "c0.1")}).axes
    (words, _), (_, other) = tiles(ax).values()
    assert words.split() == ["learns", "nothing"]
    assert other.get_alpha() == pytest.approx(STRONGEST)


def test_missing_numbers_do_no_harm():
    nothing = gain(setting="limit", mean=math.nan, half=math.nan, p=1.0)
    figure = draw_gains(gain(half=math.nan) | nothing, ["limit", "a1"])
    figure.draw_without_rendering()
    assert [words for words, _ in tiles(figure.axes[0]).values()] == ["–", "+0.20"]


def test_names_from_outside_are_drawn_as_they_are():
    (ax,) = draw_gains(gain(ELU._replace(network="a$_$b\x1b[2J")), SETTINGS).axes
    ax.figure.draw_without_rendering()
    assert ax.get_title("left") == "a$_$b [2J on mnist"


def test_a_setting_whose_runs_all_diverged_is_worse_without_a_number():
    ((key, row),) = gain(mean=math.nan, half=math.nan).items()
    lost = replace(
        row,
        **{"difference": replace(row.difference, n=0), "diverged": (10, 0)},
        **{"test": "sign", "p_holm": 0.002, "lead": -10},
    )
    (ax,) = draw_gains({key: lost}, ["a1"]).axes
    ((words, patch),) = tiles(ax).values()
    assert words == "–"
    assert patch.get_alpha() == STRONGEST


def test_long_names_of_protocols_fit_into_the_figure():
    cells = [ELU, ELU._replace(protocol="batch size 32, learning rate 0.0001")]
    figure = draw_gains({key: row for cell in cells for key, row in gain(cell).items()}, SETTINGS)
    figure.draw_without_rendering()
    for ax in figure.axes:
        assert ax._left_title.get_window_extent().x1 <= figure.bbox.width
