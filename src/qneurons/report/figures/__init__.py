"""The figures of a report; each draws numbers that were computed before."""

from qneurons.report.figures.artwork import (
    ON_DARK,
    Style,
    css_name,
    figure_files,
    setting_styles,
    to_svg,
    write_file,
)
from qneurons.report.figures.curves import Curve, draw_curves
from qneurons.report.figures.densities import LAMS, PAPER_ACTIVATIONS, is_drawable
from qneurons.report.figures.gains import draw_gains
from qneurons.report.figures.neurons import paper_figures, write_figures

__all__ = [
    "LAMS",
    "ON_DARK",
    "PAPER_ACTIVATIONS",
    "Curve",
    "Style",
    "css_name",
    "draw_curves",
    "draw_gains",
    "figure_files",
    "is_drawable",
    "paper_figures",
    "setting_styles",
    "to_svg",
    "write_figures",
    "write_file",
]
