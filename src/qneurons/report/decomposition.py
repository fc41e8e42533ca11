"""The noise or the limit? The gain of q over base as (limit - base) + (q - limit)."""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from qneurons.report.evidence import Evidence, Pool, number, pool
from qneurons.report.inference import ALPHA, Estimate, estimate, holm, paired_test
from qneurons.report.statistics import MIN_PAIRS, Cell, is_q
from qneurons.report.verdicts import LINEAR, OPEN, Claim, Number, Verdict

LEAST = 0.02  # share of base's error: a part of the average gain below it is none

QUESTION = Claim(
    "noise-or-limit",
    "Where does a gain come from: the noise in q, or the activation f'(x)x that q tends to?",
    "The gain in test accuracy of q over base is the sum of limit over base (the limit's part) and "
    "q over limit (the noise's part). Each is taken by seed as a share of base's error, averaged "
    "over all q settings of all cells with curved activations that have base, limit and q. A cell "
    "is left out if a run of it ends no better than guessing: it would outweigh all others. Where "
    "runs are missing, settings and seeds are left out until all that are left have all seeds. "
    "A part has no gain if its 95 % interval ends below 2 % of base's error (many cells make a "
    "trifle significant) or it is significantly negative; else it gains if it is positive with "
    "p ≤ 0.05 (Holm over the two). The answer is the limit, the noise, both or neither; it is not "
    "decided where a part is neither.",
)


@dataclass(frozen=True)
class Decomposition:
    """One q setting in one cell: gains in test accuracy over the seeds that have all three."""

    cell: Cell
    setting: str
    total: Estimate  # q - base
    limit: Estimate  # limit - base
    noise: Estimate  # q - limit


def decompose(evidence: Evidence) -> list[Decomposition]:
    """Every q setting of every cell that has base and limit too."""
    found = []
    for cell in _cells(evidence):
        for setting in _q_settings(evidence, cell):
            parts = np.array(list(_parts(evidence, cell, setting).values())).reshape(-1, 3)
            found.append(Decomposition(cell, setting, *map(estimate, parts.T)))
    return found


def judge_question(evidence: Evidence) -> Verdict:
    curved = [cell for cell in _cells(evidence) if cell.activation not in LINEAR]
    cells = [cell for cell in curved if not evidence.untrained(cell)]
    if not cells:
        learning = ", all of whose runs learn something" if curved else ""
        lacking = (f"a cell of a curved activation with base, limit and a q setting{learning}",)
        return Verdict(QUESTION, OPEN, f"These data lack {lacking[0]}.", missing=lacking)
    pooled = _pooled(evidence, cells)
    n = len(pooled.values)
    if n < MIN_PAIRS:
        lacking = (f"seeds: there are {n} of the {MIN_PAIRS} that the answer needs",)
        return Verdict(QUESTION, OPEN, f"These data lack {lacking[0]}.", missing=lacking)
    total, limit, noise = (estimate(part) for part in pooled.values.T)
    total_p, *tested = (paired_test(part, family=2)[1] for part in pooled.values.T)
    adjusted = holm(tested)
    limit_gain = _gain(limit, adjusted[0])
    noise_gain = _gain(noise, adjusted[1])
    answer = {
        ("gain", "no gain"): "the limit",
        ("no gain", "gain"): "the noise",
        ("gain", "gain"): "both",
        ("no gain", "no gain"): "neither",
    }.get((limit_gain, noise_gain), OPEN)
    diverged = sum(
        len(final.diverged)
        for (metric, cell, _), final in evidence.finals.items()
        if metric == "test_accuracy" and cell in cells
    )
    left_out = ""
    if len(cells) < len(curved):
        _, *with_them = (_share(estimate(part)) for part in _pooled(evidence, curved).values.T)
        left_out = (
            f"; {len(curved) - len(cells)} of {len(curved)} cells left out, with runs that learn "
            f"nothing (with them {' and '.join(with_them)})"
        )
    reason = (
        f"Over {len(cells)} cell{'s' * (len(cells) > 1)} and {n} seeds, in shares of base's error, "
        f"the limit's part is {_share(limit)} ({limit_gain}), "
        f"the noise's part {_share(noise)} ({noise_gain})"
        + (f"; {diverged} diverged runs are in neither" if diverged else "")
        + left_out
        + (f"; {pooled.lost}." if pooled.lost else ".")
    )
    numbers = (
        number("q over base, share of base's error", total, total_p, unit="%"),
        number("limit over base, share of base's error", limit, adjusted[0], unit="%"),
        number("q over limit, share of base's error", noise, adjusted[1], unit="%"),
        Number("diverged runs", diverged),
    )
    return Verdict(QUESTION, answer, reason, numbers)


def _cells(evidence: Evidence) -> list[Cell]:
    return [
        cell
        for cell in evidence.cells
        if {"base", "limit"} <= set(evidence.settings(cell)) and _q_settings(evidence, cell)
    ]


def _q_settings(evidence: Evidence, cell: Cell) -> list[str]:
    return [setting for setting in evidence.settings(cell) if is_q(setting)]


def _parts(evidence: Evidence, cell: Cell, setting: str) -> dict[int, NDArray[np.float64]]:
    """q - base, limit - base and q - limit by seed."""
    base, limit, q = (evidence.final(cell, s).values for s in ("base", "limit", setting))
    return {
        seed: np.array([q[seed] - base[seed], limit[seed] - base[seed], q[seed] - limit[seed]])
        for seed in sorted(base.keys() & limit.keys() & q.keys())
    }


def _shares(evidence: Evidence, cell: Cell, setting: str) -> dict[int, NDArray[np.float64]]:
    scale = evidence.scale(cell, evidence.final(cell, "base").metric)
    return {seed: parts / scale for seed, parts in _parts(evidence, cell, setting).items()}


def _pooled(evidence: Evidence, cells: Iterable[Cell]) -> Pool:
    return pool(_shares(evidence, cell, q) for cell in cells for q in _q_settings(evidence, cell))


def _gain(part: Estimate, p: float) -> str:
    if part.high < LEAST or (p <= ALPHA and part.mean < 0):
        return "no gain"
    return "gain" if p <= ALPHA else "unclear"


def _share(part: Estimate) -> str:
    return f"{part.mean:+.1%} ({part.low:+.1%} to {part.high:+.1%})"
