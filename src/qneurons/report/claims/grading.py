"""The graded line of a claim: in how many cases the sign is the claim's, and the mean effect."""

from collections.abc import Iterable, Sequence
from statistics import fmean

from qneurons.report.claims.cases import Case
from qneurons.report.claims.evidence import Effect, mean_effect, name_idle
from qneurons.report.comparisons import Contrast, Metric
from qneurons.report.rendering import difference_texts
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
    if lacking := [str(cell) for cell in noiseless if cell not in results.noiseless]:
        every = len(lacking) == len(noiseless)
        where = f"all {len(lacking)} cells" if every else "; ".join(lacking)
        lines.append(
            f"the training loss with the noise of the last epoch stands in for it in {where}"
        )
    return lines


def _learns(results: Results, row: Contrast) -> bool:
    return results.learns(row.cell, row.setting, row.reference)


def _line(results: Results, found: Sequence[Case], metric: Metric, sign: int) -> str:
    cases = [[row for row in case.effects if row.metric == metric] for case in found]
    rows = [row for case in cases for row in case]
    learning = [row for row in rows if _learns(results, row)]
    # A case of which nothing learns has a sign all the same.
    signed = [[r for r in case if _learns(results, r)] or case for case in cases]
    means = [[row.gain.mean for row in case if row.gain.n] for case in signed]
    gains = [fmean(case) for case in means if case]
    agree = sum((gain > 0) == (sign > 0) for gain in gains)
    better = f"{'not ' * (sign < 0)}{'higher' if metric.higher else 'lower'}"
    line = f"{metric.title} is {better} in {agree} of {len(gains)} cases"
    if not learning:
        return line
    effect, whole = _effect(results, learning), _effect(results, rows)
    mean, interval = difference_texts(effect.over_seeds, metric)
    _, between = difference_texts(effect.over_cells, metric)
    beside = [effect.lost] if effect.lost else []
    if metric.name != "train_loss_limit":  # which is of the last epoch already
        last = _effect(results.last_epoch, learning)
        beside.append(f"at the last epoch {difference_texts(last.over_seeds, metric)[0]}")
    if (whole.over_seeds.mean > 0) != (effect.over_seeds.mean > 0):
        told = difference_texts(whole.over_seeds, metric)[0]
        beside.append(f"with settings that learn nothing {told}{' points' * metric.percent}")
    return (
        f"{line}, mean difference {mean}{' points' * metric.percent} (95 % interval {interval} "
        f"over seeds, {between} over {effect.over_cells.n} cells as a sample"
        f"{''.join(f'; {words}' for words in beside)})"
    )


def _effect(results: Results, rows: Iterable[Contrast]) -> Effect:
    pairs = ((row.cell, row.setting, row.reference, row.metric.name) for row in rows)
    return mean_effect((pair[0], results.differences(*pair)) for pair in pairs)
