"""The paper's claims as data, and how each is judged."""

from qneurons.report.claims.grid import CURVED
from qneurons.report.claims.paper import judge

__all__ = ["CURVED", "judge"]
