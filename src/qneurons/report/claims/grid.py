"""The paper's grid: its cells, settings and length of training."""

from collections.abc import Sequence
from itertools import product

from qneurons.report.final_values import Cell

NETWORKS = {"mnist-mlp": "mnist", "mnist-cnn": "mnist", "cifar-cnn": "cifar10"}  # to their dataset
CURVED = ("tanh", "elu", "softplus")
LINEAR = ("relu", "leaky_relu", "identity")  # f'(x)x = f(x): the limit equals base
ACTIVATIONS = (*CURVED, "relu")
CONSTANT = ("c0.02", "c0.1")
ANNEALED = ("a1", "a5", "a9")
Q_SETTINGS = (*CONSTANT, *ANNEALED)
FLOOR = ("limit", *CONSTANT)  # with LINEAR activations these are base but for rounding
SEEDS = 10
EPOCHS = 100
LEAST_EPOCHS = 50  # shorter trainings do not count as the paper's


def paper_cells(activations: Sequence[str] = ACTIVATIONS) -> list[Cell]:
    grid = product(NETWORKS.items(), (False, True), activations)
    return [Cell(dataset, network, dropout, name) for (network, dataset), dropout, name in grid]
