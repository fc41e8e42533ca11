"""The tables of a report: final values, contrasts, decompositions, counts of runs."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

import polars as pl

from qneurons.report.claims import Decomposition
from qneurons.report.comparisons import METRICS, STATES, Cell, Contrast, Final, setting_order
from qneurons.report.inference import Estimate
from qneurons.report.rendering import NONE, Table, difference_texts, estimate_text, p_text
from qneurons.study.runs import Run
from qneurons.study.store import CELL

PAPER_PROTOCOL = "the paper's"
COUNTS = ("runs", *STATES, "not begun")


def final_table(rows: Sequence[Final]) -> Table:
    """Final values of one metric: a row for each cell, a column for each setting."""
    texts = {
        (final.cell, final.setting): estimate_text(final.estimate, final.metric)
        + (f" ({len(final.diverged)} diverged)" if final.diverged else "")
        for final in rows
    }
    seeds = sorted({final.estimate.n for final in rows})
    note = (
        f"Mean ± half of the 95 % t-interval over {_span(seeds)} seeds, of the runs that reached "
        f"epoch {compared_at(rows)}."
    )
    return _by_setting(f"at epoch {compared_at(rows)}", rows, texts, note)


def best_table(rows: Sequence[Final]) -> Table:
    """The peak of each mean curve and its epoch."""
    texts = {
        (final.cell, final.setting): f"{estimate_text(final.best.estimate, final.metric)} "
        f"@{final.best.epoch}"
        for final in rows
        if final.best.estimate.n
    }
    note = (
        "Peak over epochs of the mean over seeds, with its epoch after the @. It is chosen on the "
        "test set, as in the paper, so it is a little too good."
    )
    return _by_setting("at its best", rows, texts, note)


def contrast_table(rows: Sequence[Contrast]) -> Table:
    """Paired differences of one metric, with their tests."""
    metric = rows[0].metric
    title = f"Paired differences in {metric.title}{' (percentage points)' * metric.percent}"
    columns = ("contrast", "pairs", "mean", "95 % interval", "test", "p", "p (Holm)", "outcome")
    body = [
        (
            f"{row.setting} − {row.reference}",
            str(row.difference.n),
            *difference_texts(row.difference, row.metric),
            row.test,
            p_text(row.p),
            p_text(row.p_holm),
            row.outcome,
            f"{row.diverged[0]} and {row.diverged[1]}" if any(row.diverged) else "",
        )
        for row in rows
    ]
    note = (
        "Setting minus reference, paired by seed: the mean, its 95 % t-interval, p of the exact "
        "sign-flip test or of the paired t test, and p after Holm's correction over the contrasts "
        "of the cell. A setting with more diverged runs than its reference is never better; "
        "diverged runs are counted over the seeds that both have."
    )
    return table_by_cell(title, [row.cell for row in rows], (*columns, "diverged"), body, note)


def decomposition_table(rows: Sequence[Decomposition]) -> Table:
    """The gain of q over base, and its two parts."""

    def text(part: Estimate) -> str:
        return " ".join(difference_texts(part, METRICS["test_accuracy"]))

    body = [
        (row.setting, str(row.total.n), text(row.total), text(row.limit), text(row.noise))
        for row in rows
    ]
    note = (
        "q − base = (limit − base) + (q − limit): gains in test accuracy in percentage points with "
        "95 % t-intervals, over the seeds that have all three."
    )
    columns = ("setting", "seeds", "q − base", "limit − base", "q − limit")
    return table_by_cell("The noise or the limit?", [row.cell for row in rows], columns, body, note)


def count_runs(states: pl.DataFrame, runs: Iterable[Run] = ()) -> dict[Cell, Counter[str]]:
    """The number of runs of each cell by state (:data:`COUNTS`).

    ``runs`` are all runs of the study; those without a state have not begun.
    """
    expected = Counter(Cell(*run.cell) for run in runs)
    counts = {cell: Counter[str]() for cell in expected}
    for row in states.select(*CELL, "state").iter_rows():
        counts.setdefault(Cell(*row[:-1]), Counter())[row[-1]] += 1
    for cell, count in counts.items():
        begun = count.total()
        count["runs"] = max(expected[cell], begun)
        count["not begun"] = count["runs"] - begun
    return dict(sorted(counts.items()))


def compared_at(rows: Iterable[Final], epochs: int | None = None) -> str:
    """The epochs at which settings are compared; "3 of 100" if the study has more epochs."""
    found = sorted({final.epoch for final in rows})
    short = epochs is not None and found[:1] != [epochs]
    return _span(found) + (f" of {epochs}" if short else "")


def accounting_table(counts: Mapping[Cell, Counter[str]], rows: Iterable[Final]) -> Table:
    """The runs of each cell by state, and the epoch at which its settings are compared."""
    epochs = {final.cell: str(final.epoch) for final in rows}
    body = [
        (epochs.get(cell, NONE), *(str(numbers[name]) for name in COUNTS))
        for cell, numbers in counts.items()
    ]
    note = (
        "Settings are compared at the last epoch that at least half of the cell's runs reached. "
        "Runs that did not reach it are in no mean."
    )
    return table_by_cell("Runs", list(counts), ("epoch", *COUNTS), body, note)


def _span(numbers: Sequence[int]) -> str:
    first, last = numbers[0], numbers[-1]
    return str(first) if first == last else f"{first} to {last}"


def _by_setting(
    when: str, rows: Sequence[Final], texts: Mapping[tuple[Cell, str], str], note: str
) -> Table:
    title = f"{rows[0].metric.title.capitalize()}{' (%)' * rows[0].metric.percent} {when}"
    settings = sorted({final.setting for final in rows}, key=setting_order)
    cells = list(dict.fromkeys(final.cell for final in rows))
    body = [tuple(texts.get((cell, setting), NONE) for setting in settings) for cell in cells]
    return table_by_cell(title, cells, settings, body, note)


def table_by_cell(
    title: str,
    cells: Sequence[Cell],
    columns: Sequence[str],
    body: Sequence[tuple[str, ...]],
    note: str,
) -> Table:
    """One row for each cell. What the cells share is in the title; the rest gets columns."""
    words = [
        (
            cell.dataset,
            cell.network,
            "dropout" if cell.dropout else "no dropout",
            cell.activation,
            cell.protocol or PAPER_PROTOCOL,
        )
        for cell in cells
    ]
    differ = [i for i in range(len(CELL)) if len({word[i] for word in words}) > 1]
    shared = [words[0][i] for i in range(len(CELL)) if i not in differ]
    shared = [word for word in shared if word != PAPER_PROTOCOL]
    return Table(
        f"{title} ({', '.join(shared)})" if shared else title,
        (*(CELL[i] for i in differ), *columns),
        tuple((*(word[i] for i in differ), *row) for word, row in zip(words, body, strict=True)),
        note,
    )
