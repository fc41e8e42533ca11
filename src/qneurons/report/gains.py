"""Gains in test accuracy over base, of every setting in every cell: as numbers and as a table."""

import math

from qneurons.report.contrasts import Contrast
from qneurons.report.final_values import Cell, Final, setting_order
from qneurons.report.rendering import NONE, Table
from qneurons.report.results import Results
from qneurons.report.tables import (
    EVALUATION,
    beside_note,
    compared_at,
    learns_nothing,
    survival_text,
    table_by_cell,
)


def gains_over_base(results: Results) -> dict[tuple[Cell, str], Contrast]:
    """By cell and setting."""
    rows = results.contrasts["test_accuracy"]
    return {(row.cell, row.setting): row for row in rows if row.reference == "base"}


def gains_table(results: Results) -> Table:
    """A row for each cell: base's test accuracy, and the gain of every other setting."""
    gains, last = gains_over_base(results), gains_over_base(results.last_epoch)
    bases = [results.final(cell, "base") for cell in dict.fromkeys(cell for cell, _ in gains)]
    settings = sorted({setting for _, setting in gains}, key=setting_order)

    def number(row: Contrast) -> str:
        return f"{100 * row.gain.mean:+.2f}{'*' * (row.outcome != 'unclear')}"

    def text(base: Final, setting: str) -> str:
        row = gains.get((base.cell, setting))
        if row is None or math.isnan(row.gain.mean):
            return NONE
        if idle := learns_nothing(results, base.cell, setting):
            return idle
        beside = f" ({number(last[base.cell, setting])})" if base.first < base.epoch else ""
        return number(row) + beside

    body = [
        (
            f"{100 * base.estimate.mean:.2f}" if base.values else NONE,
            *(text(base, setting) for setting in settings),
        )
        for base in bases
    ]
    note = (
        "Mean over seeds, paired by seed. A star marks what is better or worse than base with "
        "p ≤ 0.05 after Holm's correction over the contrasts of the cell. "
        f"{beside_note(bases)} {survival_text(results, 'test_accuracy')} {EVALUATION}"
    )
    title = f"Test accuracy {compared_at(bases)}: base, and gain over base in points"
    return table_by_cell(title, [base.cell for base in bases], ("base, %", *settings), body, note)
