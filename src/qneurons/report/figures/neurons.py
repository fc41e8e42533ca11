"""Draws the law of q and the densities of q-activations from computed numbers."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from qneurons.report.figures import artwork
from qneurons.report.figures.densities import (
    BANDS,
    LAMS,
    PAPER_ACTIVATIONS,
    PHI,
    LawOfQ,
    NeuronLaw,
    check_drawable,
    law_of_q,
    neuron_law,
)

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

F_COLOUR, LIMIT_COLOUR = "#0064a4", "#d55e00"
BAND_ALPHA, ATOM_WIDTH = 0.16, 6  # the width, in points, is that of an atom of mass 1
LAW_LAM, LAW_PHIS = 0.2, (0.001, 0.1, 0.3)


def draw_law(by_lam: Sequence[LawOfQ], by_phi: Sequence[LawOfQ]) -> "Figure":
    """Figure 1: the density of q, a panel for each λ at one φ, and one with several φ at one λ."""
    import matplotlib

    with matplotlib.rc_context(artwork.LOOK):
        figure = artwork.new_figure(1.75 * (len(by_lam) + 1), 2.4)
        *panels, last = figure.subplots(1, len(by_lam) + 1)
        for ax, law in zip(panels, by_lam, strict=True):
            ax.plot(law.q, law.density, color=F_COLOUR, lw=1.2)
            left = law.q <= 0
            ax.fill_between(law.q[left], law.density[left], color=LIMIT_COLOUR, lw=0)
            chance = f"= {100 * law.negative:.0f} %" if law.negative > 0.001 else "< 0.1 %"
            words = f"P(q < 0)\n{chance}"
            ax.text(0.03, 0.95, words, color=LIMIT_COLOUR, va="top", transform=ax.transAxes)
            ax.set(title=f"λ = {law.lam:g}", xlim=law.q[[0, -1]].tolist())
        colours, _ = artwork.FAMILIES["c"]
        for k, law in enumerate(by_phi):
            colour, dash = artwork.line_style(colours, k)
            last.plot(law.q, law.density, color=colour, ls=dash, lw=1.2, label=f"φ = {law.phi:g}")
            last.fill_between(law.q, law.density, color=colour, alpha=0.15, lw=0)
        last.set(title=f"λ = {by_phi[0].lam:g}, by φ", xlim=by_phi[0].q[[0, -1]].tolist())
        last.legend(frameon=False, loc="upper right", fontsize=8, handlelength=1)
        for ax in (*panels, last):
            ax.set_ylim(0, 1.6 * ax.dataLim.y1)  # room for the words
        panels[0].set_ylabel(f"density of q, φ = {by_lam[0].phi:g}")
        figure.supxlabel("q")
    return figure


def draw_bands(ax: "Axes", law: NeuronLaw) -> None:
    """The bands of probability, the narrower the darker."""
    for low, high in zip(law.low, law.high, strict=True):
        ax.fill_between(law.x, low, high, color=artwork.INK, alpha=BAND_ALPHA, lw=0)


def draw_atoms(ax: "Axes", law: NeuronLaw) -> None:
    """The likelier atom at each x, as a line as wide as its mass."""
    from matplotlib.collections import LineCollection

    value, mass = law.atoms[:, 0], law.masses[:, 0]
    points = torch.stack([law.x, value], dim=-1)
    # No atom rises faster than x; a steeper step is a jump to another one.
    joined = (mass[1:] > 0) & (mass[:-1] > 0) & (value.diff().abs() < 2 * law.x.diff())
    width = (joined * ATOM_WIDTH * (mass[1:] + mass[:-1]) / 2).round(decimals=3)
    # Equally wide steps are one line: where transparent lines meet, a stripe shows.
    widths, lengths = width.unique_consecutive(return_counts=True)
    ends = lengths.cumsum(0)
    lines = [points[i : j + 1].numpy() for i, j in zip(ends - lengths, ends, strict=True)]
    drawn = [line for line, w in zip(lines, widths, strict=True) if w > 0]
    ax.add_collection(
        LineCollection(drawn, linewidths=widths[widths > 0], colors=artwork.INK, alpha=0.5)
    )


def draw_densities(rows: Sequence[Sequence[NeuronLaw]]) -> "Figure":
    """Figure 2: one row per activation, one column per λ; f, the limit f'(x)x and the mean."""
    import matplotlib
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    lines = {  # name: colour, dash and label
        "mean": (artwork.INK, "-", "mean"),
        "f": (F_COLOUR, "-", "f(x)"),
        "limit": (LIMIT_COLOUR, "--", "limit f'(x)x"),  # last: the others show between its dashes
    }
    with matplotlib.rc_context(artwork.LOOK):
        figure = artwork.new_figure(max(2.0 * len(rows[0]), 3.4), 1.75 * len(rows) + 0.8)
        axes = figure.subplots(len(rows), len(rows[0]), sharex=True, sharey="row", squeeze=False)
        for line, row in zip(axes, rows, strict=True):
            for ax, law in zip(line, row, strict=True):
                draw_bands(ax, law)
                draw_atoms(ax, law)
                for name, (colour, dash, _) in lines.items():
                    ax.plot(law.x, getattr(law, name), color=colour, lw=1.1, ls=dash)
                ax.set_xlim(*law.x[[0, -1]].tolist())
            # One range for all λ: nothing that is drawn is cut off.
            drawn = torch.cat([y for law in row for y in (*law.low, *law.high, law.f, law.limit)])
            low, high = drawn.min().item(), drawn.max().item()
            line[0].set_ylim(low - 0.05 * (high - low), high + 0.05 * (high - low))
            line[0].set_ylabel(f"q-{row[0].activation}")
        for ax, law in zip(axes[0], rows[0], strict=True):
            ax.set_title(f"λ = {law.lam:g}")
        handles: list[Artist] = [
            Line2D([], [], color=colour, ls=dash, label=label)
            for colour, dash, label in lines.values()
        ]
        for k, band in enumerate(BANDS, 1):  # the bands lie over each other
            shade = 1 - (1 - BAND_ALPHA) ** k
            handles.append(
                Patch(color=artwork.INK, alpha=shade, lw=0, label=f"{100 * band:g} % of the draws")
            )
        if any((law.masses[law.x != 0] > 0).any() for row in rows for law in row):
            label = "one value, as wide as its probability"
            handles.append(Line2D([], [], color=artwork.INK, alpha=0.5, lw=ATOM_WIDTH, label=label))
        ncols = 4 if len(rows[0]) > 3 else 2 if len(rows[0]) > 1 else 1
        figure.legend(handles=handles, loc="outside upper center", ncols=ncols, frameon=False)
        figure.supxlabel("x")
    return figure


def paper_figures(
    activations: Sequence[str], lams: Sequence[float] = LAMS, phi: float = PHI
) -> dict[str, "Figure"]:
    """The paper's two figures that need no training, by file name."""
    reach = max(1, *(2.5 * lam for lam in lams))
    by_lam = [law_of_q(lam, phi, low=-reach, high=2 + reach) for lam in lams]
    by_phi = [law_of_q(LAW_LAM, half_width, low=0.0, high=2.0) for half_width in LAW_PHIS]
    drawn = {"law-of-q": draw_law(by_lam, by_phi)}
    rows = [[neuron_law(name, lam, phi) for lam in lams] for name in activations]
    return drawn | {"density": draw_densities(rows)} if rows else drawn


def write_figures(
    folder: Path,
    *,
    activations: Sequence[str] = PAPER_ACTIVATIONS,
    lams: Sequence[float] = LAMS,
    phi: float = PHI,
) -> list[Path]:
    """Writes law-of-q and density, each as SVG (light and dark), PNG and PDF; returns their paths.

    The second figure has a row for each activation (not sin, whose q-neuron has no density) and a
    column for each λ above 0.
    """
    check_drawable(activations, lams, phi)
    return [
        artwork.write_file(Path(folder) / file, content)
        for name, figure in paper_figures(activations, lams, phi).items()
        for file, content in artwork.figure_files(figure, name).items()
    ]
