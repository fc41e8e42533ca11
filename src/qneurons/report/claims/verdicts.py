"""A claim, and the verdict on it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from qneurons.report.rendering import Number

# The last two are answers of data that are not complete: what is missing cannot change them.
HOLDS, FAILS, OPEN, CANNOT_HOLD, CANNOT_FAIL = ANSWERS = (
    *("holds", "does not hold", "undecided"),
    *("can no longer hold", "can no longer fail"),
)


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
    graded: tuple[str, ...]  # lines: how many cases have the claim's sign, and the mean effect
    reason: str  # the strict count
    numbers: tuple[Number, ...] = ()
    missing: tuple[str, ...] = ()
    # By part of the claim: how many cases are for it, against it, unclear and missing.
    cases: Mapping[str, Mapping[str, int]] = field(default_factory=dict)

    @property
    def is_undecided(self) -> bool:
        return self.answer in (OPEN, CANNOT_HOLD, CANNOT_FAIL)


def lack(missing: Sequence[str]) -> str:
    return f"These data lack {'; '.join(missing)}."
