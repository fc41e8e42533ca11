"""A claim, the verdict on it, and the numbers of a verdict."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from qneurons.report.inference import Estimate

HOLDS, FAILS, OPEN = ANSWERS = ("holds", "does not hold", "not decided by these data")


@dataclass(frozen=True)
class Number:
    """A number of a verdict, in its unit: "%", "pp" for percentage points, or none."""

    label: str
    value: float
    low: float = math.nan
    high: float = math.nan
    p: float = math.nan
    unit: str = ""

    @classmethod
    def of(cls, label: str, mean: Estimate, p: float = math.nan, *, unit: str = "") -> "Number":
        """An estimate with its interval; with a unit, shares become hundredths."""
        factor = 100 if unit else 1
        return cls(label, factor * mean.mean, factor * mean.low, factor * mean.high, p, unit)


@dataclass(frozen=True)
class Claim:
    """A claim of the paper in our words, and the rule by which it is judged."""

    id: str
    statement: str
    rule: str


@dataclass(frozen=True)
class Verdict:
    """The answer to a claim, with its numbers and what the data lack to decide it."""

    claim: Claim
    answer: str
    reason: str
    numbers: tuple[Number, ...] = ()
    missing: tuple[str, ...] = ()


def undecided(claim: Claim, missing: Sequence[str], numbers: Sequence[Number] = ()) -> Verdict:
    reason = f"These data lack {'; '.join(missing)}."
    return Verdict(claim, OPEN, reason, tuple(numbers), tuple(missing))
