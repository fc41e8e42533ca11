"""The paper's claims as data, and how each is judged."""

from qneurons.report.claims.grid import (
    CURVED as CURVED,
    LEAST_EPOCHS as LEAST_EPOCHS,
    paper_cells as paper_cells,
)
from qneurons.report.claims.noise_or_limit import (
    Attribution as Attribution,
    Decomposition as Decomposition,
    attributions as attributions,
    decompose as decompose,
    split_by_mean as split_by_mean,
)
from qneurons.report.claims.paper import judge as judge
from qneurons.report.claims.verdicts import (
    ANSWERS as ANSWERS,
    FAILS as FAILS,
    HOLDS as HOLDS,
    Claim as Claim,
    Verdict as Verdict,
)
