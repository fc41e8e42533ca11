"""Draws the gains over base from computed numbers."""

import textwrap
from collections.abc import Collection, Mapping
from itertools import cycle
from typing import TYPE_CHECKING

from qneurons.report.comparisons import Cell, Contrast
from qneurons.report.figures.artwork import INK, LOOK, PALE, Style, new_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def draw_gains(
    gains: Mapping[tuple[Cell, str], Contrast],
    styles: Mapping[str, Style],
    learns_nothing: Collection[tuple[Cell, str]] = (),
) -> "Figure":
    """A panel per activation and dropout, a marker per network, an arrow if nothing is learned."""
    import matplotlib

    cells = list(dict.fromkeys(cell for cell, _ in gains))
    dropouts = sorted({cell.dropout for cell in cells}, reverse=True)
    activations = list(dict.fromkeys(cell.activation for cell in cells))
    settings = [name for name in styles if any(name == setting for _, setting in gains)]
    networks = dict.fromkeys(cell.where for cell in cells)
    markers = dict(zip(networks, cycle("osD^vP<>X"), strict=False))
    with matplotlib.rc_context(LOOK):
        figure = new_figure(max(2.1 * len(activations), 3.8), 1.7 * len(dropouts) + 0.5)
        shape = (len(dropouts), len(activations))
        axes = figure.subplots(*shape, sharex=True, sharey=True, squeeze=False)
        for line, dropout in zip(axes, dropouts, strict=True):
            line[0].set_ylabel("gain over base, points")
            for ax, activation in zip(line, activations, strict=True):
                ax.axhline(0, color=INK, lw=0.8)
                ax.grid(axis="y", color=PALE, lw=0.5)
                ax.set_title(f"{activation}, {'with' if dropout else 'without'} dropout")
                ax.set_xticks(range(len(settings)), settings, rotation=60)
                here = [c for c in cells if (c.dropout, c.activation) == (dropout, activation)]
                if not here:
                    ax.text(0.5, 0.6, "no runs", transform=ax.transAxes, ha="center")
                for (cell, setting), row in gains.items():
                    if cell not in here:
                        continue
                    side = (here.index(cell) + 0.5) / len(here) - 0.5  # of the tick, by network
                    x, colour = settings.index(setting) + 0.6 * side, styles[setting].colour
                    if (cell, setting) in learns_nothing:
                        bottom = ax.get_xaxis_transform()
                        ax.text(
                            x, 0.02, "↓", color=colour, fontsize=13, ha="center", transform=bottom
                        )
                    else:
                        y, half = 100 * row.gain.mean, 100 * (row.gain.high - row.gain.mean)
                        ax.errorbar(x, y, half, fmt=markers[cell.where], ms=4, lw=1.2, color=colour)
        if len(markers) > 1:
            for network, marker in markers.items():
                label = textwrap.fill(network, 40)
                axes[0, 0].plot([], [], marker, ms=4, color=INK, label=label)
            columns = 3 if len("".join(markers)) < 50 else 1  # long names are those of protocols
            figure.legend(loc="outside upper center", ncols=columns, frameon=False)
    return figure
