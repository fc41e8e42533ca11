"""The parts of the noise and of the limit, in each cell and on average."""

import numpy as np
import pytest

pl = pytest.importorskip("polars")
stats = pytest.importorskip("scipy.stats")

from qneurons.report import inference
from qneurons.report.claims.noise_or_limit import (
    DIFFERS,
    QUESTION,
    attributions,
    decompose,
    judge_part,
    judge_question,
    split_by_mean,
)
from qneurons.report.claims.verdicts import OPEN
from qneurons.report.final_values import Cell
from qneurons.report.inference import Estimate, sign_flip
from qneurons.report.results import Results

ELU = Cell("digits", "mnist-mlp", False, "elu")
TANH = ELU._replace(activation="tanh")
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
    assert [group.where for group in attributions(mixed)] == ["elu without dropout"]


def test_parts_are_points_by_activation_and_dropout(make_frame):
    cells = [ELU, ELU._replace(dropout=True), TANH, TANH._replace(network="mnist-cnn")]
    results = Results(make_frame(cells=cells, gain=both, noise=1e-4))
    *groups, average = attributions(results)
    assert [(group.where, group.cells) for group in groups] == [
        ("elu without dropout", 1),
        ("elu with dropout", 1),
        ("tanh without dropout", 2),
    ]
    assert (average.where, average.cells) == ("all of these", 4)
    for group in (*groups, average):
        assert group.total.mean == pytest.approx(group.limit.mean + group.noise.mean)
        assert group.limit.low < 0.002 < group.limit.high
        assert group.noise.mean == pytest.approx(0.001, abs=2e-4)
    q = ("c0.02", "c0.1", "a1", "a5", "a9")
    by_seed = [
        np.mean(
            [
                results.differences(cell, s, "limit", "test_accuracy")[k]
                for s in q
                for cell in cells[2:]
            ]
        )
        for k in range(10)
    ]
    interval = stats.ttest_1samp(by_seed, 0).confidence_interval(0.95)
    noise = groups[2].noise
    assert (noise.mean, noise.low, noise.high) == pytest.approx((np.mean(by_seed), *interval))


def opposite(cell, setting):
    """The limit helps ELU and hurts tanh, which the noise helps."""
    if cell[3] == "elu":
        return 0.004 * (setting != "base")
    return {"base": 0.0, "limit": -0.004}.get(setting, 0.004)


def test_opposite_effects_are_not_averaged_away(make_frame):
    results = Results(make_frame(cells=[ELU, TANH], gain=opposite, noise=1e-4))
    found = judge_question(results)
    assert found.answer == DIFFERS
    assert found.graded == ("elu without dropout: the limit", "tanh without dropout: the noise")
    assert found.reason.startswith(
        "What gains, on average over cells: the limit for elu without dropout; the noise for tanh "
        "without dropout."
    )
    assert "The sign of the limit's part is + in 1 cells and - in 1, of the noise's" in found.reason
    *_, average = attributions(results)
    assert average.signs[0] == (1, 1)
    assert abs(average.limit.mean) < 1e-3


def test_an_answer_of_some_is_said_to_be_of_some(make_frame):
    def gain(cell, setting):
        return 0.004 * (cell[3] == "elu" and setting != "base")

    frame = make_frame(cells=[ELU, TANH], gain=gain, noise=1e-4)
    loud = pl.col("test_accuracy") + 0.01 * (pl.col("activation") == "tanh") * (
        (pl.col("seed") * 7 + pl.col("setting").str.len_bytes() * 5) % 3 - 1
    )
    found = judge_question(Results(frame.with_columns(loud)))
    assert found.answer == "the limit where it is decided"


def test_a_significant_trifle_is_no_answer(make_frame):
    def trifle(cell, setting):
        return 1e-4 * (setting != "base") + 0.004 * (setting[0] in "ca")  # 0.5 % of the error

    assert judge_question(Results(make_frame(gain=trifle, noise=2e-5))).answer == "the noise"


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


def test_settings_that_learn_nothing_are_left_out_and_told_of(make_frame):
    def lost(size, *settings):
        return lambda cell, setting: size * (cell[:4] == TANH[:4] and setting in settings)

    def world(*settings, cells=(ELU, TANH)):
        def gain(*case):
            return both(*case) + lost(-0.88, *settings)(*case)

        return Results(make_frame(cells=cells, gain=gain, loss_gain=lost(-2.3, *settings)))

    found = judge_question(world("limit", "c0.1"))
    assert (found.answer, found.graded) == ("both", ("elu without dropout: both",))
    assert "nothing: mnist-mlp on digits, tanh, no dropout (limit, c0.1)." in found.reason
    assert (
        "Were it included, the answer would be the noise for tanh without dropout." in found.reason
    )
    # one q setting is left out, its cell is not
    results = world("c0.1")
    assert [group.cells for group in attributions(results)] == [1, 1, 2]
    assert attributions(results)[1].noise.mean == pytest.approx(0.001, abs=3e-4)
    assert "would be the limit for tanh without dropout." in judge_question(results).reason
    alone = judge_question(world("limit", cells=[TANH]))
    assert alone.answer == OPEN
    assert alone.missing[0].endswith("that learn something")


def test_diverged_runs_are_told_of_and_cost_their_setting_no_seed(make_frame):
    diverged = {("a9", seed): 2 for seed in range(4)}
    cells = [ELU, TANH, RELU]  # 4 runs diverge in each
    results = Results(make_frame(cells=cells, gain=both, diverged=diverged))
    found = judge_question(results)
    assert "8 diverged runs are in no part." in found.reason
    assert [(g.total.n, g.lost[:28]) for g in attributions(results)] == [
        (10, "1 of 5 contrasts left out fo"),
        (10, "1 of 5 contrasts left out fo"),
        (10, "2 of 10 contrasts left out f"),
    ]
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
    assert judge_part(Estimate(10, mean, 0.1, 2 * mean - high, high), p, 0.02) == gain


@pytest.mark.parametrize(("seeds", "answer"), [(6, OPEN), (7, "both")])
def test_both_parts_are_corrected_for_two_tests(make_frame, monkeypatch, seeds, answer):
    """The exact test of 6 pairs reaches 2^-5, twice that is above 0.05."""
    monkeypatch.setattr(inference, "paired_test", lambda part, family: ("", sign_flip(part)))
    assert judge_question(Results(make_frame(seeds=seeds, gain=both, noise=1e-5))).answer == answer


def test_another_answer_of_the_last_epoch_is_told(make_frame):
    frame = make_frame(cells=[ELU], epochs=20, gain=both, noise=1e-5)
    late = (pl.col("epoch") == 20) & (pl.col("setting") == "limit")
    frame = frame.with_columns(pl.col("test_accuracy") + 0.001 * late)  # all but the noise's part
    found = judge_question(Results(frame))
    assert found.answer == "both"
    assert "At the last epoch alone it is the limit for elu without dropout." in found.reason
    assert "last epoch" not in judge_question(Results(make_frame(cells=[ELU], gain=both))).reason


def test_a_trained_mean_splits_off_the_noise_alone(make_frame):
    def gain(cell, setting):
        return {"base": 0.0, "limit": 0.001, "m5": 0.003, "a5": 0.002}[setting]

    settings = ("base", "limit", "m5", "a5")
    results = Results(make_frame(cells=[ELU, RELU], settings=settings, gain=gain, noise=1e-5))
    split = split_by_mean(results)
    assert [*split] == [(ELU, "a5"), (RELU, "a5")]
    noise, change, total = split[ELU, "a5"]
    assert [(row.setting, row.reference) for row in (noise, change, total)] == [
        ("a5", "m5"),
        ("m5", "limit"),
        ("m5", "base"),
    ]
    assert noise.difference.mean == pytest.approx(-0.001, abs=1e-5)
    assert change.difference.mean == pytest.approx(0.002, abs=1e-5)
    assert (
        "Of 2 cells and settings whose mean E[g_q(x)] was trained without noise: the noise alone "
        "(q − mean) gains in 0 and loses in 2, the mean's own change (mean − limit) gains in 2 and "
        "loses in 0, mean − base gains in 2 and loses in 0"
    ) in judge_question(results).reason


@pytest.mark.parametrize("settings", [("base", "limit", "a5"), ("base", "limit", "m9", "a5")])
def test_without_the_mean_of_its_q_nothing_is_said(make_frame, settings):
    results = Results(make_frame(cells=[ELU], settings=settings, gain=both))
    assert split_by_mean(results) == {}
    assert "without noise" not in judge_question(results).reason


def test_three_seeds_are_enough_and_nothing_is_left_out_of_cells_that_learn(make_frame):
    found = judge_question(Results(make_frame(seeds=3, gain=both, noise=1e-5)))
    assert found.missing == ()
    assert "leaves out" not in found.reason


def test_two_seeds_are_too_few(make_frame):
    found = judge_question(Results(make_frame(seeds=2, gain=both, noise=0)))
    assert (found.answer, found.numbers) == (OPEN, ())
    assert "seeds: there are 2 of the 3" in found.missing[0]
    assert found.claim is QUESTION
