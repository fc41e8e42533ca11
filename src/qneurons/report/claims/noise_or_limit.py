"""The noise or the limit? Splits the gain of q over base into (limit - base) + (q - limit)."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

import numpy as np
from numpy.typing import NDArray

from qneurons.report.claims.evidence import name_idle, pool, scale
from qneurons.report.claims.grid import LINEAR
from qneurons.report.claims.verdicts import OPEN, Claim, Verdict, lack
from qneurons.report.contrasts import MIN_PAIRS, Contrast
from qneurons.report.final_values import METRICS, Cell, is_q
from qneurons.report.inference import ALPHA, Estimate, estimate, paired_tests
from qneurons.report.rendering import listed
from qneurons.report.results import Results
from qneurons.study.runs import parse_setting

ACCURACY = METRICS["test_accuracy"]
LEAST = 0.02  # share of base's error: a smaller part of the average gain counts as none
DIFFERS = "it differs"

QUESTION = Claim(
    "noise-or-limit",
    "Where does a gain come from: the noise in q, or the activation f'(x)x that q tends to?",
    "The gain in test accuracy of q over base is the sum of limit over base (the limit's part) and "
    "q over limit (the noise's part). Each is computed by seed, in percentage points, and averaged "
    "over the q settings of the cells with one curved activation, with and without dropout apart. "
    "A setting is left out if one of its runs learns nothing, and a cell whose base or limit is "
    "such a setting. If runs are missing, settings and seeds are left out until every remaining "
    "setting has every remaining seed. A part has no gain if its 95 % interval ends below 2 % of "
    "base's error, or if it is significantly negative. Otherwise it gains if it is positive with "
    "p ≤ 0.05 (Holm's correction over the two parts). The answer is the limit, the noise, both or "
    "neither; it is undecided if a part is unclear. The average over all of these cells comes "
    "last: it may hide opposite effects.",
)


Pair = tuple[Cell, str]  # a cell and a q setting


@dataclass(frozen=True)
class Decomposition:
    """One q setting in one cell: gains in test accuracy over the seeds that have all three."""

    cell: Cell
    setting: str
    total: Estimate  # q - base
    limit: Estimate  # limit - base
    noise: Estimate  # q - limit


def decompose(results: Results) -> list[Decomposition]:
    """Every q setting of every cell that also has base and limit."""
    found = []
    for cell in _cells(results):
        for setting in filter(is_q, results.settings(cell)):
            parts = np.array(list(_parts(results, cell, setting).values())).reshape(-1, 3)
            found.append(Decomposition(cell, setting, *map(estimate, parts.T)))
    return found


@dataclass(frozen=True)
class Attribution:
    """What the average gain over some cells is attributed to, in test accuracy."""

    where: str
    answer: str  # "the limit", "the noise", "both", "neither" or OPEN
    cells: int
    total: Estimate
    limit: Estimate
    noise: Estimate
    signs: list[tuple[int, int]]  # of either part: the cells with a gain and with a loss
    lost: str = ""  # what was left out for missing runs


def attribute(results: Results, where: str, pairs: Sequence[Pair]) -> Attribution:
    """The average over cells and their q settings, by seed; every cell has the same weight."""
    samples = [(cell, _parts(results, cell, setting)) for cell, setting in pairs]
    values, lost = pool(samples)
    by_cell, by_seed = (
        values.mean(axis=a).reshape(-1, 3) if values.size else values.reshape(0, 3) for a in (1, 0)
    )
    total, limit, noise = map(estimate, by_seed.T)
    p = paired_tests([*by_seed.T[1:]])
    error = fmean(scale(results, cell, ACCURACY) for cell in dict.fromkeys(c for c, _ in pairs))
    gains = judge_part(limit, p[0], LEAST * error), judge_part(noise, p[1], LEAST * error)
    answer = {
        ("gain", "no gain"): "the limit",
        ("no gain", "gain"): "the noise",
        ("gain", "gain"): "both",
        ("no gain", "no gain"): "neither",
    }.get(gains, OPEN)
    if total.n < MIN_PAIRS:
        answer = OPEN
    signs = [(int((part > 0).sum()), int((part < 0).sum())) for part in by_cell.T[1:]]
    return Attribution(where, answer, len(values), total, limit, noise, signs, lost)


def attributions(results: Results) -> list[Attribution]:
    """For each curved activation with and without dropout, and last over all of their cells."""
    pairs = _learning(results, _pairs(results))
    found = [attribute(results, where, part) for where, part in _groups(pairs).items()]
    return [*found, attribute(results, "all of these", pairs)] if len(found) > 1 else found


def split_by_mean(results: Results) -> dict[Pair, list[Contrast]]:
    """Every cell and q setting whose mean was also trained without noise, as m5 for a5.

    The contrasts are q - mean (the noise alone), mean - limit and mean - base. A large λ changes
    the mean function too, so q - limit is the sum of the first two.
    """
    found = {}
    for cell in _cells(results):
        for mean in results.settings(cell):
            parsed = parse_setting(mean)
            q = str(parsed.schedule)
            if parsed.kind == "mean" and q in results.settings(cell):
                pairs = [(q, mean), (mean, "limit"), (mean, "base")]
                found[cell, q] = list(results.extra_contrasts(cell, pairs).values())
    return found


def judge_question(results: Results) -> Verdict:
    everything = _pairs(results)
    pairs = _learning(results, everything)
    found = attributions(results)
    if not pairs:
        learning = " that learn something" if everything else ""
        missing = [f"a cell of a curved activation with base, limit and a q setting{learning}"]
    elif (n := max(group.total.n for group in found)) < MIN_PAIRS:
        missing = [f"seeds: there are {n} of the {MIN_PAIRS} that are needed"]
    else:
        missing = []
    if missing:
        return Verdict(QUESTION, OPEN, (), lack(missing), missing=tuple(missing))
    groups = found[:-1] or found
    answers = Counter(group.answer for group in groups)
    decided = answers.keys() - {OPEN}
    answer = next(iter(decided)) if len(decided) == 1 else DIFFERS if decided else OPEN
    told = {group.where: group.answer for group in groups}
    reason = [f"What gains, on average over cells: {_name_answers(told)}."]
    last = {group.where: group.answer for group in attributions(results.last_epoch)}
    last = {where: last.get(where, OPEN) for where in told}
    if changed := {where: last[where] for where in told if last[where] != told[where]}:
        reason.append(f"At the last epoch alone it is {_name_answers(changed)}.")
    reason += _left_out(results, everything, told)
    cells = {cell for cell, _ in pairs}
    if diverged := sum(len(f.diverged) for f in results.finals[ACCURACY.name] if f.cell in cells):
        reason.append(f"{diverged} diverged runs are in no part.")
    if len(found) > 1:
        limit, noise = (f"{more} cells and - in {less}" for more, less in found[-1].signs)
        reason.append(f"The sign of the limit's part is + in {limit}, of the noise's + in {noise}.")
    reason += _without_noise(results)
    graded = tuple(f"{group.where}: {group.answer}" for group in groups)
    if len(decided) == 1 and OPEN in answers:
        answer += " where it is decided"
    return Verdict(QUESTION, answer, graded, " ".join(reason))


def _left_out(
    results: Results, everything: Sequence[Pair], answers: Mapping[str, str]
) -> list[str]:
    """Names what learns nothing, and the answers that it would change."""
    lost = name_idle(results, ((c, s) for c, q in everything for s in ("base", "limit", q)))
    if not lost:
        return []
    whole = [attribute(results, where, part) for where, part in _groups(everything).items()]
    other = {g.where: g.answer for g in whole if answers.get(g.where) != g.answer}
    return [
        f"This leaves out what learns nothing: {lost}."
        + (f" Were it included, the answer would be {_name_answers(other)}." if other else "")
    ]


def _name_answers(answers: Mapping[str, str]) -> str:
    """As in "the noise for a and b; both for c"."""
    by_answer: dict[str, list[str]] = {}
    for where, answer in answers.items():
        by_answer.setdefault(answer, []).append(where)
    return "; ".join(f"{answer} for {listed(where)}" for answer, where in by_answer.items())


def _without_noise(results: Results) -> list[str]:
    """Says what the noise alone does, if its mean was trained."""
    rows = [
        contrasts
        for (cell, _), contrasts in split_by_mean(results).items()
        if results.learns(cell, *(s for row in contrasts for s in (row.setting, row.reference)))
    ]
    if not rows:
        return []
    names = "the noise alone (q − mean)", "the mean's own change (mean − limit)", "mean − base"
    parts = []
    for name, column in zip(names, zip(*rows, strict=True), strict=True):
        count = Counter(row.outcome for row in column)
        parts.append(f"{name} gains in {count['better']} and loses in {count['worse']}")
    return [
        f"Of {len(rows)} cells and settings whose mean E[g_q(x)] was trained without noise: "
        f"{', '.join(parts)} (p ≤ 0.05, Holm's correction over the three)."
    ]


def _cells(results: Results) -> list[Cell]:
    return [
        cell
        for cell in results.cells
        if {"base", "limit"} <= set(results.settings(cell))
        and any(map(is_q, results.settings(cell)))
    ]


def _pairs(results: Results) -> list[Pair]:
    """The cells of curved activations with their q settings."""
    cells = [cell for cell in _cells(results) if cell.activation not in LINEAR]
    return [(cell, s) for cell in cells for s in filter(is_q, results.settings(cell))]


def _learning(results: Results, pairs: Iterable[Pair]) -> list[Pair]:
    return [(cell, s) for cell, s in pairs if results.learns(cell, "base", "limit", s)]


def _groups(pairs: Iterable[Pair]) -> dict[str, list[Pair]]:
    found: dict[str, list[Pair]] = {}
    for cell, setting in sorted(pairs, key=lambda pair: (pair[0].activation, pair[0].dropout)):
        where = f"{cell.activation} {'with' if cell.dropout else 'without'} dropout"
        found.setdefault(where, []).append((cell, setting))
    return found


def _parts(results: Results, cell: Cell, setting: str) -> dict[int, NDArray[np.float64]]:
    """q - base, limit - base and q - limit by seed."""
    base, limit, q = (results.final(cell, s).values for s in ("base", "limit", setting))
    return {
        seed: np.array([q[seed] - base[seed], limit[seed] - base[seed], q[seed] - limit[seed]])
        for seed in sorted(base.keys() & limit.keys() & q.keys())
    }


def judge_part(part: Estimate, p: float, least: float) -> str:
    """Whether one of the two parts is a gain; one below ``least`` is none."""
    if part.high < least or (p <= ALPHA and part.mean < 0):
        return "no gain"
    return "gain" if p <= ALPHA else "unclear"
