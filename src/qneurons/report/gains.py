"""Gains in test accuracy over base or the limit, in every cell: as numbers and as a table."""

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


def gains_over(results: Results, reference: str) -> dict[tuple[Cell, str], Contrast]:
    """By cell and setting."""
    rows = results.contrasts["test_accuracy"]
    return {(row.cell, row.setting): row for row in rows if row.reference == reference}


def gains_table(results: Results, reference: str = "base") -> Table:
    """A row for each cell: the reference's test accuracy, and the gain of other settings over it.

    Over the limit these are the q settings.
    """
    gains, last = (gains_over(part, reference) for part in (results, results.last_epoch))
    finals = [results.final(cell, reference) for cell in dict.fromkeys(cell for cell, _ in gains)]
    settings = sorted({setting for _, setting in gains}, key=setting_order)

    def number(row: Contrast) -> str:
        return f"{100 * row.gain.mean:+z.2f}{'*' * (row.outcome != 'unclear')}"

    def text(final: Final, setting: str) -> str:
        row = gains.get((final.cell, setting))
        if row is None or math.isnan(row.gain.mean):
            return NONE
        for either in (setting, reference):
            if idle := learns_nothing(results, final.cell, either):
                return idle
        beside = f" ({number(last[final.cell, setting])})" if final.first < final.epoch else ""
        return number(row) + beside

    body = [
        (
            f"{100 * final.estimate.mean:.2f}" if final.values else NONE,
            *(text(final, setting) for setting in settings),
        )
        for final in finals
    ]
    note = (
        f"Mean over seeds, paired by seed. A star marks what is better or worse than {reference} "
        "with p ≤ 0.05 after Holm's correction over the contrasts of the cell. "
        f"{beside_note(finals)} {survival_text(results, 'test_accuracy')} {EVALUATION}"
    )
    title = f"Test accuracy {compared_at(finals)}: {reference}, and gain over {reference} in points"
    columns = (f"{reference}, %", *settings)
    return table_by_cell(title, [final.cell for final in finals], columns, body, note)
