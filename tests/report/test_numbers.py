"""Numbers as pages show them."""

import math

import pytest

pytest.importorskip("scipy")

from qneurons.report.inference import estimate
from qneurons.report.numbers import Number, number


def test_shares_become_percentages_and_losses_stay():
    mean = estimate([0.1, 0.2, 0.3])
    share, loss = number("gain", mean, 0.03, unit="pp"), number("loss", mean)
    assert share.value == pytest.approx(20.0)
    assert (share.low, share.high) == pytest.approx((100 * mean.low, 100 * mean.high))
    assert (share.p, share.unit) == (0.03, "pp")
    assert loss.value == pytest.approx(0.2)
    assert math.isnan(loss.p)


def test_a_bare_number_has_no_interval():
    assert math.isnan(Number("runs", 3).low)
