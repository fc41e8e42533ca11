"""Claims, verdicts and their numbers."""

import pytest

pytest.importorskip("polars")
pytest.importorskip("scipy")

from qneurons.report.claims.verdicts import OPEN, Claim, Number, undecided
from qneurons.report.inference import estimate


def test_numbers_with_a_unit_are_hundredths():
    value = estimate([0.01, 0.02, 0.03])
    assert Number.of("a", value, unit="pp").value == pytest.approx(2.0)
    assert Number.of("a", value).value == pytest.approx(0.02)
    assert Number.of("a", value, 0.5, unit="%").high == pytest.approx(100 * value.high)


def test_what_is_missing_is_named_and_leaves_a_claim_open():
    found = undecided(
        Claim("id", "It helps.", "By counting."), ["3 seeds", "base"], [Number("n", 1)]
    )
    assert (found.answer, found.missing, len(found.numbers)) == (OPEN, ("3 seeds", "base"), 1)
    assert "3 seeds; base" in found.reason
