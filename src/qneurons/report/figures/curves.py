"""Draws the learning curves of the paper from computed numbers."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
from scipy.optimize import isotonic_regression  # type: ignore[import-untyped]

from qneurons.report.figures.artwork import INK, LOOK, PALE, Style, new_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

GAIN, ACCURACY, LOSS = "gain", "test_accuracy", "train_loss"
LABELS = {
    GAIN: "test accuracy − base,\npoints",
    ACCURACY: "test accuracy, %",
    LOSS: "training loss",
}


@dataclass(frozen=True)
class Curve:
    """One line: the middle of the seeds by epoch, and its interval (NaN if there is none)."""

    activation: str
    dropout: bool
    setting: str
    metric: str
    epoch: Sequence[int]
    middle: Sequence[float]  # mean or median
    low: Sequence[float]
    high: Sequence[float]
    is_smoothed: bool = field(default=True, kw_only=True)
    final: float = field(default=math.nan, kw_only=True)  # test accuracy, as in the tables
    learns: bool = field(default=True, kw_only=True)

    @property
    def panel(self) -> tuple[str, bool]:
        return self.activation, self.dropout

    def smooth(self, values: Sequence[float]) -> np.ndarray:
        """The mean over the tenth of the epochs around each; fewer at the beginning."""
        epoch, y = np.asarray(self.epoch), np.asarray(values, dtype=float)
        if not self.is_smoothed:
            return y
        half = np.minimum(epoch[-1] // 20, epoch - epoch[0])[:, None]
        near = (abs(epoch[:, None] - epoch) <= half) & np.isfinite(y)
        with np.errstate(invalid="ignore"):  # NaN if no value is near
            return np.asarray(near @ np.nan_to_num(y) / near.sum(1))

    @property
    def end(self) -> float:
        return float(self.smooth(self.middle)[-1])


def draw_curves(curves: Sequence[Curve], styles: Mapping[str, Style]) -> "Figure":
    """One network's learning curves: a panel per activation and dropout, its loss below it.

    A panel shows gains over base where there are any, else accuracies. A setting that learns
    nothing is named instead of drawn, because on its scale the others would merge.
    """
    import matplotlib
    from matplotlib.ticker import MaxNLocator

    panels = panels_of(curves)
    columns = min(len(panels), 2)
    lines = math.ceil(len(panels) / columns)
    last = max(epoch for curve in curves for epoch in curve.epoch)
    with matplotlib.rc_context(LOOK):
        figure = new_figure(4.0 * max(columns, 1.2), 3.7 * lines)
        shape, ratios = (2 * lines, columns), [1.4, 1] * lines
        axes = figure.subplots(*shape, sharex=True, squeeze=False, height_ratios=ratios)
        for k, panel in enumerate(panels):
            upper, lower = axes[k // columns * 2 :, k % columns][:2]
            here = {m: [c for c in curves if (c.panel, c.metric) == (panel, m)] for m in LABELS}
            metric = GAIN if here[GAIN] else ACCURACY
            lost = {c.setting for c in curves if c.panel == panel and not c.learns}
            idle = [setting for setting in styles if setting in lost]
            shown = [curve for curve in here[metric] if curve.learns]
            title = f"{panel[0]}, {'with' if panel[1] else 'without'} dropout"
            draw_panel(upper, shown, styles, 100)
            _fit(upper, shown, metric)
            if metric == GAIN:
                upper.axhline(0, color=INK, lw=0.8)
                base = next(c for c in here[ACCURACY] if c.setting == "base")
                title += f" (base: {100 * base.final:.2f} %)"
            label_ends(upper, shown, styles, 100)
            if idle:
                title += f"\nlearns nothing: {', '.join(idle)}"
            upper.set(title=title, ylabel=LABELS[metric])
            draw_panel(lower, here[LOSS], styles)
            _fit_loss(lower, here[LOSS])
            label_ends(lower, here[LOSS], styles)
            lower.set(xlabel="epoch", ylabel=LABELS[LOSS])
            lower.tick_params(labelbottom=True)
        for ax in axes[-2:, 1:].flat if len(panels) < lines * columns else ():
            ax.remove()
        axes[0, 0].set_xlim(*((1, last) if last > 1 else (0.5, 1.5)))
        axes[0, 0].xaxis.set_major_locator(MaxNLocator(nbins=6, integer=True, min_n_ticks=1))
    return figure


def panels_of(curves: Sequence[Curve]) -> list[tuple[str, bool]]:
    """Activation and dropout of each panel; dropout comes first."""
    activations = list(dict.fromkeys(curve.activation for curve in curves))
    return sorted({c.panel for c in curves}, key=lambda p: (activations.index(p[0]), not p[1]))


def draw_panel(
    ax: "Axes", panel: Sequence[Curve], styles: Mapping[str, Style], scale: float = 1
) -> None:
    """The curves of one panel, multiplied by ``scale``, with the raw values faint.

    Only the curves that end highest and lowest have their intervals: more would cover each other.
    """
    ax.grid(color=PALE, lw=0.5)
    ax.set_axisbelow(True)
    ends = sorted(panel, key=lambda curve: curve.end)
    for curve in panel:
        style = styles[curve.setting]
        low, middle, high = (
            scale * curve.smooth(values) for values in (curve.low, curve.middle, curve.high)
        )
        if curve in (ends[0], ends[-1]):
            ax.fill_between(curve.epoch, low, high, color=style.colour, alpha=0.18, lw=0)
        if curve.is_smoothed:
            raw = scale * np.asarray(curve.middle, dtype=float)
            ax.plot(curve.epoch, raw, color=style.colour, alpha=0.25, lw=0.6)
        every = max(len(middle) // 6, 1)
        start = [*styles].index(curve.setting) * every // len(styles)  # spread the markers
        (line,) = ax.plot(curve.epoch, middle, color=style.colour, ls=style.dash, lw=1.4)
        line.set(marker=style.marker, markersize=3.2, markevery=(start, every), gid=curve.setting)


def label_ends(
    ax: "Axes", panel: Sequence[Curve], styles: Mapping[str, Style], scale: float = 1
) -> None:
    """Names every curve at its end, once the axes have their limits. No name covers another."""
    to_fraction = ax.transScale + ax.transLimits
    ends = [(scale * curve.end, curve.setting) for curve in panel]
    heights = sorted((to_fraction.transform((1, y))[1], s) for y, s in ends if math.isfinite(y))
    if not heights:
        return
    height = np.clip([y for y, _ in heights], 0, 1)
    gap = 9 / 72 * ax.figure.dpi / ax.bbox.height  # 9 points
    steps = gap * np.arange(len(height))
    # The nearest places that keep the gap and stay beside the axes.
    places = isotonic_regression(height - steps).x.clip(0, max(1 - steps[-1], 0)) + steps
    for (_, setting), y, place in zip(heights, height, places, strict=True):
        colour = styles[setting].colour
        ax.annotate(
            setting,
            (1, y),
            (1.05, place),
            xycoords="axes fraction",
            arrowprops={"arrowstyle": "-", "color": colour, "lw": 0.6, "relpos": (0, 0.5)},
            color=colour,
            fontsize=8,
            va="center",
        )


def _fit(ax: "Axes", panel: Sequence[Curve], metric: str) -> None:
    """Fits the axis to the second half of the epochs: the first ones are far off."""
    late = [
        100 * y
        for c in panel
        for epoch, y in zip(c.epoch, c.smooth(c.middle), strict=True)
        if 2 * epoch >= c.epoch[-1] and math.isfinite(y)
    ]
    late += [0.0] * (metric == GAIN)
    if late:
        low, high = min(late), max(late)
        margin = max(0.2 * (high - low), 0.02)
        ax.set_ylim(low - margin, high + margin)


def _fit_loss(ax: "Axes", panel: Sequence[Curve]) -> None:
    if losses := [y for curve in panel for y in curve.middle if math.isfinite(y) and y > 0]:
        low, high = min(losses) / 1.2, max(losses) * 1.2
        ax.set_yscale("log")
        ax.set_ylim(low, high)
        ax.yaxis.set_major_formatter(lambda y, _: f"{y:g}")
        ax.yaxis.set_minor_formatter(lambda y, _: _minor_label(y, high / low))


def _minor_label(y: float, ratio: float) -> str:
    """Labels between powers of ten: all on a short axis, only 2 and 5 on a longer one."""
    text = f"{y:.3g}"
    return text if ratio < 4 or (ratio < 40 and text.strip("0.") in ("2", "5")) else ""
