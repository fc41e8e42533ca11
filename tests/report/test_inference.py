"""Intervals, tests and corrections: against scipy, by hand, and under simulated nulls."""

import math

import numpy as np
import pytest

pytest.importorskip("polars")
stats = pytest.importorskip("scipy.stats")

from qneurons.report.inference import (
    estimate,
    holm,
    paired_test,
    paired_tests,
    sign_flip,
)

VALUES = np.array([0.9, 1.4, -0.2, 0.7, 1.1, 0.3, 2.0])


def test_estimate_is_scipys_t_interval():
    found = estimate(VALUES)
    low, high = stats.ttest_1samp(VALUES, 0).confidence_interval(0.95)
    assert (found.low, found.high) == pytest.approx((low, high), rel=1e-12)
    assert (found.n, found.mean) == (7, pytest.approx(VALUES.mean()))
    assert found.sd == pytest.approx(np.std(VALUES, ddof=1))


@pytest.mark.parametrize("values", [[1.0, 2.0], [1.0, 2.0, 4.0]])
def test_two_values_are_enough_for_an_interval(values):
    low, high = stats.ttest_1samp(values, 0).confidence_interval(0.95)
    assert (estimate(values).low, estimate(values).high) == pytest.approx((low, high), rel=1e-12)


def test_interval_by_hand():
    found = estimate([1.0, 2.0, 3.0])  # sd 1, t(0.975, 2) = 4.302653
    assert found.high - found.mean == pytest.approx(4.302653 / math.sqrt(3), rel=1e-6)


@pytest.mark.parametrize(("values", "mean"), [([], math.nan), ([0.3], 0.3)])
def test_too_few_values_have_no_interval(values, mean):
    found = estimate(values)
    assert found.n == len(values)
    assert found.mean == pytest.approx(mean, nan_ok=True)
    assert all(map(math.isnan, (found.sd, found.low, found.high)))


def test_negation_turns_the_interval_round():
    found, turned = estimate(VALUES), -estimate(VALUES)
    assert (turned.low, turned.mean, turned.high) == (-found.high, -found.mean, -found.low)
    assert (turned.n, turned.sd) == (found.n, found.sd)


@pytest.mark.parametrize("n", [2, 5, 9])
def test_sign_flip_is_scipys_exact_permutation_test(n):
    values = np.random.default_rng(n).normal(0.5, 1, size=n)
    exact = stats.permutation_test(
        (values,), np.mean, permutation_type="samples", n_resamples=np.inf, vectorized=True
    )
    assert sign_flip(values) == pytest.approx(exact.pvalue, rel=1e-12)


def test_sign_flip_by_hand():
    # |sum| >= 6 of ±1 ±2 ±3: both all-plus and all-minus, of 8; >= 4 adds -1 and its mirror.
    assert sign_flip(np.array([1.0, 2.0, 3.0])) == 2 / 8
    assert sign_flip(np.array([-1.0, 2.0, 3.0])) == 4 / 8


def test_ties_do_not_hang_on_rounding():
    images = np.array([3, 1, -1, 2, 2, 1])  # differences of counts of images
    assert sign_flip(images / 10_000 * 1.0000001) == sign_flip(images.astype(float))
    shifted = (0.9812 + images / 597) - 0.9812
    assert sign_flip(shifted) == sign_flip(images.astype(float))


@pytest.mark.parametrize(
    ("pairs", "family", "test"),
    [
        (10, 11, "sign-flip"),
        (9, 11, "sign-flip"),
        (8, 11, "paired t"),  # 2^-7 · 11 > 0.05: the exact test could never reach the level
        (5, 1, "paired t"),
        (6, 1, "sign-flip"),
        (16, 11, "sign-flip"),
        (17, 11, "paired t"),
        (10, 264, "paired t"),
    ],
)
def test_choice_of_test_depends_on_counts_alone(pairs, family, test):
    values = np.random.default_rng(0).normal(size=pairs)
    for shift in (0.0, 100.0):
        assert paired_test(values + shift, family)[0] == test


def test_paired_t_is_scipys():
    for pairs in (2, 5, 20):
        a, b = np.random.default_rng(1).normal(size=(2, pairs))
        expected = pytest.approx(stats.ttest_rel(a, b).pvalue, rel=1e-12)
        assert paired_test(a - b) == ("paired t", expected)


def test_alone_a_test_needs_no_correction():
    values = np.random.default_rng(0).normal(size=6)  # 2^-5 is below 0.05, twice 2^-5 is not
    assert [paired_test(values, *family)[0] for family in ((), (2,))] == ["sign-flip", "paired t"]


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([], ("none", 1.0)),
        ([0.4], ("none", 1.0)),
        ([0.0] * 5, ("sign-flip", 1.0)),
        ([0.0] * 20, ("paired t", 1.0)),
        ([0.1 + 1e-17] * 3, ("sign-flip", 0.25)),  # no spread: t would be infinite
        ([0.1] * 20, ("paired t", 2.0**-19)),
    ],
)
def test_degenerate_differences_have_a_well_defined_p(values, expected):
    assert paired_test(np.array(values), 11) == expected


def test_holm_by_hand():
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.5, 0.9]) == holm([0.7, 0.9]) == [1.0, 1.0]
    assert holm([]) == []


@pytest.mark.parametrize(("pairs", "family"), [(10, 11), (5, 7), (20, 3)])
def test_false_positives_stay_below_the_level(pairs, family):
    generator = np.random.default_rng(7)
    wrong = 0
    for _ in range(200):
        base = generator.normal(size=pairs)  # shared by the family, as in a cell
        differences = generator.normal(size=(family, pairs)) - base
        wrong += min(paired_tests(differences)) <= 0.05
    assert wrong / 200 <= 0.05 + 3 * math.sqrt(0.05 * 0.95 / 200)


def test_false_positives_of_one_test_are_near_the_level():
    generator = np.random.default_rng(8)
    wrong = sum(paired_test(d)[1] <= 0.05 for d in generator.normal(size=(2000, 10)))
    assert 0.035 < wrong / 2000 < 0.065


@pytest.mark.parametrize("pairs", [5, 10])
def test_a_real_effect_is_found(pairs):
    generator = np.random.default_rng(9)
    found = [
        holm([paired_test(d, 11)[1] for d in generator.normal(size=(11, pairs)) + effect])
        for effect in [np.r_[6.0, np.zeros(10)][:, None]]
        for _ in range(50)
    ]
    assert np.mean([p[0] <= 0.05 for p in found]) > 0.9
