"""The noise or the limit? Splits the gain of q over base into (limit - base) + (q - limit)."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from qneurons.report.claims.evidence import pool, scale
from qneurons.report.claims.grid import LINEAR
from qneurons.report.claims.verdicts import OPEN, Claim, Number, Verdict, undecided
from qneurons.report.comparisons import METRICS, MIN_PAIRS, Cell, is_q
from qneurons.report.inference import ALPHA, Estimate, estimate, holm, paired_test
from qneurons.report.results import Results

LEAST = 0.02  # share of base's error: a smaller part of the average gain counts as none

QUESTION = Claim(
    "noise-or-limit",
    "Where does a gain come from: the noise in q, or the activation f'(x)x that q tends to?",
    "The gain in test accuracy of q over base is the sum of limit over base (the limit's part) and "
    "q over limit (the noise's part). Each is computed by seed as a share of base's error and "
    "averaged over all q settings of all cells with a curved activation that have base, limit and "
    "q. A cell is left out if one of its runs ends no better than guessing: it would dominate the "
    "average. If runs are missing, settings and seeds are left out until every remaining setting "
    "has every remaining seed. A part has no gain if its 95 % interval ends below 2 % of base's "
    "error (with many cells even a tiny effect is significant), or if it is significantly "
    "negative. Otherwise it gains if it is positive with p ≤ 0.05 (Holm's correction over the two "
    "parts). The answer is the limit, the noise, both or neither. It is not decided if a part is "
    "unclear.",
)


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


class Attribution(NamedTuple):
    """What the average gain over some cells is attributed to, in shares of base's error."""

    answer: str  # "the limit", "the noise", "both", "neither" or OPEN
    gains: tuple[str, str]  # of the limit's part and of the noise's part
    numbers: tuple[Number, Number, Number]  # total, limit's part, noise's part
    words: str  # the two parts
    num_seeds: int
    lost: str  # what was left out for missing runs


def attribute_gain(results: Results, cells: Iterable[Cell]) -> Attribution:
    values, lost = pool(
        {seed: parts / error for seed, parts in _parts(results, cell, setting).items()}
        for cell in cells
        for error in [scale(results, cell, METRICS["test_accuracy"])]
        for setting in filter(is_q, results.settings(cell))
    )
    parts = values.reshape(-1, 3).T
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
    numbers = (
        Number.of("q over base, share of base's error", total, total_p, unit="%"),
        Number.of("limit over base, share of base's error", limit, limit_p, unit="%"),
        Number.of("q over limit, share of base's error", noise, noise_p, unit="%"),
    )
    words = (
        f"the limit's part is {_share(limit)} ({gains[0]}), "
        f"the noise's part {_share(noise)} ({gains[1]})"
    )
    return Attribution(answer, gains, numbers, words, len(values), lost)


def curved_cells(results: Results) -> tuple[list[Cell], list[Cell]]:
    """The cells of curved activations: those in which every run learns something, and the rest."""
    curved = [cell for cell in _cells(results) if cell.activation not in LINEAR]
    learning = [cell for cell in curved if not results.untrained(cell)]
    return learning, [cell for cell in curved if cell not in learning]


def judge_question(results: Results) -> Verdict:
    cells, left_out = curved_cells(results)
    if not cells:
        learning = " in which every run learns something" if left_out else ""
        lacking = f"a cell of a curved activation with base, limit and a q setting{learning}"
        return undecided(QUESTION, [lacking])
    found = attribute_gain(results, cells)
    if (n := found.num_seeds) < MIN_PAIRS:
        return undecided(QUESTION, [f"seeds: there are {n} of the {MIN_PAIRS} that are needed"])
    diverged = sum(len(f.diverged) for f in results.finals["test_accuracy"] if f.cell in cells)
    reason = (
        f"Over {len(cells)} cell{'s' * (len(cells) > 1)} and {n} seeds, in shares of base's error, "
        f"{found.words}"
        + (f"; {diverged} diverged runs are in neither" if diverged else "")
        + (f"; {found.lost}" if found.lost else "")
        + "."
    )
    if left_out:
        whole = attribute_gain(results, [*cells, *left_out])
        reason += (
            f" This leaves out {'; '.join(map(str, left_out))}, where runs learn nothing. With it, "
            f"{whole.words}; the answer would be {whole.answer}."
        )
    numbers = (*found.numbers, Number("diverged runs", diverged))
    return Verdict(QUESTION, found.answer, reason, numbers)


def _cells(results: Results) -> list[Cell]:
    return [
        cell
        for cell in results.cells
        if {"base", "limit"} <= set(results.settings(cell))
        and any(map(is_q, results.settings(cell)))
    ]


def _parts(results: Results, cell: Cell, setting: str) -> dict[int, NDArray[np.float64]]:
    """q - base, limit - base and q - limit by seed."""
    base, limit, q = (results.final(cell, s).values for s in ("base", "limit", setting))
    return {
        seed: np.array([q[seed] - base[seed], limit[seed] - base[seed], q[seed] - limit[seed]])
        for seed in sorted(base.keys() & limit.keys() & q.keys())
    }


def _gain(part: Estimate, p: float) -> str:
    if part.high < LEAST or (p <= ALPHA and part.mean < 0):
        return "no gain"
    return "gain" if p <= ALPHA else "unclear"


def _share(part: Estimate) -> str:
    return f"{part.mean:+.1%} ({part.low:+.1%} to {part.high:+.1%})"
