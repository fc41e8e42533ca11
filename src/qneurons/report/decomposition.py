"""The noise or the limit? The gain of q over base as (limit - base) + (q - limit)."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from qneurons.report.evidence import MIN_PAIRS, Evidence, average, number, pool
from qneurons.report.inference import ALPHA, Estimate, estimate, holm
from qneurons.report.statistics import Cell, is_q
from qneurons.report.verdicts import OPEN, Claim, Number, Verdict

LINEAR = ("relu", "leaky_relu", "identity")  # f'(x)x = f(x): the limit is base itself

LEAST = 0.02  # share of base's error: a part of the average gain below it is none

QUESTION = Claim(
    "noise-or-limit",
    "Where does a gain come from: the noise in q, or the activation f'(x)x that q tends to?",
    "The gain in test accuracy of q over base is the sum of limit over base (the limit's part) and "
    "q over limit (the noise's part). Each is taken by seed as a share of base's error, averaged "
    "over the q settings and over all cells with curved activations that have base, limit and q. "
    "A part has no gain if its 95 % interval ends below 2 % of base's error (many cells make a "
    "trifle significant) or it is significantly negative; else it gains if it is positive with "
    "p ≤ 0.05 (Holm over the two). The answer is the limit, the noise, both or neither; it is not "
    "decided where a part is neither.",
)
QUESTION_ANSWERS = ("the limit", "the noise", "both", "neither", OPEN)


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
            base, limit, q = _common(evidence, cell, ["base", "limit", setting])
            found.append(
                Decomposition(
                    cell, setting, estimate(q - base), estimate(limit - base), estimate(q - limit)
                )
            )
    return found


def judge_question(evidence: Evidence) -> Verdict:
    cells = [cell for cell in _cells(evidence) if cell.activation not in LINEAR]
    if not cells:
        lacking = ("a cell of a curved activation with base, limit and a q setting",)
        return Verdict(QUESTION, OPEN, f"These data lack {lacking[0]}.", missing=lacking)
    by_cell = [_parts(evidence, cell) for cell in cells]
    (limit, limit_p), (noise, noise_p), (total, total_p) = (
        pool(part, family=2) for part in zip(*by_cell, strict=True)
    )
    n = min(limit.n, noise.n)
    if n < MIN_PAIRS:
        lacking = (f"seeds: there are {n} of the {MIN_PAIRS} that the answer needs",)
        return Verdict(QUESTION, OPEN, f"These data lack {lacking[0]}.", missing=lacking)
    adjusted = holm([limit_p, noise_p])
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
    reason = (
        f"Over {len(cells)} cell{'s' * (len(cells) > 1)} and {n} seeds, in shares of base's error, "
        f"the limit's part is {_share(limit)} ({limit_gain}), "
        f"the noise's part {_share(noise)} ({noise_gain})"
        + (f"; {diverged} diverged runs are in neither." if diverged else ".")
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


def _common(evidence: Evidence, cell: Cell, settings: list[str]) -> list[NDArray[np.float64]]:
    values = [evidence.final(cell, setting).values for setting in settings]
    seeds = sorted(set.intersection(*(set(v) for v in values)))
    return [np.array([v[seed] for seed in seeds]) for v in values]


Sample = dict[int, float]


def _parts(evidence: Evidence, cell: Cell) -> tuple[Sample, Sample, Sample]:
    """limit - base, q - limit and q - base by seed, q averaged over settings, by base's error."""
    scale = evidence.scale(cell, evidence.final(cell, "base").metric)

    def share(setting: str, reference: str) -> Sample:
        gains = evidence.gains_by_seed(evidence.contrast(cell, setting, reference))
        return {seed: gain / scale for seed, gain in gains.items()}

    q = _q_settings(evidence, cell)
    return (
        share("limit", "base"),
        average(share(setting, "limit") for setting in q),
        average(share(setting, "base") for setting in q),
    )


def _gain(part: Estimate, p: float) -> str:
    if part.high < LEAST or (p <= ALPHA and part.mean < 0):
        return "no gain"
    return "gain" if p <= ALPHA else "unclear"


def _share(part: Estimate) -> str:
    return f"{part.mean:+.1%} ({part.low:+.1%} to {part.high:+.1%})"
