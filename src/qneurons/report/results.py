"""Every statistic of a report, computed once: tables, figures and claims all read it."""

import math

import polars as pl

from qneurons.report import comparisons
from qneurons.report.comparisons import METRICS, Cell, Contrast, Final
from qneurons.study.data import NUM_CLASSES

GUESSING = 0.95 * math.log(NUM_CLASSES)  # a run with a higher final training loss learned nothing


class Results:
    """Run states, and by metric the curves, final values and declared contrasts of a frame."""

    def __init__(self, frame: pl.DataFrame) -> None:
        self.frame = frame
        self.states = comparisons.run_states(frame)
        self.curves: dict[str, pl.DataFrame] = {}
        self.finals: dict[str, list[Final]] = {}
        self.contrasts: dict[str, list[Contrast]] = {}
        for metric in METRICS:
            rows = comparisons.compared_rows(frame, self.states, metric)
            means = comparisons.curves(rows, metric)
            self.curves[metric] = means
            self.finals[metric] = comparisons.finals(self.states, rows, means, metric)
            self.contrasts[metric] = comparisons.contrasts(self.finals[metric])
        self._finals = {(m, f.cell, f.setting): f for m in METRICS for f in self.finals[m]}
        self._contrasts = {
            (m, c.cell, c.setting, c.reference): c for m in METRICS for c in self.contrasts[m]
        }
        self._settings: dict[Cell, list[str]] = {}
        for row in self.finals["test_accuracy"]:
            self._settings.setdefault(row.cell, []).append(row.setting)
        self.cells = list(self._settings)

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

    def extra_contrasts(
        self, cell: Cell, pairs: list[tuple[str, str]], metric: str = "test_accuracy"
    ) -> dict[tuple[str, str], Contrast]:
        """Contrasts that are not declared, as a family of their own."""
        rows = [self.final(cell, setting, metric) for setting in self.settings(cell)]
        found = comparisons.contrasts(rows, lambda settings: pairs)
        return {(row.setting, row.reference): row for row in found}

    def untrained(self, cell: Cell) -> dict[str, int]:
        """The number of runs that learned nothing, for each setting that has such runs.

        Their accuracies are so far from the others that the cell would dominate any mean.
        """
        ends = {s: self.final(cell, s, "train_loss").values.values() for s in self.settings(cell)}
        counts = {setting: sum(loss > GUESSING for loss in ends[setting]) for setting in ends}
        return {setting: count for setting, count in counts.items() if count}
