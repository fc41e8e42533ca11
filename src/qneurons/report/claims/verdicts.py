"""What a claim, its verdict and the numbers of a verdict look like; the grid of the paper."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

from qneurons.report.comparisons import Cell
from qneurons.report.numbers import Number

HOLDS, FAILS, OPEN = ANSWERS = ("holds", "does not hold", "not decided by these data")

NETWORKS = {"mnist-mlp": "mnist", "mnist-cnn": "mnist", "cifar-cnn": "cifar10"}  # their data
CURVED = ("tanh", "elu", "softplus")
LINEAR = ("relu", "leaky_relu", "identity")  # f'(x)x = f(x): the limit is base itself
ACTIVATIONS = (*CURVED, "relu")
CONSTANT = ("c0.02", "c0.1")
Q_SETTINGS = (*CONSTANT, "a1", "a5", "a9")
EPOCHS = 100
LEAST_EPOCHS = 50  # a shorter training is not the paper's


def paper_cells(activations: Sequence[str] = ACTIVATIONS) -> list[Cell]:
    return [
        Cell(dataset, network, dropout, activation)
        for (network, dataset), dropout, activation in product(
            NETWORKS.items(), (False, True), activations
        )
    ]


@dataclass(frozen=True)
class Claim:
    """A claim in our words, and how it is judged."""

    id: str
    statement: str
    rule: str


@dataclass(frozen=True)
class Verdict:
    """The answer to a claim, with its numbers and, where data lack, what is missing."""

    claim: Claim
    answer: str
    reason: str
    numbers: tuple[Number, ...] = ()
    missing: tuple[str, ...] = ()
