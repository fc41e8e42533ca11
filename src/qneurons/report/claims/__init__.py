"""The paper's claims as data, and how each is judged."""

from qneurons.report.claims.grid import CURVED
from qneurons.report.claims.paper import judge
from qneurons.report.claims.verdicts import Verdict

__all__ = ["CURVED", "Verdict", "judge"]
