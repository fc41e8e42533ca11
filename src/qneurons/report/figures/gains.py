"""Draws the gains over base from computed numbers."""

import math
import textwrap
from collections.abc import Collection, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from qneurons.report.contrasts import Contrast
from qneurons.report.figures.artwork import LIMIT_GREY, LOOK, PALE, new_figure
from qneurons.report.final_values import Cell
from qneurons.report.rendering import NONE, one_line

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLOURS = {"better": "#0064a4", "worse": "#d55e00"}  # by outcome
FAINTEST, STRONGEST = 0.15, 0.5  # opacities; the ink stays readable on them


def draw_gains(
    gains: Mapping[tuple[Cell, str], Contrast],
    settings: Sequence[str],
    learns_nothing: Collection[tuple[Cell, str]] = (),
    untrained: Collection[Cell] = (),
) -> "Figure":
    """A row for each cell and a column for each setting: the gain with half of its interval.

    A tile is filled if its gain is significant, the larger the stronger, and hatched if it is not
    trained. Each network has its own scale.
    """
    import matplotlib
    from matplotlib.patches import Patch, Rectangle

    by_network: dict[str, list[Cell]] = {}
    for cell in dict.fromkeys([*(cell for cell, _ in gains), *untrained]):
        by_network.setdefault(textwrap.fill(one_line(cell.where), 40), []).append(cell)
    heights = [len(cells) for cells in by_network.values()]
    unclear: dict[str, Any] = {"fill": False, "ec": PALE, "lw": 0.8}
    missing: dict[str, Any] = {"fill": False, "ec": LIMIT_GREY, "lw": 0, "hatch": "////"}
    is_hatched = False
    with matplotlib.rc_context(LOOK | {"hatch.linewidth": 0.6}):
        num_title_lines = len("\n".join(by_network).splitlines())
        height = 0.27 * sum(heights) + 0.15 * len(heights) + 0.2 * num_title_lines + 0.8
        # As narrow as its words allow, so that a phone shows them in a readable size.
        column = max(0.47, 0.08 * max(map(len, settings)))
        figure = new_figure(max(column * len(settings) + 1.1, 3.7), height)
        axes = figure.subplots(len(heights), squeeze=False, height_ratios=heights)[:, 0]
        for ax, (network, cells) in zip(axes, by_network.items(), strict=True):
            rows = sorted(cells, key=lambda cell: (cell.activation, not cell.dropout))
            learned = (gains[k] for k in gains if k[0] in rows and k not in learns_nothing)
            sizes = [abs(row.gain.mean) for row in learned]
            most = max(filter(math.isfinite, sizes), default=0)
            for y, cell in enumerate(rows):
                for x, setting in enumerate(settings):
                    row = gains.get((cell, setting))
                    if row is None:
                        look, is_hatched = missing, True
                    else:
                        # The first is also the minimum if the second is NaN.
                        size = min(1.0, abs(row.gain.mean) / most) if most else 1.0
                        look = unclear
                        if colour := COLOURS.get(row.outcome):
                            alpha = FAINTEST + (STRONGEST - FAINTEST) * size
                            look = {"fc": colour, "alpha": alpha, "lw": 0}
                        _write(ax, x, y, row, is_idle=(cell, setting) in learns_nothing)
                    ax.add_patch(Rectangle((x - 0.47, y - 0.45), 0.94, 0.9, **look))
            ax.set(xlim=(-0.5, len(settings) - 0.5), ylim=(len(rows) - 0.5, -0.5))
            names = [f"{cell.activation}{', dropout' * cell.dropout}" for cell in rows]
            ax.set_yticks(range(len(rows)), names)
            ax.set_xticks(range(len(settings)), settings)
            ax.tick_params(length=0, top=False, labeltop=ax is axes[0], labelbottom=False)
            ax.spines[:].set_visible(False)
            ax.set_title(network, loc="left", fontsize=9, weight="bold", parse_math=False)
        keys = [Patch(fc=c, alpha=STRONGEST, lw=0, label=name) for name, c in COLOURS.items()]
        keys.append(Patch(**unclear, label="unclear"))
        if is_hatched:
            keys.append(Patch(**missing, label="not trained"))
        places: dict[str, Any] = {"loc": "outside lower center", "ncols": len(keys)}
        figure.legend(handles=keys, **places, frameon=False, handlelength=1.2, columnspacing=1.2)
        figure.suptitle("gain in test accuracy over base, percentage points", fontsize=10)
    return figure


def _write(ax: "Axes", x: float, y: float, row: Contrast, *, is_idle: bool) -> None:
    """The gain, and below it, in smaller letters, half of its interval, if they exist."""
    mean, half = 100 * row.gain.mean, 100 * (row.gain.high - row.gain.mean)
    digits = 1 if max(abs(mean), half) >= 10 else 2  # a tile has room for three digits
    number = NONE if math.isnan(mean) else f"{mean:+.{digits}f}".replace("-", "−")
    put = partial(ax.annotate, xy=(x, y), textcoords="offset points", ha="center", va="center")
    if is_idle:
        put("learns\nnothing", xytext=(0, 0), fontsize=7)
    elif math.isnan(half):
        put(number, xytext=(0, 0), fontsize=8)
    else:
        put(number, xytext=(0, 3.5), fontsize=8)
        put(f"±{half:.{digits}f}", xytext=(0, -4.5), fontsize=7)
