"""Every statistic of a report, computed once: tables, figures and claims all read it."""

import math
from functools import cached_property

import polars as pl

from qneurons.report import final_values
from qneurons.report.contrasts import Contrast, contrasts, paired
from qneurons.report.final_values import METRICS, Cell, Final
from qneurons.study.data import NUM_CLASSES
from qneurons.study.store import CELL

GUESSING = 0.95 * math.log(NUM_CLASSES)  # a run with a higher final training loss learned nothing


class Results:
    """Run states, and by metric the curves, final values and declared contrasts of a frame.

    Final values are means over the last tenth of the epochs; with ``last_only`` they are those of
    the last epoch.
    """

    def __init__(self, frame: pl.DataFrame, *, last_only: bool = False) -> None:
        self.frame = frame
        self.states = final_values.run_states(frame, last_only=last_only)
        self.curves: dict[str, pl.DataFrame] = {}
        self.finals: dict[str, list[Final]] = {}
        self.contrasts: dict[str, list[Contrast]] = {}
        compared = {m: final_values.compared_rows(frame, self.states, m) for m in METRICS}
        for metric, rows in compared.items():
            means = final_values.curves(rows, metric)
            self.curves[metric] = means
            self.finals[metric] = final_values.finals(self.states, rows, means, metric)
            self.contrasts[metric] = contrasts(self.finals[metric])
        self.gain_curves = final_values.gain_curves(compared["test_accuracy"], "test_accuracy")
        # The cells that have their training loss without noise.
        noiseless = compared["train_loss_limit"].filter("noiseless").select(CELL)
        self.noiseless = {Cell(*row) for row in noiseless.iter_rows()}
        self._finals = {(m, f.cell, f.setting): f for m in METRICS for f in self.finals[m]}
        self._contrasts = {
            (m, c.cell, c.setting, c.reference): c for m in METRICS for c in self.contrasts[m]
        }
        self._settings: dict[Cell, list[str]] = {}
        for row in self.finals["test_accuracy"]:
            self._settings.setdefault(row.cell, []).append(row.setting)
        self.cells = list(self._settings)
        self._untrained: dict[Cell, dict[str, int]] = {cell: {} for cell in self.cells}
        for row in self.finals["train_loss"]:
            if count := sum(loss > GUESSING for loss in row.values.values()):
                self._untrained[row.cell][row.setting] = count

    @cached_property
    def last_epoch(self) -> "Results":
        """The same by the values of the last epoch alone."""
        same = (self.states["first"] == self.states["target"]).all()
        return self if same else Results(self.frame, last_only=True)

    def settings(self, cell: Cell) -> list[str]:
        """The settings of a cell in their order; none if the cell is not in the frame."""
        return self._settings.get(cell, [])

    def epoch(self, cell: Cell) -> int:
        """The epoch at which the settings of a cell are compared."""
        return self.final(cell, self.settings(cell)[0]).epoch

    def final(self, cell: Cell, setting: str, metric: str = "test_accuracy") -> Final:
        return self._finals[metric, cell, setting]

    def contrast(
        self, cell: Cell, setting: str, reference: str, metric: str = "test_accuracy"
    ) -> Contrast:
        """One of the declared contrasts."""
        return self._contrasts[metric, cell, setting, reference]

    def differences(
        self, cell: Cell, setting: str, reference: str, metric: str
    ) -> dict[int, float]:
        """Setting minus reference, by seed."""
        return paired(*(self.final(cell, s, metric) for s in (setting, reference)))

    def extra_contrasts(
        self, cell: Cell, pairs: list[tuple[str, str]], metric: str = "test_accuracy"
    ) -> dict[tuple[str, str], Contrast]:
        """Contrasts that are not declared, as a family of their own."""
        rows = [self.final(cell, setting, metric) for setting in self.settings(cell)]
        found = contrasts(rows, lambda settings: pairs)
        return {(row.setting, row.reference): row for row in found}

    def learns(self, cell: Cell, *settings: str) -> bool:
        """True if every run of these settings learned something.

        Other settings are left out of averages over cells: they would dominate any mean.
        """
        return not self.untrained(cell).keys() & set(settings)

    def untrained(self, cell: Cell) -> dict[str, int]:
        """The number of runs that learned nothing, for each setting that has such runs."""
        return self._untrained[cell]
