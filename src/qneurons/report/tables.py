"""The tables of a report: final values, contrasts, decompositions, counts of runs."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence

import polars as pl

from qneurons.report.claims import attributions, decompose, split_by_mean
from qneurons.report.contrasts import Contrast, survivors
from qneurons.report.final_values import METRICS, STATES, Cell, Final, setting_order
from qneurons.report.inference import Estimate
from qneurons.report.rendering import NONE, Table, difference_texts, estimate_text, p_text
from qneurons.report.results import Results
from qneurons.study.runs import Run
from qneurons.study.store import CELL

PAPER_PROTOCOL = "the paper's"
EVALUATION = (
    "q-activations are evaluated with drawn q (eval_mode “sample”), as in the paper's code; "
    "modules of this package are evaluated in the limit unless told otherwise."
)
COUNTS = ("runs", *STATES, "not begun")


def learns_nothing(results: Results, cell: Cell, setting: str) -> str:
    """What tables show instead of the numbers of a setting that learns nothing, else nothing."""
    count = results.untrained(cell).get(setting, 0)
    return idle_text(count, len(results.final(cell, setting).values))


def idle_text(count: int, runs: int) -> str:
    """That so many of these runs learn nothing; nothing if none."""
    return "learns nothing" + f" ({count} of {runs} runs)" * (count < runs) if count else ""


def final_table(results: Results, metric: str = "test_accuracy") -> Table:
    """Final values of one metric: a row for each cell, a column for each setting."""
    rows = results.finals[metric]

    def text(final: Final) -> str:
        value = estimate_text(final.estimate, final.metric)
        if final.first < final.epoch and final.values:
            last = results.last_epoch.final(final.cell, final.setting, metric).estimate
            value += f" ({estimate_text(last, final.metric).partition(' ')[0]})"
        return value + (f" ({len(final.diverged)} diverged)" if final.diverged else "")

    nums = sorted({final.estimate.n for final in rows})
    seeds = f"{_span(nums)} seed{'s' * (nums != [1])}"
    note = (
        f"Mean ± half of the 95 % t-interval over {seeds}, of the runs that reached the last epoch "
        f"of comparison. {beside_note(rows)} {EVALUATION}"
    )
    return _by_setting(results, compared_at(rows), rows, text, note)


def best_table(results: Results) -> Table:
    """The peak of each mean curve and its epoch."""

    def text(final: Final) -> str:
        best = final.best
        return f"{estimate_text(best.estimate, final.metric)} @{best.epoch}" if best.epoch else NONE

    note = (
        "Peak over epochs of the mean over seeds, with its epoch after the @. It is chosen on the "
        f"test set, as in the paper, so it is a little too good. {EVALUATION}"
    )
    return _by_setting(results, "at its best", results.finals["test_accuracy"], text, note)


def contrast_table(results: Results, metric: str) -> Table:
    """Paired differences of one metric, with their tests."""
    rows, of = results.contrasts[metric], METRICS[metric]
    title = f"Paired differences in {of.title}{' (percentage points)' * of.percent}"
    columns: tuple[str, ...] = ("contrast", "pairs", "mean", "95 % interval", "last epoch")
    columns += ("test", "p", "p (Holm)", "outcome", "diverged")

    def numbers(row: Contrast) -> tuple[str, str, str]:
        if idle := [s for s in (row.setting, row.reference) if not results.learns(row.cell, s)]:
            return learns_nothing(results, row.cell, idle[0]), NONE, NONE
        last = results.last_epoch.contrast(row.cell, row.setting, row.reference, metric)
        return *difference_texts(row.difference, of), difference_texts(last.difference, of)[0]

    body = [
        (
            f"{row.setting} − {row.reference}",
            str(row.difference.n),
            *numbers(row),
            row.test,
            p_text(row.p),
            p_text(row.p_holm),
            row.outcome,
            f"{row.diverged[0]} and {row.diverged[1]}" if any(row.diverged) else "",
        )
        for row in rows
    ]
    note = (
        "Setting minus reference, paired by seed: the mean, its 95 % t-interval, the mean at the "
        "last epoch, p of the exact sign-flip test or of the paired t test, and p after Holm's "
        "correction over the contrasts of the cell. Where one run of a pair diverged, p is of the "
        "sign test over the seeds that both have, in which that run loses. The side with more "
        "diverged runs is never better. "
        f"{survival_text(results, metric)}"
    )
    return table_by_cell(title, [row.cell for row in rows], columns, body, note, num_heads=1)


def survival_text(results: Results, metric: str) -> str:
    """Over how many contrasts the corrections run, and how many contrasts survive each.

    Nothing if there is no correction: of one contrast, or without a test.
    """
    everything = results.contrasts[metric]
    families = sorted(Counter(row.cell for row in everything).values())
    rows = [r for r in everything if results.learns(r.cell, r.setting, r.reference)]
    if len(rows) < 2 or (found := survivors(rows))[-1][1] == "none":
        return ""
    (within, test_within), (overall, test) = found
    too_many = f"; no p of the {test_within} test is small enough for so many contrasts"
    reason = too_many if test != test_within else ""
    idle = len(everything) - len(rows)
    left_out = f" ({idle} with settings that learn nothing are left out)" if idle else ""
    return (
        f"Of {len(rows)} contrasts in {METRICS[metric].title}{left_out}, {within} have p ≤ 0.05 "
        f"after the correction within their cell ({test_within} test, {_span(families)} contrasts "
        f"each), and {overall} after one over all {len(rows)} at once ({test} test{reason})."
    )


def decomposition_table(results: Results) -> Table:
    """The gain of q over base, and its two parts, in every cell."""

    def texts(cell: Cell, setting: str, parts: Sequence[Estimate]) -> list[str]:
        settings = (("base", setting), ("base", "limit"), ("limit", setting))
        idle = [
            next(filter(None, (learns_nothing(results, cell, s) for s in x)), "") for x in settings
        ]
        return [word or _points(part) for word, part in zip(idle, parts, strict=True)]

    rows = decompose(results)
    body = [
        (
            row.setting,
            str(row.total.n),
            *texts(row.cell, row.setting, (row.total, row.limit, row.noise)),
        )
        for row in rows
    ]
    note = (
        "q − base = (limit − base) + (q − limit): gains in test accuracy in percentage points with "
        "95 % t-intervals, over the seeds that have all three."
    )
    columns = ("setting", "seeds", "q − base", "limit − base", "q − limit")
    cells = [row.cell for row in rows]
    return table_by_cell("Noise and limit by cell", cells, columns, body, note, num_heads=1)


def attribution_table(results: Results) -> Table:
    """The two parts of the gain by activation and dropout, and last on average."""
    rows = attributions(results)
    body = [
        (
            row.where,
            f"{row.cells}{f' ({row.lost})' if row.lost else ''}",
            *map(_points, (row.total, row.limit, row.noise)),
            *(f"{gain} and {loss}" for gain, loss in row.signs),
            NONE if row is rows[-1] and len(rows) > 1 else row.answer,
        )
        for row in rows
    ]
    columns = ("activation", "cells", "q − base", "limit − base", "q − limit")
    signs = ("limit: cells with + and -", "noise: cells with + and -", "which part gains")
    note = (
        "Gains in test accuracy in percentage points with 95 % t-intervals over seeds, averaged "
        "over q settings and cells, without settings that learn nothing. The average over "
        "activations may hide opposite effects, so it is no answer."
    )
    return Table("The noise or the limit?", (*columns, *signs), tuple(body), note)


def mean_split_table(results: Results) -> Table:
    """The noise alone: q against its mean, and the mean against limit and base."""

    def text(row: Contrast, last: Contrast) -> str:
        idle = (learns_nothing(results, row.cell, s) for s in (row.setting, row.reference))
        star, last_star = ("*" * (one.outcome != "unclear") for one in (row, last))
        mean, _ = difference_texts(last.difference, row.metric)
        beside = "" if last is row else f" ({mean}{last_star})"
        return next(filter(None, idle), f"{_points(row.difference)}{star}{beside}")

    rows = split_by_mean(results)
    is_last = results.last_epoch is results
    at_last = rows if is_last else split_by_mean(results.last_epoch)
    body = [(key[1], *map(text, contrasts, at_last[key])) for key, contrasts in rows.items()]
    columns = ("q setting", "q − mean", "mean − limit", "mean − base")
    note = (
        "The mean is E[g_q(x)], trained without noise at the same λ. Gains in test accuracy in "
        "percentage points with 95 % t-intervals over seeds. A star marks p ≤ 0.05 after Holm's "
        "correction over the three." + " In parentheses the last epoch." * (not is_last)
    )
    everything = [row for contrasts in rows.values() for row in contrasts]
    if learning := [r for r in everything if results.learns(r.cell, r.setting, r.reference)]:
        (within, _), (overall, test) = survivors(learning)
        note += (
            f" {within} of {len(learning)} contrasts have a star, and {overall} would have one "
            f"after a correction over all {len(learning)} at once ({test} test)."
        )
    cells = [cell for cell, _ in rows]
    return table_by_cell("The noise alone", cells, columns, body, note, num_heads=1)


def _points(part: Estimate) -> str:
    return " ".join(difference_texts(part, METRICS["test_accuracy"]))


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
    """The epochs of final values; "at epoch 3 of 100" if the study has more epochs."""
    found = {final.epoch: final.epochs for final in sorted(rows, key=lambda final: final.epoch)}
    short = epochs is not None and [*found][:1] != [epochs]
    return "at " + _span([*found.values()]) + (f" of {epochs}" if short else "")


def beside_note(rows: Iterable[Final]) -> str:
    """What a number in parentheses beside a final value is."""
    if all(final.first == final.epoch for final in rows):
        return ""
    return "A value is the mean over the last tenth of the epochs; in parentheses the last epoch."


def accounting_table(counts: Mapping[Cell, Counter[str]], rows: Iterable[Final]) -> Table:
    """The runs of each cell by state, and the epoch at which its settings are compared."""
    epochs = {final.cell: str(final.epoch) for final in rows}
    body = [
        (epochs.get(cell, NONE), *(str(numbers[name]) for name in COUNTS))
        for cell, numbers in counts.items()
    ]
    note = (
        "Settings are compared by the mean over the last tenth of the epochs, up to the last one "
        "that at least half of the cell's runs reached. Runs that did not reach it are in no mean."
    )
    return table_by_cell("Runs", list(counts), ("epoch", *COUNTS), body, note)


def _span(numbers: Sequence[object]) -> str:
    first, last = numbers[0], numbers[-1]
    return str(first) if first == last else f"{first} to {last}"


def _by_setting(
    results: Results, when: str, rows: Sequence[Final], text: Callable[[Final], str], note: str
) -> Table:
    title = f"{rows[0].metric.title.capitalize()}{' (%)' * rows[0].metric.percent} {when}"
    settings = sorted({final.setting for final in rows}, key=setting_order)
    cells = list(dict.fromkeys(final.cell for final in rows))
    texts = {
        (final.cell, final.setting): learns_nothing(results, final.cell, final.setting)
        or text(final)
        for final in rows
    }
    body = [tuple(texts.get((cell, setting), NONE) for setting in settings) for cell in cells]
    return table_by_cell(title, cells, settings, body, note)


def table_by_cell(
    title: str,
    cells: Sequence[Cell],
    columns: Sequence[str],
    body: Sequence[tuple[str, ...]],
    note: str,
    num_heads: int = 0,
) -> Table:
    """One row for each cell. What the cells share is in the title; the rest gets columns.

    ``num_heads`` of ``columns`` name the row, too.
    """
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
    differ = differ or [CELL.index("activation")]  # a row needs a name
    shared = [words[0][i] for i in range(len(CELL)) if i not in differ]
    shared = [word for word in shared if word != PAPER_PROTOCOL]
    return Table(
        f"{title} ({', '.join(shared)})" if shared else title,
        (*(CELL[i] for i in differ), *columns),
        tuple((*(word[i] for i in differ), *row) for word, row in zip(words, body, strict=True)),
        note,
        len(differ) + num_heads,
    )
