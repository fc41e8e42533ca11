"""The noise or the limit? The gain of q over base as (limit - base) + (q - limit)."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from qneurons.report.claims.verdicts import LINEAR, OPEN, Claim, Verdict
from qneurons.report.comparisons import MIN_PAIRS, Cell, is_q
from qneurons.report.evidence import Evidence, pool
from qneurons.report.inference import ALPHA, Estimate, estimate, holm, paired_test
from qneurons.report.numbers import Number, number

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


class Source(NamedTuple):
    """Where gains come from on average over some cells: shares of base's error, by seed."""

    answer: str  # "the limit", "the noise", "both", "neither" or OPEN
    gains: tuple[str, str]  # of the limit's part and of the noise's
    total: Number
    limit: Number
    noise: Number
    words: str  # the two parts
    num_seeds: int
    lost: str  # what was left out for missing runs


def find_source(evidence: Evidence, cells: Iterable[Cell]) -> Source:
    pooled = pool(_shares(evidence, cell, q) for cell in cells for q in _q_settings(evidence, cell))
    parts = pooled.values.reshape(-1, 3).T
    total, limit, noise = map(estimate, parts)
    total_p, *tested = (paired_test(part, family=2)[1] for part in parts)
    limit_p, noise_p = holm(tested)
    gains = _gain(limit, limit_p), _gain(noise, noise_p)
    answer = {
        ("gain", "no gain"): "the limit",
        ("no gain", "gain"): "the noise",
        ("gain", "gain"): "both",
        ("no gain", "no gain"): "neither",
    }.get(gains, OPEN)
    return Source(
        answer,
        gains,
        number("q over base, share of base's error", total, total_p, unit="%"),
        number("limit over base, share of base's error", limit, limit_p, unit="%"),
        number("q over limit, share of base's error", noise, noise_p, unit="%"),
        f"the limit's part is {_share(limit)} ({gains[0]}), "
        f"the noise's part {_share(noise)} ({gains[1]})",
        len(pooled.values),
        pooled.lost,
    )


def curved_cells(evidence: Evidence) -> tuple[list[Cell], list[Cell]]:
    """Cells that can answer: those of which every run learns something, and the others."""
    curved = [cell for cell in _cells(evidence) if cell.activation not in LINEAR]
    return (
        [cell for cell in curved if not evidence.untrained(cell)],
        [cell for cell in curved if evidence.untrained(cell)],
    )


def judge_question(evidence: Evidence) -> Verdict:
    cells, left_out = curved_cells(evidence)
    if not cells:
        learning = ", all of whose runs learn something" if left_out else ""
        lacking = (f"a cell of a curved activation with base, limit and a q setting{learning}",)
        return Verdict(QUESTION, OPEN, f"These data lack {lacking[0]}.", missing=lacking)
    found = find_source(evidence, cells)
    if (n := found.num_seeds) < MIN_PAIRS:
        lacking = (f"seeds: there are {n} of the {MIN_PAIRS} that the answer needs",)
        return Verdict(QUESTION, OPEN, f"These data lack {lacking[0]}.", missing=lacking)
    diverged = sum(
        len(final.diverged)
        for (metric, cell, _), final in evidence.finals.items()
        if metric == "test_accuracy" and cell in cells
    )
    reason = (
        f"Over {len(cells)} cell{'s' * (len(cells) > 1)} and {n} seeds, in shares of base's error, "
        f"{found.words}"
        + (f"; {diverged} diverged runs are in neither" if diverged else "")
        + (f"; {found.lost}" if found.lost else "")
        + "."
    )
    if left_out:
        whole = find_source(evidence, [*cells, *left_out])
        reason += (
            f" Without {'; '.join(map(str, left_out))}, where runs learn nothing: with it "
            f"{whole.words}, that is {whole.answer}."
        )
    numbers = (found.total, found.limit, found.noise, Number("diverged runs", diverged))
    return Verdict(QUESTION, found.answer, reason, numbers)


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


def _gain(part: Estimate, p: float) -> str:
    if part.high < LEAST or (p <= ALPHA and part.mean < 0):
        return "no gain"
    return "gain" if p <= ALPHA else "unclear"


def _share(part: Estimate) -> str:
    return f"{part.mean:+.1%} ({part.low:+.1%} to {part.high:+.1%})"
