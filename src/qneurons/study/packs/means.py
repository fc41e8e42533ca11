"""E[g_q(x)] as tables, for the evaluation of whole networks."""

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor

from qneurons.activations import Activation
from qneurons.mean_table import Table, build


class MeanTables:
    """The tables of every activation and λ, with the dtype and on the device of ``like``.

    For sin, whose mean oscillates, the pieces are too long where |x| is large.
    """

    def __init__(self, phi: float, like: Tensor) -> None:
        self.phi = phi
        self.like = like
        self.known: dict[tuple[str, float], Table] = {}

    def add(self, activation: Activation, lam: Iterable[float]) -> None:
        """Computes the missing tables together."""
        missing = sorted({value for value in lam if (activation.name, value) not in self.known})
        if not missing:
            return
        pieces, centres = build(activation, missing, self.phi, self.like.device)
        centres = centres.to(self.like.dtype)
        for value, table in zip(missing, pieces.to(self.like.dtype).unbind(1), strict=True):
            self.known[activation.name, value] = table, centres

    def rows(self, activation: Activation, lam: Sequence[float]) -> Table:
        """The tables of several runs, stacked."""
        self.add(activation, lam)
        tables = [self.known[activation.name, value] for value in lam]
        return torch.stack([pieces for pieces, _ in tables], 1), tables[0][1]
