"""The exact laws of q and of q-activations: the numbers of the figures that need no training."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from qneurons import moments
from qneurons.activations import resolve
from qneurons.functional import q_difference, q_limit
from qneurons.noise import QLaw
from qneurons.study.errors import StudyError

PAPER_ACTIVATIONS = ("sigmoid", "tanh", "relu", "softplus", "elu")
LAMS = (0.02, 0.1, 1.0, 5.0)
PHI = 1e-3
BANDS = (0.98, 0.8, 0.5)  # probabilities, each around the median


@dataclass(frozen=True)
class LawOfQ:
    """The density of q on a grid that includes 0, both edges of the hole and its middle."""

    lam: float
    phi: float
    q: Tensor
    density: Tensor  # NaN in the hole, so that no line crosses it
    negative: float  # P(q < 0)


@dataclass(frozen=True)
class NeuronLaw:
    """The law of g_q(x) at each x: ``low[i]`` and ``high[i]`` bound the probability BANDS[i].

    ``atoms`` and ``masses`` have two entries at each x; a mass of 0 is no atom.
    """

    activation: str
    lam: float
    phi: float
    x: Tensor
    f: Tensor
    limit: Tensor
    mean: Tensor
    low: Tensor
    high: Tensor
    atoms: Tensor
    masses: Tensor


def law_of_q(
    lam: float, phi: float = PHI, *, low: float = -4.0, high: float = 6.0, points: int = 401
) -> LawOfQ:
    # The edges of the hole belong to the support; its middle does not.
    marks = torch.tensor([0, 1 - phi, 1, 1 + phi], dtype=torch.float64)
    grid = torch.linspace(low, high, points, dtype=torch.float64)
    peak = 1 + lam * torch.linspace(-5, 5, points, dtype=torch.float64)  # a small λ needs its own
    q = torch.cat([grid, peak, marks]).clamp(low, high).unique()
    law = QLaw(torch.tensor(lam, dtype=torch.float64), phi, validate_args=False)
    in_hole = (q > marks[1]) & (q < marks[3])
    density = law.log_prob(q).exp().masked_fill(in_hole, torch.nan)
    return LawOfQ(lam, phi, q, density, law.cdf(torch.zeros_like(law.lam)).item())


def neuron_law(
    activation: str, lam: float, phi: float = PHI, *, reach: float = 3.0, columns: int = 121
) -> NeuronLaw:
    """Computes the law of the q-neuron for x in ±reach. Quantiles are right to 1 in 1,000."""
    x = torch.linspace(-reach, reach, columns, dtype=torch.float64)
    ranks = (torch.arange(1000, dtype=torch.float64) + 0.5) / 1000
    q = QLaw(torch.tensor(lam, dtype=torch.float64), phi, validate_args=False).icdf(ranks)
    g = q_difference(x, q[:, None] - 1, activation)
    tails = (1 - torch.tensor(BANDS, dtype=torch.float64)) / 2
    low, high = g.quantile(tails, dim=0), g.quantile(1 - tails, dim=0)
    lines = resolve(activation)(x), q_limit(x, activation), moments.mean(x, activation, lam, phi)
    atoms = moments.atoms(x, activation, lam, phi)
    return NeuronLaw(activation, lam, phi, x, *lines, low, high, *atoms)


def check_drawable(activations: Sequence[str], lams: Sequence[float], phi: float) -> None:
    """Raises if something has no density, before anything is computed."""
    if not activations or not lams:
        missing = "lams" if activations else "activations"
        raise StudyError(f"{missing} is empty, there is nothing to draw", "name at least one")
    for lam in lams:
        if not (math.isfinite(lam) and lam > 0):
            raise StudyError(f"λ = {lam:g} has no density to draw", "give a finite λ above 0")
    if not (math.isfinite(phi) and phi >= 0):
        raise StudyError(f"φ = {phi:g} is not allowed", "give a finite φ of 0 or more")
    for name in activations:
        try:
            moments.atoms(1.0, resolve(name), 1.0)
        except ValueError as error:
            raise StudyError(f"cannot draw {name!r}: {error}") from None


def is_drawable(activation: str) -> bool:
    try:
        check_drawable((activation,), LAMS, PHI)
    except StudyError:
        return False
    return True
