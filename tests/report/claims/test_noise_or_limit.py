"""The parts of the noise and of the limit, in each cell and on average."""

import pytest

pytest.importorskip("polars")
pytest.importorskip("scipy")

from qneurons.report.claims import noise_or_limit
from qneurons.report.claims.noise_or_limit import QUESTION, decompose, judge_question
from qneurons.report.claims.verdicts import OPEN
from qneurons.report.comparisons import Cell
from qneurons.report.inference import Estimate
from qneurons.report.results import Results

ELU = Cell("digits", "mnist-mlp", False, "elu")
RELU = ELU._replace(activation="relu")


def both(cell, setting):
    """2 points of the limit and 1 of the noise."""
    return 0.002 * (setting != "base") + 0.001 * (setting[0] in "ca")


def test_the_parts_sum_to_the_gain(make_frame):
    rows = decompose(Results(make_frame(cells=[ELU], gain=both, noise=1e-4)))
    assert [row.setting for row in rows] == ["c0.02", "c0.1", "a1", "a5", "a9"]
    for row in rows:
        assert row.total.mean == pytest.approx(row.limit.mean + row.noise.mean, abs=1e-15)
        assert row.limit.low < 0.002 < row.limit.high
        assert row.total.n == 10


def test_only_seeds_that_have_all_three_are_taken(make_frame):
    frame = make_frame(cells=[ELU], incomplete={("limit", 2): 1, ("a1", 4): 1})
    seeds = {row.setting: row.limit.n for row in decompose(Results(frame))}
    assert seeds == {"c0.02": 9, "c0.1": 9, "a1": 8, "a5": 9, "a9": 9}


@pytest.mark.parametrize("settings", [("base", "a1"), ("limit", "a1"), ("base", "limit")])
def test_without_one_of_the_three_there_is_no_answer(make_frame, settings):
    results = Results(make_frame(settings=settings))
    assert decompose(results) == []
    found = judge_question(results)
    assert found.answer == OPEN
    assert found.missing == ("a cell of a curved activation with base, limit and a q setting",)


def test_relu_says_nothing_for_its_limit_is_itself(make_frame):
    results = Results(make_frame(cells=[RELU], gain=both))
    assert judge_question(results).answer == OPEN
    assert len(decompose(results)) == 5  # shown all the same
    mixed = Results(make_frame(cells=[ELU, RELU], gain=both))
    assert judge_question(mixed).reason.startswith("Over 1 cell and")


def test_numbers_are_shares_of_bases_error(make_frame):
    results = Results(make_frame(gain=both, noise=1e-4, spread=1e-4))  # an error of 2 %
    total, limit, noise, diverged = judge_question(results).numbers
    assert limit.value == pytest.approx(10, abs=1)
    assert noise.value == pytest.approx(5, abs=1)
    assert total.value == pytest.approx(limit.value + noise.value)
    assert {n.unit for n in (total, limit, noise)} == {"%"}
    assert limit.low < 10 < limit.high
    assert diverged.value == 0


def test_a_significant_trifle_is_no_answer(make_frame):
    def trifle(cell, setting):
        return 1e-4 * (setting != "base") + 0.004 * (setting[0] in "ca")  # 0.5 % of the error

    found = judge_question(Results(make_frame(gain=trifle, noise=2e-5)))
    assert found.numbers[1].p <= 0.05
    assert found.answer == "the noise"


def test_harm_is_no_gain(make_frame):
    harmful = {
        "limit": -0.004,
        "c0.1": 0.004,
        "c0.02": 0.004,
        "a1": 0.004,
        "a5": 0.004,
        "a9": 0.004,
    }
    assert judge_question(Results(make_frame(gain=harmful))).answer == "the noise"


def test_a_cell_with_runs_that_learn_nothing_is_left_out_and_told_of(make_frame):
    lost = ELU._replace(activation="tanh")

    def effect(size):
        return lambda cell, setting: size if (cell, setting) == (lost, "limit") else 0

    cells = {"cells": [ELU, lost], "loss_gain": effect(-2.3)}
    frame = make_frame(gain=lambda *case: both(*case) + effect(-0.88)(*case), **cells)
    found = judge_question(Results(frame))
    assert found.answer == "both"
    assert found.reason.startswith("Over 1 cell and 10 seeds")
    assert "leaves out mnist-mlp on digits, tanh, no dropout" in found.reason
    assert "the limit's part is -21" in found.reason
    assert found.reason.endswith("the noise.")
    alone = judge_question(Results(make_frame(**cells | {"cells": [lost]})))
    assert alone.answer == OPEN
    assert "every run learns something" in alone.missing[0]


def test_diverged_runs_are_told_of_and_cost_their_setting_no_seed(make_frame):
    diverged = {("a9", seed): 2 for seed in range(4)}
    cells = [ELU, ELU._replace(activation="tanh"), RELU]  # 4 runs diverge in each
    found = judge_question(Results(make_frame(cells=cells, gain=both, diverged=diverged)))
    assert "10 seeds" in found.reason
    assert "8 diverged runs" in found.reason
    assert "2 of 10 cases left out" in found.reason
    assert found.answer == "both"


@pytest.mark.parametrize(
    ("mean", "high", "p", "gain"),
    [
        (0.03, 0.05, 0.01, "gain"),
        (0.03, 0.05, 0.05, "gain"),
        (0.03, 0.05, 0.06, "unclear"),
        (0.0, 0.03, 0.5, "unclear"),  # 3 % of base's error may be worth having
        (0.01, 0.019, 0.01, "no gain"),  # significant, but below 2 %
        (-0.1, 0.1, 0.05, "no gain"),
        (-0.1, 0.1, 0.06, "unclear"),
    ],
)
def test_the_rule_of_one_part(mean, high, p, gain):
    assert noise_or_limit._gain(Estimate(10, mean, 0.1, 2 * mean - high, high), p) == gain


def test_both_parts_are_corrected_for_two_tests(make_frame):
    _, limit, noise, _ = judge_question(Results(make_frame(seeds=7, gain=both, noise=1e-5))).numbers
    assert limit.p == noise.p == 2 * 2**-6  # the exact test of 7 pairs, twice


def test_three_seeds_are_enough_and_nothing_is_left_out_of_cells_that_learn(make_frame):
    found = judge_question(Results(make_frame(seeds=3, gain=both, noise=1e-5)))
    assert found.missing == ()
    assert "3 seeds" in found.reason
    assert "leaves out" not in found.reason


def test_two_seeds_are_too_few(make_frame):
    found = judge_question(Results(make_frame(seeds=2, gain=both, noise=0)))
    assert (found.answer, found.numbers) == (OPEN, ())
    assert "seeds: there are 2 of the 3" in found.missing[0]
    assert found.claim is QUESTION
