"""A number as pages show it: with a label, a unit, an interval and p."""

import math
from dataclasses import dataclass

from qneurons.report.inference import Estimate


@dataclass(frozen=True)
class Number:
    """A number of a verdict, in its unit ("%", "pp" for percentage points, or none)."""

    label: str
    value: float
    low: float = math.nan
    high: float = math.nan
    p: float = math.nan
    unit: str = ""


def number(label: str, mean: Estimate, p: float = math.nan, *, unit: str = "") -> Number:
    """An estimate as a number of a verdict; shares become percentages."""
    factor = 100 if unit else 1
    return Number(label, factor * mean.mean, factor * mean.low, factor * mean.high, p, unit)
