"""Draws the law of q and the densities of q-neurons from computed numbers."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from qneurons.report.figures import artwork
from qneurons.report.figures.densities import (
    LAMS,
    PAPER_ACTIVATIONS,
    PHI,
    LawOfQ,
    NeuronDensity,
    NeuronLaw,
    check_drawable,
    law_of_q,
    neuron_density,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

F_COLOUR, LIMIT_COLOUR = "#0072b2", "#d55e00"
LAW_LAMS, LAW_LAM, LAW_PHIS = (0.1, 0.3, 1.0), 0.2, (0.001, 0.1, 0.3)


def draw_law(by_lam: Sequence[LawOfQ], by_phi: Sequence[LawOfQ]) -> "Figure":
    """Figure 1: the density of q, for several λ at one φ and for several φ at one λ."""
    import matplotlib

    with matplotlib.rc_context(artwork.LOOK):
        figure = artwork.new_figure(7.6, 3.0)
        for ax, laws, varied in zip(
            figure.subplots(1, 2), (by_lam, by_phi), ("lam", "phi"), strict=True
        ):
            other, symbol = ("φ", "λ") if varied == "lam" else ("λ", "φ")
            fixed = laws[0].phi if varied == "lam" else laws[0].lam
            colours, _ = artwork.FAMILIES["c" if varied == "lam" else "a"]
            for k, law in enumerate(laws):
                colour, dash = artwork.line_style(colours, k)
                label = f"{symbol} = {getattr(law, varied):g}"
                ax.plot(law.q, law.density, color=colour, ls=dash, lw=1.4, label=label)
            ax.set(xlabel="q", ylabel="density", title=f"{other} = {fixed:g}")
            ax.set_xlim(float(laws[0].q[0]), float(laws[0].q[-1]))
            ax.set_ylim(0, None)
            ax.legend(frameon=False, loc="upper right")
    return figure


def draw_bands(ax: "Axes", law: NeuronLaw) -> None:
    """The bands of probability, the narrower the darker."""
    for low, high in zip(law.low, law.high, strict=True):
        ax.fill_between(law.x, low, high, color=artwork.INK, alpha=0.16, lw=0)


def draw_densities(cells: Sequence[Sequence[NeuronDensity]]) -> "Figure":
    """Figure 2: one row per activation, one column per λ, with f and the limit f'(x)x on top."""
    import matplotlib
    import numpy as np

    with matplotlib.rc_context(artwork.LOOK):
        figure = artwork.new_figure(max(2.0 * len(cells[0]), 3.4), 1.75 * len(cells) + 0.6)
        axes = figure.subplots(len(cells), len(cells[0]), sharex=True, sharey="row", squeeze=False)
        for line, row in zip(axes, cells, strict=True):
            for ax, cell in zip(line, row, strict=True):
                shade = np.zeros((*cell.density.shape, 4))  # black; the denser, the more opaque
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


def paper_figures(
    activations: Sequence[str], lams: Sequence[float] = LAMS, phi: float = PHI
) -> dict[str, "Figure"]:
    """The paper's two figures that need no training, by file name."""
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

    The second figure has a row for each activation (not sin, whose q-neuron has no density) and a
    column for each λ above 0.
    """
    check_drawable(activations, lams, phi)
    return [
        artwork.write_file(Path(folder) / file, content)
        for name, figure in paper_figures(activations, lams, phi).items()
        for file, content in artwork.figure_files(figure, name).items()
    ]
