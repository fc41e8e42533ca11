"""The answer of a report in one sentence: what helps, by how much, where not, what is trained."""

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean

from qneurons.report.contrasts import Contrast
from qneurons.report.final_values import Cell
from qneurons.report.gains import gains_over
from qneurons.report.inference import ALPHA
from qneurons.report.rendering import interval_text, listed, p_text
from qneurons.report.results import Results
from qneurons.report.tables import compared_at, count_runs
from qneurons.study.runs import Study, counted

FEW = 2  # so many cells are named; more are counted

Gains = Mapping[Cell, Contrast]  # of one setting over base


def answer(results: Results, study: Study | None = None) -> str:
    """With a ``study``, its runs that have not begun are counted, too."""
    gains: dict[str, dict[Cell, Contrast]] = {}
    for (cell, setting), row in gains_over(results, "base").items():
        gains.setdefault(setting, {})[cell] = row
    names = place_names(results.cells)
    if not any(final.values for final in results.finals["test_accuracy"]):
        found = "There is no answer, because no run reached the epoch of comparison"
    elif not gains:
        found = _highest(results, names)
    elif helping := [s for s, rows in gains.items() if _cells(rows, "better")]:
        top = max(helping, key=lambda setting: _merit(gains[setting]))
        most = " most" * (len(helping) > 1)
        others = {setting: rows for setting, rows in gains.items() if setting != top}
        found = f"{top} helps{most}: it {_gains(gains[top], names)}{_harm(others, names)}"
    else:
        found = _no_help(gains, names)
    return f"{found}; {_trained(results, study)}."


def place_names(cells: Sequence[Cell]) -> dict[Cell, str]:
    """The activation of each cell, and what else is not the same in all of them."""
    all_drop, all_where = ({getattr(c, part) for c in cells} for part in ("dropout", "where"))
    names = {}
    for cell in cells:
        name = cell.activation
        if len(all_drop) > 1 or len(cells) == 1:
            name += f" {'with' if cell.dropout else 'without'} dropout"
        if len(all_where) > 1 or len(cells) == 1:
            name += f" in {cell.where}"
        names[cell] = name
    return names


def _trained(results: Results, study: Study | None) -> str:
    epoch = compared_at(results.finals["test_accuracy"], study.epochs if study else None)
    runs = count_runs(results.states, study.runs if study else ())
    totals = sum(runs.values(), Counter[str]())
    done, planned = totals["compared"], totals["runs"]
    of = f"{done:,} of " if done < planned else "all " * (planned > 1)
    lost = f" ({totals['diverged']:,} diverged)" if totals["diverged"] else ""
    are = "is" if planned == 1 else "are"
    return f"{of}{counted(planned, 'run')} {are} trained and compared {epoch}{lost}"


def _highest(results: Results, names: Mapping[Cell, str]) -> str:
    finals = [final for final in results.finals["test_accuracy"] if final.values]
    top = max(finals, key=lambda final: final.estimate.mean)
    return (
        "What helps cannot be said, because no cell has both base and another setting; the highest "
        f"test accuracy is {100 * top.estimate.mean:.2f} %, of {top.setting} ({names[top.cell]})"
    )


def _cells(rows: Gains, outcome: str) -> list[Cell]:
    return [cell for cell, row in rows.items() if row.outcome == outcome]


def _merit(rows: Gains) -> tuple[int, float]:
    """In how many more cells it is better than worse; then the mean gain."""
    sizes = [row.gain.mean for row in rows.values() if row.gain.n]
    more = len(_cells(rows, "better")) - len(_cells(rows, "worse"))
    return more, fmean(sizes) if sizes else -math.inf


def _points(row: Contrast) -> str:
    low, high = 100 * row.gain.low, 100 * row.gain.high
    interval = "" if math.isnan(low) else f" {interval_text(low, high, '+.2f')}"
    return f"{100 * row.gain.mean:+.2f}{interval} points of test accuracy over base"


def _gains(rows: Gains, names: Mapping[Cell, str]) -> str:
    """What a setting that helps gains, and where it does not."""
    if len(names) == 1 and all(row.gain.mean > 0 for row in rows.values()):
        return "".join(f"gains {_points(row)} ({names[cell]})" for cell, row in rows.items())
    better = _cells(rows, "better")
    parts = [f"beats base in {len(better)} of {counted(len(rows), 'cell')}"]
    # A setting also beats a base whose runs diverge; then it may have no gain.
    if measured := [cell for cell in better if rows[cell].gain.mean > 0]:
        *_, most = measured = sorted(measured, key=lambda cell: rows[cell].gain.mean)
        ends = dict.fromkeys(f"{100 * rows[c].gain.mean:+.2f}" for c in (measured[0], most))
        place = f"most with {names[most]}" if len(measured) > 1 else names[most]
        parts[0] += f", by {' to '.join(ends)} points of test accuracy ({place})"
    for outcome, verb in (("worse", "loses in"), ("unclear", "is unclear in")):
        if cells := _cells(rows, outcome):
            parts.append(f"{verb} {_where(cells, rows, names)}")
    return listed(parts)


def _where(cells: Sequence[Cell], among: Iterable[Cell], names: Mapping[Cell, str]) -> str:
    if len(cells) <= FEW:
        detail = listed([names[cell] for cell in cells])
    else:
        total = Counter(cell.activation for cell in among)
        here = Counter(cell.activation for cell in cells)
        detail = ", ".join(f"{here[name]} of {total[name]} with {name}" for name in here)
    return f"{counted(len(cells), 'cell')} ({detail})"


def _no_help(gains: Mapping[str, Gains], names: Mapping[Cell, str]) -> str:
    rows = [row for of_setting in gains.values() for row in of_setting.values()]
    alone = rows[0].setting if len(gains) == 1 else ""

    def best(among: Sequence[Contrast]) -> str:
        top = max(among, key=lambda row: row.gain.mean)
        subject = "at best it" if alone else f"the best, {top.setting},"
        subject = "it" if len(rows) == 1 else subject
        return f"{subject} gives {_points(top)} ({names[top.cell]})"

    measured = [row for row in rows if row.gain.n]
    if all(row.outcome == "worse" for row in rows):
        reason = f": {best(measured)}" if measured else ", because more of its runs diverge"
        return f"{alone or 'Every setting'} hurts{reason}"
    failure = f"{alone} is not shown to help" if alone else "No setting is shown to help"
    unclear = [row for row in measured if row.outcome == "unclear"]
    if not unclear:
        lost = any(sum(row.diverged) for row in rows)
        why = "too many runs diverged" if lost else "no seed has both base and another setting"
        reason = f", because {why}" * (not measured)
    elif max(row.gain.n for row in measured) < 2:
        failure = f"One seed cannot show whether {alone or 'a setting'} helps"
        reason = f": {best(unclear)}"
    else:
        top = max(unclear, key=lambda row: row.gain.mean)
        p = f"p {'= ' * (top.p_holm >= 0.001)}{p_text(top.p_holm)}"
        reason = f": {best(unclear)}, with {p} after Holm's correction"
        if top.p <= ALPHA < top.p_holm:
            reason = (
                f": {best(unclear)}, but this interval is of one comparison alone, and with Holm's "
                f"correction for all comparisons of the cell {p}"
            )
        reason += ", but more of its runs diverged" * (top.p_holm <= ALPHA)
    return failure + reason + _harm(gains, names)


def _harm(gains: Mapping[str, Gains], names: Mapping[Cell, str]) -> str:
    """Which settings are worse than base, and where."""
    settings = [setting for setting, rows in gains.items() if _cells(rows, "worse")]
    if not settings:
        return ""
    here = dict.fromkeys(cell for setting in settings for cell in _cells(gains[setting], "worse"))
    among = dict.fromkeys(cell for rows in gains.values() for cell in rows)
    place = f" in {_where([*here], among, names)}" if len(names) > 1 else ""
    return f"; {listed(settings, 'or')} hurts{place}"
