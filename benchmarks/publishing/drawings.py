"""Two figures: the gains over base, and packed runs under ordinary ones."""

import matplotlib
import polars as pl
from matplotlib.figure import Figure

from qneurons.report.claims.verdicts import CURVED
from qneurons.report.comparisons import setting_order
from qneurons.report.figures.artwork import INK, LOOK, PALE
from qneurons.report.figures.curves import setting_styles
from qneurons.study.store import CELL

METRICS = {
    "test_accuracy": (100, {"ylim": (97.0, 98.9)}),
    "train_loss": (1, {"yscale": "log", "ylim": (1e-5, 0.5)}),
}


def draw_naive(frame, naive):
    """Learning curves of packed and ordinary runs over each other."""
    cells = sorted(naive.select(CELL).unique().rows())
    settings = sorted(naive["setting"].unique(), key=setting_order)
    with matplotlib.rc_context(LOOK):
        figure = Figure(figsize=(1.75 * len(settings), 3.4 * len(cells)), layout="constrained")
        grid = figure.subplots(2 * len(cells), len(settings), sharex=True, sharey="row")
        for i, cell in enumerate(cells):
            for j, setting in enumerate(settings):
                same = pl.all_horizontal(pl.col(n) == v for n, v in zip(CELL, cell, strict=True))
                same &= pl.col("setting") == setting
                packed = frame.filter(same).group_by("epoch", maintain_order=True)
                for ax, metric in zip(grid[2 * i : 2 * i + 2, j], METRICS, strict=True):
                    scale, limits = METRICS[metric]
                    band = packed.agg(low=pl.col(metric).min(), high=pl.col(metric).max())
                    low, high = scale * band["low"], scale * band["high"]
                    ax.fill_between(band["epoch"], low, high, color="#56b4e9", lw=0)
                    for run in naive.filter(same).partition_by("seed"):
                        ax.plot(run["epoch"], scale * run[metric], color=INK, lw=0.5)
                    ax.grid(color=PALE, lw=0.5)
                    ax.set(**limits)
                grid[2 * i, j].set_title(setting)
            name = f"{cell[3]}, {'with' if cell[2] else 'without'} dropout"
            grid[2 * i, 0].set_ylabel(f"{name}\ntest accuracy, %")
            grid[2 * i + 1, 0].set_ylabel("training loss")
        for ax in grid[-1]:
            ax.set_xlabel("epoch")
    return figure


def draw_gains(evidence):
    """The gain over base of every setting, one panel for each activation and dropout."""
    cells = evidence.cells
    activations = [a for a in (*CURVED, "relu") if any(c.activation == a for c in cells)]
    networks = list(dict.fromkeys(cell.network for cell in cells))
    marks = dict(zip(networks, "osD", strict=False))
    settings = sorted({s for cell in cells for s in evidence.settings(cell)}, key=setting_order)
    settings.remove("base")
    styles = setting_styles(settings)
    with matplotlib.rc_context(LOOK):
        figure = Figure(figsize=(8.4, 3.8), layout="constrained")
        grid = figure.subplots(2, len(activations), sharex=True, sharey=True, squeeze=False)
        for i, dropout in enumerate((True, False)):
            for ax, activation in zip(grid[i], activations, strict=True):
                ax.axhline(0, color=INK, lw=0.8)
                ax.grid(axis="y", color=PALE, lw=0.5)
                ax.set_title(f"{activation}, {'with' if dropout else 'without'} dropout")
                ax.set_xticks(range(len(settings)), settings, rotation=60)
                here = [c for c in cells if (c.dropout, c.activation) == (dropout, activation)]
                for k, cell in enumerate(here):
                    lost = evidence.untrained(cell)
                    for x, setting in enumerate(settings):
                        place = x + 0.3 * (k - (len(here) - 1) / 2)
                        colour = styles[setting].colour
                        if lost.get(setting) == len(evidence.final(cell, setting).values):
                            below = {"transform": ax.get_xaxis_transform(), "ha": "center"}
                            ax.text(place, 0.02, "↓", color=colour, fontsize=13, **below)
                            continue
                        gain = evidence.contrast(cell, setting, "base").difference
                        ax.errorbar(
                            place,
                            100 * gain.mean,
                            yerr=100 * (gain.high - gain.mean),
                            fmt=marks[cell.network],
                            ms=4,
                            lw=1.2,
                            color=colour,
                        )
            grid[i, 0].set_ylabel("gain over base, points")
        if len(networks) > 1:
            for network, mark in marks.items():
                grid[0, 0].plot([], [], mark, ms=4, color=INK, label=network)
            figure.legend(loc="outside upper center", ncols=len(networks), frameon=False)
    return figure
