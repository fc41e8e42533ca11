"""The paper's claims as data, and how each is judged."""

from qneurons.report.claims.grid import CURVED, LEAST_EPOCHS, paper_cells
from qneurons.report.claims.noise_or_limit import Decomposition, decompose
from qneurons.report.claims.paper import judge
from qneurons.report.claims.verdicts import ANSWERS, FAILS, HOLDS, Number, Verdict

__all__ = [
    "ANSWERS",
    "CURVED",
    "FAILS",
    "HOLDS",
    "LEAST_EPOCHS",
    "Decomposition",
    "Number",
    "Verdict",
    "decompose",
    "judge",
    "paper_cells",
]
