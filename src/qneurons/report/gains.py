"""Gains in test accuracy over base, of every setting in every cell: as numbers and as a table."""

import math

from qneurons.report.comparisons import Cell, Contrast, setting_order
from qneurons.report.rendering import NONE, Table
from qneurons.report.results import Results
from qneurons.report.tables import compared_at, table_by_cell


def gains_over_base(results: Results) -> dict[tuple[Cell, str], Contrast]:
    """By cell and setting."""
    rows = results.contrasts["test_accuracy"]
    return {(row.cell, row.setting): row for row in rows if row.reference == "base"}


def learns_nothing(results: Results) -> set[tuple[Cell, str]]:
    """The settings of which no run learned anything."""
    return {
        (cell, setting)
        for cell in results.cells
        for setting, count in results.untrained(cell).items()
        if count == len(results.final(cell, setting).values)
    }


def gains_table(results: Results) -> Table:
    """A row for each cell: base's test accuracy, and the gain of every other setting."""
    gains = gains_over_base(results)
    bases = [results.final(cell, "base") for cell in dict.fromkeys(cell for cell, _ in gains)]
    settings = sorted({setting for _, setting in gains}, key=setting_order)

    def text(cell: Cell, setting: str) -> str:
        row = gains.get((cell, setting))
        if row is None or math.isnan(row.gain.mean):
            return NONE
        return f"{100 * row.gain.mean:+.2f}{'*' * (row.outcome != 'unclear')}"

    body = [
        (
            f"{100 * base.estimate.mean:.2f}" if base.values else NONE,
            *(text(base.cell, setting) for setting in settings),
        )
        for base in bases
    ]
    note = (
        "Mean over seeds, paired by seed. A star marks what is better or worse than base with "
        "p ≤ 0.05 after Holm's correction over the contrasts of the cell."
    )
    title = f"Test accuracy at epoch {compared_at(bases)}: base, and gain over base in points"
    return table_by_cell(title, [base.cell for base in bases], ("base, %", *settings), body, note)
