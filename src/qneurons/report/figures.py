"""Draws the paper's figures from computed numbers, without pyplot and its global state."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from qneurons.report.artwork import INK, LIMIT_GREY, LOOK, PALE, figure_files, write_file
from qneurons.report.densities import (
    LAMS,
    PAPER_ACTIVATIONS,
    PHI,
    LawOfQ,
    NeuronDensity,
    check_drawable,
    law_of_q,
    neuron_density,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

F_COLOUR, LIMIT_COLOUR = "#0072b2", "#d55e00"
FAMILIES = {  # by the first letter of a setting; lighter is the smaller λ, also in grey
    "c": (("#56b4e9", "#0072b2", "#003a70"), "osD"),
    "a": (("#f0a800", "#d55e00", "#7a2404"), "^vP"),
    "n": (("#5fc9a4", "#009e73", "#00523c"), "<>X"),
}
NEUTRAL = {"base": (INK, "-", "."), "limit": (LIMIT_GREY, "--", "x")}
LAW_LAMS, LAW_LAM, LAW_PHIS = (0.1, 0.3, 1.0), 0.2, (0.001, 0.1, 0.3)


def _figure(width: float, height: float) -> "Figure":
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), layout="constrained")


def draw_law(by_lam: Sequence[LawOfQ], by_phi: Sequence[LawOfQ]) -> "Figure":
    """Figure 1: the density of q, for several λ at one φ and for several φ at one λ."""
    import matplotlib

    with matplotlib.rc_context(LOOK):
        figure = _figure(7.6, 3.0)
        for ax, laws, varied in zip(
            figure.subplots(1, 2), (by_lam, by_phi), ("lam", "phi"), strict=True
        ):
            other, symbol = ("φ", "λ") if varied == "lam" else ("λ", "φ")
            fixed = laws[0].phi if varied == "lam" else laws[0].lam
            colours, _ = FAMILIES["c" if varied == "lam" else "a"]
            for k, law in enumerate(laws):
                colour, dash = _in_turn(colours, k)
                label = f"{symbol} = {getattr(law, varied):g}"
                ax.plot(law.q, law.density, color=colour, ls=dash, lw=1.4, label=label)
            ax.set(xlabel="q", ylabel="density", title=f"{other} = {fixed:g}")
            ax.set_xlim(float(laws[0].q[0]), float(laws[0].q[-1]))
            ax.set_ylim(0, None)
            ax.legend(frameon=False, loc="upper right")
    return figure


def draw_densities(cells: Sequence[Sequence[NeuronDensity]]) -> "Figure":
    """Figure 2: one row per activation, one column per λ, f and the limit f'(x)x drawn over."""
    import matplotlib
    import numpy as np

    with matplotlib.rc_context(LOOK):
        figure = _figure(max(2.0 * len(cells[0]), 3.4), 1.75 * len(cells) + 0.6)
        axes = figure.subplots(len(cells), len(cells[0]), sharex=True, sharey="row", squeeze=False)
        for line, row in zip(axes, cells, strict=True):
            for ax, cell in zip(line, row, strict=True):
                shade = np.zeros((*cell.density.shape, 4))  # black, as opaque as it is dense
                low, high = cell.edges[[0, -1]].tolist()
                shade[..., 3] = 1 - np.exp(-cell.density.numpy() * (high - low) / 3)
                left, right = cell.x[[0, -1]].tolist()
                ax.imshow(
                    shade,
                    extent=(left, right, low, high),
                    origin="lower",
                    aspect="auto",
                    interpolation="bilinear",
                )
                ax.plot(cell.x, cell.f, color=F_COLOUR, lw=1, label="f(x)")
                ax.plot(cell.x, cell.limit, color=LIMIT_COLOUR, lw=1, ls="--", label="limit f'(x)x")
                ax.set(xlim=(left, right), ylim=(low, high))
            line[0].set_ylabel(f"q-{row[0].activation}")
        for ax, cell in zip(axes[0], cells[0], strict=True):
            ax.set_title(f"λ = {cell.lam:g}")
        handles, labels = axes[0, 0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside upper center", ncols=2, frameon=False)
        figure.supxlabel("x")
    return figure


@dataclass(frozen=True)
class Curve:
    """One line of a learning curve: the mean over seeds by epoch and its interval, NaN if none."""

    activation: str
    dropout: bool
    setting: str
    metric: str  # "test_accuracy" or "train_loss"
    epoch: Sequence[int]
    mean: Sequence[float]
    low: Sequence[float]
    high: Sequence[float]


@dataclass(frozen=True)
class Style:
    """How a setting looks in every figure of a report."""

    colour: str
    dash: str
    marker: str


def setting_styles(settings: Iterable[str]) -> dict[str, Style]:
    """Gives each setting its look; the settings come in the order of the legend."""
    styles: dict[str, Style] = {}
    families: dict[str, int] = {}
    for setting in settings:
        if setting in NEUTRAL:
            styles[setting] = Style(*NEUTRAL[setting])
            continue
        colours, markers = FAMILIES[setting[0]]
        k = families.get(setting[0], 0)
        families[setting[0]] = k + 1
        styles[setting] = Style(*_in_turn(colours, k), markers[k % len(markers)])
    return styles


def draw_curves(curves: Sequence[Curve], styles: Mapping[str, Style]) -> "Figure":
    """One network's learning curves, arranged as in the paper: one row per activation, with
    dropout on the left and without on the right; test accuracy ascends over training loss."""
    import matplotlib
    from matplotlib.ticker import MaxNLocator

    activations = list(dict.fromkeys(curve.activation for curve in curves))
    columns = sorted({curve.dropout for curve in curves}, reverse=True)
    settings = [name for name in styles if any(curve.setting == name for curve in curves)]
    with matplotlib.rc_context(LOOK):
        figure = _figure(3.8 * max(len(columns), 1.3), 3.2 * len(activations) + 0.6)
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
                    _draw_panel(ax, panel, styles, settings)
                    low = {curve.setting for curve in panel if curve in below}
                    _name_below(ax, [setting for setting in settings if setting in low])
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
        axes[0, 0].set_xlim(1 - 0.04 * last, 1.04 * last)  # also if there is one epoch
        figure.legend(
            handles=[_legend_line(name, styles[name]) for name in settings],
            loc="outside upper center",
            ncols=math.ceil(len(settings) / math.ceil(len(settings) / (5 * len(columns)))),
            frameon=False,
        )
    return figure


_METRICS = {"test_accuracy": "test accuracy, %", "train_loss": "training loss"}


def _draw_panel(
    ax: "Axes", panel: Sequence[Curve], styles: Mapping[str, Style], settings: Sequence[str]
) -> None:
    ax.grid(color=PALE, lw=0.5)
    ax.set_axisbelow(True)
    if not panel:
        ax.text(0.5, 0.5, "no runs", transform=ax.transAxes, ha="center", va="center")
    for curve in panel:
        style = styles[curve.setting]
        scale = 100 if curve.metric == "test_accuracy" else 1
        mean, low, high = ([scale * y for y in ys] for ys in (curve.mean, curve.low, curve.high))
        ax.fill_between(curve.epoch, low, high, color=style.colour, alpha=0.1, lw=0)
        every = max(len(mean) // 6, 1)
        start = settings.index(curve.setting) * every // len(settings)  # not all at one epoch
        ax.plot(
            curve.epoch,
            mean,
            color=style.colour,
            ls=style.dash,
            lw=1.2,
            marker=style.marker,
            ms=3.2,
            markevery=(start, every),
        )


def _far_below(row: Sequence[Curve]) -> list[Curve]:
    """Accuracies that end so far below the others that beside them these would be one line."""
    accuracies = [curve for curve in row if curve.metric == "test_accuracy"]
    best = max((c.mean[-1] for c in accuracies if math.isfinite(c.mean[-1])), default=0)
    return [curve for curve in accuracies if curve.mean[-1] < best / 2]


def _name_below(ax: "Axes", settings: Sequence[str]) -> None:
    if settings:
        text = f"far below: {', '.join(settings)}"
        ax.text(0.98, 0.03, text, transform=ax.transAxes, ha="right", fontsize=8)


def _set_scale(ax: "Axes", row: Sequence[Curve], metric: str) -> None:
    """Fits the axis to the means: intervals may be wide, and the first epochs are far off."""
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
    """Between powers of ten: every tick on a short axis, 2 and 5 on a longer one."""
    text = f"{y:.3g}"
    return text if ratio < 4 or (ratio < 40 and text.strip("0.") in ("2", "5")) else ""


def _legend_line(name: str, style: Style) -> "Line2D":
    from matplotlib.lines import Line2D

    return Line2D([], [], color=style.colour, ls=style.dash, marker=style.marker, ms=4, label=name)


def _in_turn(colours: Sequence[str], k: int) -> tuple[str, str]:
    dashes = ("-", "--", ":", "-.")
    return colours[k % len(colours)], dashes[k // len(colours) % len(dashes)]


def paper_figures(
    activations: Sequence[str], lams: Sequence[float] = LAMS, phi: float = PHI
) -> dict[str, "Figure"]:
    """The paper's two figures without training, by the name of their files."""
    by_lam = [law_of_q(lam, phi) for lam in LAW_LAMS]
    by_phi = [law_of_q(LAW_LAM, half_width) for half_width in LAW_PHIS]
    drawn = {"law-of-q": draw_law(by_lam, by_phi)}
    cells = [[neuron_density(name, lam, phi) for lam in lams] for name in activations]
    return drawn | {"density": draw_densities(cells)} if cells else drawn


def write_figures(
    folder: Path,
    *,
    activations: Sequence[str] = PAPER_ACTIVATIONS,
    lams: Sequence[float] = LAMS,
    phi: float = PHI,
) -> list[Path]:
    """Writes law-of-q and density, each as PNG and as PDF; returns their paths.

    Args:
        folder: where the files go; it is made where it is not there.

    Keyword args:
        activations: rows of the table by name, except sin, whose q-neuron has no density.
        lams: the columns of the second figure, each above 0.
        phi: half the width of the hole in the law of q.
    """
    check_drawable(activations, lams, phi)
    return [
        write_file(Path(folder) / file, content)
        for name, figure in paper_figures(activations, lams, phi).items()
        for file, content in figure_files(figure, name).items()
    ]
