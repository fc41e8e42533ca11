"""Draws the learning curves of the paper from computed numbers."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from qneurons.report.figures.artwork import LOOK, PALE, Style, new_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class Curve:
    """One line: the mean over seeds by epoch, and its interval (NaN if there is none)."""

    activation: str
    dropout: bool
    setting: str
    metric: str
    epoch: Sequence[int]
    mean: Sequence[float]
    low: Sequence[float]
    high: Sequence[float]


def draw_curves(curves: Sequence[Curve], styles: Mapping[str, Style]) -> "Figure":
    """One network's learning curves as in the paper: a row per activation, dropout on the left."""
    import matplotlib
    from matplotlib.ticker import MaxNLocator

    activations = list(dict.fromkeys(curve.activation for curve in curves))
    columns = sorted({curve.dropout for curve in curves}, reverse=True)
    styles = {n: style for n, style in styles.items() if any(c.setting == n for c in curves)}
    with matplotlib.rc_context(LOOK):
        figure = new_figure(3.8 * max(len(columns), 1.3), 3.2 * len(activations) + 0.6)
        axes = figure.subplots(
            2 * len(activations),
            len(columns),
            sharex=True,
            sharey="row",
            squeeze=False,
            height_ratios=[1.4, 1] * len(activations),
        )
        for i, activation in enumerate(activations):
            for metric, line in zip(_METRICS, axes[2 * i : 2 * i + 2], strict=True):
                row = [c for c in curves if (c.activation, c.metric) == (activation, metric)]
                below = _far_below(row)
                for ax, dropout in zip(line, columns, strict=True):
                    panel = [curve for curve in row if curve.dropout == dropout]
                    draw_panel(ax, panel, styles, 100 if metric == "test_accuracy" else 1)
                    low = {curve.setting for curve in panel if curve in below}
                    if names := ", ".join(setting for setting in styles if setting in low):
                        words = f"far below: {names}"
                        ax.text(0.98, 0.03, words, transform=ax.transAxes, ha="right", fontsize=8)
                _set_scale(line[0], [curve for curve in row if curve not in below], metric)
                line[0].set_ylabel(_METRICS[metric])
            for ax, dropout in zip(axes[2 * i], columns, strict=True):
                ax.set_title(f"{activation}, {'with' if dropout else 'without'} dropout")
        for ax in axes[1::2].flat:
            ax.tick_params(labelbottom=True)
        for ax in axes[-1]:
            ax.set_xlabel("epoch")
            ax.xaxis.set_major_locator(MaxNLocator(nbins=6, integer=True, min_n_ticks=1))
        last = max(epoch for curve in curves for epoch in curve.epoch)
        axes[0, 0].set_xlim(1 - 0.04 * last, 1.04 * last)  # wide enough for a single epoch
        draw_legend(figure, styles, 5 * len(columns))
    return figure


def draw_legend(figure: "Figure", styles: Mapping[str, Style], most_columns: int) -> None:
    """One legend for all panels, in lines of about the same length."""
    from matplotlib.lines import Line2D

    figure.legend(
        handles=[
            Line2D([], [], color=s.colour, ls=s.dash, marker=s.marker, ms=4, label=name)
            for name, s in styles.items()
        ],
        loc="outside upper center",
        ncols=math.ceil(len(styles) / math.ceil(len(styles) / most_columns)),
        frameon=False,
    )


_METRICS = {"test_accuracy": "test accuracy, %", "train_loss": "training loss"}


def draw_panel(
    ax: "Axes", panel: Sequence[Curve], styles: Mapping[str, Style], scale: float = 1
) -> None:
    """The curves of one panel with their intervals, multiplied by ``scale``."""
    ax.grid(color=PALE, lw=0.5)
    ax.set_axisbelow(True)
    if not panel:
        ax.text(0.5, 0.5, "no runs", transform=ax.transAxes, ha="center", va="center")
    for curve in panel:
        style = styles[curve.setting]
        mean, low, high = ([scale * y for y in ys] for ys in (curve.mean, curve.low, curve.high))
        ax.fill_between(curve.epoch, low, high, color=style.colour, alpha=0.1, lw=0)
        every = max(len(mean) // 6, 1)
        start = [*styles].index(curve.setting) * every // len(styles)  # spread the markers
        (line,) = ax.plot(curve.epoch, mean, color=style.colour, ls=style.dash, lw=1.2)
        line.set(marker=style.marker, markersize=3.2, markevery=(start, every))


def _far_below(row: Sequence[Curve]) -> list[Curve]:
    """Accuracy curves that end below half of the best: on their scale the others would merge."""
    accuracies = [curve for curve in row if curve.metric == "test_accuracy"]
    best = max((c.mean[-1] for c in accuracies if math.isfinite(c.mean[-1])), default=0)
    return [curve for curve in accuracies if curve.mean[-1] < best / 2]


def _set_scale(ax: "Axes", row: Sequence[Curve], metric: str) -> None:
    """Fits the axis to the means, because intervals may be wide and the first epochs far off."""
    means = sorted(y for curve in row for y in curve.mean if math.isfinite(y))
    if metric == "train_loss":
        means = [y for y in means if y > 0]
        if means:
            low, high = means[0] / 1.2, means[-1] * 1.2
            ax.set_yscale("log")
            ax.set_ylim(low, high)
            ax.yaxis.set_major_formatter(lambda y, _: f"{y:g}")
            ax.yaxis.set_minor_formatter(lambda y, _: _minor_label(y, high / low))
    elif means:
        low, high = 100 * means[len(means) // 10], 100 * means[-1]
        margin = max(0.08 * (high - low), 0.05)
        ax.set_ylim(low - margin, high + margin)


def _minor_label(y: float, ratio: float) -> str:
    """Labels between powers of ten: all on a short axis, only 2 and 5 on a longer one."""
    text = f"{y:.3g}"
    return text if ratio < 4 or (ratio < 40 and text.strip("0.") in ("2", "5")) else ""
