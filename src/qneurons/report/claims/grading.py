"""The graded line of a claim: in how many cases the sign is the claim's, and the mean effect."""

import math
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from statistics import fmean

from qneurons.report.claims.cases import Case
from qneurons.report.claims.evidence import Effect, mean_effect, name_idle
from qneurons.report.contrasts import Contrast
from qneurons.report.final_values import Cell, Metric
from qneurons.report.inference import Estimate
from qneurons.report.rendering import NONE, interval_text
from qneurons.report.results import Results


def grade(results: Results, found: Sequence[Case], sign: int) -> list[str]:
    """A line for each metric. The claim's sign is 1 if it speaks of gains, -1 if of none.

    The effect of a case is the mean of its contrasts. The mean effect gives every cell the same
    weight. Contrasts with a setting that learns nothing are in no mean.
    """
    rows = [row for case in found for row in case.effects]
    lines = [
        _line(results, found, metric, sign) for metric in dict.fromkeys(r.metric for r in rows)
    ]
    if lost := name_idle(results, ((r.cell, s) for r in rows for s in (r.reference, r.setting))):
        lines.append(f"the means are without settings that learn nothing: {lost}")
    noiseless = dict.fromkeys(r.cell for r in rows if r.metric.name == "train_loss_limit")
    if lacking := [cell for cell in noiseless if cell not in results.noiseless]:
        lines.append(
            f"in {len(lacking)} of {len(noiseless)} cells the loss without noise was not recorded "
            "for every seed, and that with the noise of the last epoch stands in: "
            f"{_name_cells(lacking, noiseless)}"
        )
    return lines


def learns(results: Results, row: Contrast) -> bool:
    return results.learns(row.cell, row.setting, row.reference)


def _name_cells(cells: Collection[Cell], among: Iterable[Cell]) -> str:
    """Names cells by what they are trained on, or says that it is all of a network."""
    everywhere = Counter(cell.where for cell in among)
    here: dict[str, list[str]] = {}
    for cell in cells:
        dropout = "with" if cell.dropout else "without"
        here.setdefault(cell.where, []).append(f"{cell.activation} {dropout} dropout")
    return "; ".join(
        f"all {len(names)} of {where}"
        if len(names) == everywhere[where] > 1
        else f"{', '.join(names)} in {where}"
        for where, names in here.items()
    )


def _line(results: Results, found: Sequence[Case], metric: Metric, sign: int) -> str:
    cases = [[row for row in case.effects if row.metric == metric] for case in found]
    rows = [row for case in cases for row in case]
    learning = [row for row in rows if learns(results, row)]
    # A case of which nothing learns has a sign all the same.
    signed = [[r for r in case if learns(results, r)] or case for case in cases]
    means = [[row.gain.mean for row in case if row.gain.n] for case in signed]
    gains = [fmean(case) for case in means if case]
    agree = sum(sign * gain > 0 for gain in gains)
    direction = "higher" if metric.higher == (sign > 0) else "lower"
    line = f"{metric.title} is {direction} in {agree} of {len(gains)} cases"
    if not learning:
        return line
    effect, whole = _effect(results, learning), _effect(results, rows)
    mean, interval = _texts(effect.over_seeds, metric)
    _, between = _texts(effect.over_cells, metric)
    unit = "points" if metric.percent else "thousandths"
    beside = [effect.lost] if effect.lost else []
    if metric.name != "train_loss_limit":  # which is of the last epoch already
        last = _effect(results.last_epoch, learning)
        beside.append(f"at the last epoch {_texts(last.over_seeds, metric)[0]}")
    if (whole.over_seeds.mean > 0) != (effect.over_seeds.mean > 0):
        told, _ = _texts(whole.over_seeds, metric)
        beside.append(f"with settings that learn nothing {told} {unit}")
    is_higher = (2 * agree > len(gains)) == (direction == "higher")  # in most cases
    joint = "and" if is_higher == (effect.over_seeds.mean > 0) else "but"
    return (
        f"{line}, {joint} the mean difference is {mean} {unit} (95 % interval {interval} "
        f"over seeds, {between} over {effect.over_cells.n} cells as a sample"
        f"{''.join(f'; {words}' for words in beside)})"
    )


def _texts(value: Estimate, metric: Metric) -> tuple[str, str]:
    """Mean and interval in percentage points, of a loss in thousandths."""
    factor, form = (100, "+.3f") if metric.percent else (1000, "+.3g")
    low, high = factor * value.low, factor * value.high
    mean = NONE if math.isnan(value.mean) else f"{factor * value.mean:{form}}"
    return mean, interval_text(low, high, form)


def _effect(results: Results, rows: Iterable[Contrast]) -> Effect:
    pairs = ((row.cell, row.setting, row.reference, row.metric.name) for row in rows)
    return mean_effect((pair[0], results.differences(*pair)) for pair in pairs)
