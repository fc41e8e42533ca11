"""The figures of a report; each draws numbers that were computed before."""

from qneurons.report.figures.densities import LAMS, PAPER_ACTIVATIONS
from qneurons.report.figures.neurons import write_figures

__all__ = ["LAMS", "PAPER_ACTIVATIONS", "write_figures"]
