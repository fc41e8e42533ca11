"""How many cases decide a claim, and what is said of those that lack."""

import re
from collections import Counter
from dataclasses import replace

import pytest

pl = pytest.importorskip("polars")
pytest.importorskip("scipy")

from qneurons.report.claims.counting import Count, decide, joint, judge_cases, settle
from qneurons.report.claims.paper import CLAIMS
from qneurons.report.claims.verdicts import CANNOT_FAIL, CANNOT_HOLD, FAILS, HOLDS, OPEN
from qneurons.report.results import Results

BETTER, RELU, _, ANNEALING, UNDERFIT, DROPOUT, *_ = CLAIMS
EFFECTS = {"gain": 0.003, "loss_gain": 0.01}


@pytest.fixture
def make_paper(make_frame, paper_cells):
    def make(**options):
        return make_frame(**{"cells": paper_cells, "epochs": 100, "every": 50, **options})

    return make


def counts(verdict):
    return {n.label.removeprefix("cases "): n.value for n in verdict.numbers if "cases" in n.label}


@pytest.mark.parametrize(
    ("yes", "no", "answer"),
    [(15, 5, HOLDS), (14, 5, OPEN), (14, 6, FAILS), (0, 5, OPEN), (0, 6, FAILS), (20, 0, HOLDS)],
)
def test_the_rule_of_three_quarters(yes, no, answer):
    assert decide(yes, no, 20, 0.75) == answer


def test_a_quarter_is_enough_for_may():
    assert decide(6, 18, 24, 0.25) == HOLDS
    assert decide(5, 19, 24, 0.25) == FAILS
    assert decide(5, 18, 24, 0.25) == OPEN


def test_holding_and_failing_exclude_each_other():
    for claimed in range(1, 30):
        for yes in range(claimed + 1):
            answer = decide(yes, claimed - yes, claimed, 0.75)
            assert answer == (HOLDS if yes >= 0.75 * claimed else FAILS)


def test_nothing_claimed_decides_nothing():
    assert decide(0, 0, 0, 0.75) == OPEN


def test_claims_of_parts():
    assert joint([HOLDS, HOLDS]) == HOLDS
    assert joint([HOLDS, OPEN]) == OPEN
    assert joint([OPEN, FAILS]) == FAILS


def count(yes, no, unclear, *, pending=0, claimed=20):
    """``pending`` of the unclear cases lack seeds."""
    answers = Counter({"for": yes, "against": no, "unclear": unclear})
    return Count(claimed, 0.75, answers, answers - Counter({"unclear": pending}))


@pytest.mark.parametrize(
    ("counted", "answer"),
    [
        (count(15, 0, 0), HOLDS),
        (count(0, 6, 0), FAILS),
        (count(10, 5, 0), OPEN),  # five are missing: 15 for it, or 10 against it
        (count(10, 5, 1), CANNOT_HOLD),
        (count(14, 3, 1), CANNOT_FAIL),  # two are missing: 16 for it, or 5 against it
        (count(10, 4, 6), OPEN),  # nothing is missing, nothing decides
        (count(10, 4, 6, pending=5), OPEN),
        (count(10, 4, 6, pending=4), CANNOT_HOLD),
        (count(14, 4, 2, pending=1), CANNOT_FAIL),
    ],
)
def test_what_the_missing_cases_can_still_bring(counted, answer):
    assert settle([counted]) == answer


def test_what_the_missing_cases_can_bring_to_a_claim_of_parts():
    undecided, doomed, safe = count(10, 5, 0), count(10, 5, 1), count(14, 3, 1)
    assert settle([undecided, doomed]) == CANNOT_HOLD
    assert settle([undecided, safe]) == OPEN
    assert settle([safe, count(15, 0, 5)]) == CANNOT_FAIL
    assert settle([doomed, count(0, 6, 0)]) == FAILS


@pytest.mark.parametrize(("options", "settled"), [({}, True), ({"seeds": 9}, False)])
def test_cells_that_lack_seeds_or_epochs_may_still_change(
    make_paper, paper_cells, options, settled
):
    """Eight cells in which nothing is clear are enough to refute it, once they are complete."""
    mlp = [cell for cell in paper_cells if cell[1] == "mnist-mlp"]
    loud = {"cells": mlp, "noise": 0.02, "loss_noise": 0.05}
    found = judge_cases(BETTER, Results(make_paper(**loud, **options)))
    assert found.answer == (CANNOT_HOLD if settled else OPEN)
    possible = f"of the first kind (at most {60 if settled else 90} are possible)"
    assert f"needs 68 {possible}" in found.reason
    assert ("refute it (at most 90 are possible)" in found.reason) != settled
    short = judge_cases(BETTER, Results(make_paper(**loud, **options, epochs=99, every=33)))
    assert short.answer == OPEN


def test_relu_at_small_lambdas_is_the_noise_floor_and_no_case(make_paper):
    gain = {"limit": 0.05, "c0.02": 0.05, "c0.1": 0.05}  # of no consequence
    found = judge_cases(RELU, Results(make_paper(gain=gain)))
    assert counts(found) == {"claimed": 18, "for": 18, "against": 0, "unclear": 0, "missing": 0}
    floor = [line for line in found.graded if line.startswith("the noise floor")]
    assert "test accuracy is lower in 0 of 6 cases, and the mean difference is +4.99" in floor[0]
    assert not any(
        "noise floor" in line for line in judge_cases(BETTER, Results(make_paper())).graded
    )


def test_another_answer_without_settings_that_learn_nothing_is_told(make_paper):
    """Eight cases in which the training fails refute the claim, and nothing else does."""

    def loss_gain(cell, setting):
        return -2.3 if (cell[1], setting) == ("mnist-cnn", "a9") else 0.01 * (setting != "base")

    lost = make_paper(gain=EFFECTS["gain"], loss_gain=loss_gain)
    told = "Without cases in which a setting learns nothing: "
    found = judge_cases(replace(BETTER, share=0.95), Results(lost))
    assert found.answer == FAILS
    assert found.reason.endswith(f"{told}{OPEN}, 84 for it and 0 against it.")
    assert told not in judge_cases(BETTER, Results(lost)).reason  # the same answer


def test_the_last_epoch_is_judged_beside(make_paper):
    frame = make_paper(every=5, **EFFECTS)
    late = (pl.col("epoch") == 100) & pl.col("setting").str.contains("^[ca]")
    frame = frame.with_columns(pl.col("test_accuracy") - 0.02 * late)
    found = judge_cases(BETTER, Results(frame))  # of the epochs 95 and 100
    assert found.answer == FAILS
    assert "At the last epoch alone: does not hold, 0 for it and 90 against it." in found.reason
    frame = frame.with_columns(pl.col("test_accuracy") + 0.016 * late)  # 0.001 worse at the last
    found = judge_cases(BETTER, Results(frame))
    assert found.answer == HOLDS
    assert "At the last epoch alone: does not hold, 0 for it and 90 against it." in found.reason


def test_missing_cases_count_among_the_claimed(make_paper, paper_cells):
    mlp = [cell for cell in paper_cells if cell[1] == "mnist-mlp"]
    found = judge_cases(BETTER, Results(make_paper(cells=mlp, **EFFECTS)))
    assert found.answer == OPEN
    assert counts(found) == {"claimed": 90, "for": 30, "against": 0, "unclear": 0, "missing": 60}
    assert found.missing == (
        "30 of 30 cases of mnist-cnn on mnist",
        "30 of 30 cases of cifar-cnn on cifar10",
    )
    for part in ("90 cases 30 gain", "needs 68", "23 of the second refute", "60 are missing"):
        assert part in found.reason


def test_a_part_of_the_paper_can_refute_a_claim_about_almost_all(make_paper, paper_cells):
    mlp = [cell for cell in paper_cells if cell[1] == "mnist-mlp"]
    found = judge_cases(BETTER, Results(make_paper(cells=mlp)))
    assert found.answer == FAILS
    assert counts(found)["against"] == 30


def test_missing_settings_are_named(make_paper):
    frame = make_paper(settings=("base", "limit", "c0.02", "c0.1", "a1"))
    found = judge_cases(ANNEALING, Results(frame))
    assert found.answer == OPEN
    assert found.missing[-1] == "settings a5, a9"


@pytest.mark.parametrize(("epochs", "judged"), [(48, False), (50, True), (100, True)])
def test_short_trainings_are_not_the_papers(make_paper, epochs, judged):
    found = judge_cases(BETTER, Results(make_paper(epochs=epochs, every=epochs // 2, **EFFECTS)))
    assert (found.answer == HOLDS) == judged
    assert ("50 epochs: there are 48" in found.missing) == (not judged)
    assert (f"Compared at epoch {epochs}" in found.reason) == (epochs == 50)


def test_other_cells_are_told_of_and_not_counted(make_paper, paper_cells, digits_cells):
    frame = make_paper(cells=[*paper_cells, *digits_cells], **EFFECTS)
    found = judge_cases(BETTER, Results(frame))
    assert counts(found)["claimed"] == 90
    assert "Outside the paper's cells, 10 of 10 cases gain over base in both" in found.reason
    assert "Outside" not in judge_cases(BETTER, Results(make_paper(**EFFECTS))).reason


def test_other_cells_speak_of_the_claims_that_concern_them(make_frame, digits_cells):
    relu = ("digits", "mnist-mlp", False, "relu")
    results = Results(make_frame(cells=[*digits_cells, relu]))
    told = [judge_cases(claim, results).reason.partition("Outside")[2] for claim in CLAIMS[:6]]
    cases = [int(re.search(r"of (\d+) cases", text)[1]) for text in told]
    assert cases == [10, 3, 2, 2, 3, 2]  # under-fit is about ReLU too


@pytest.mark.parametrize("activation", ["leaky_relu", "identity"])
def test_activations_of_relus_kind_are_held_against_its_claims(make_frame, activation):
    results = Results(make_frame(cells=[("digits", "mnist-mlp", False, activation)]))
    told = ["Outside" in judge_cases(claim, results).reason for claim in CLAIMS[:6]]
    assert told == [False, True, False, False, True, False]


def test_with_and_without_dropout_are_counted_apart(make_paper):
    found = judge_cases(
        DROPOUT, Results(make_paper(gain=lambda c, s: 0.003 * (not c[2]) * (s != "base")))
    )
    assert found.answer == FAILS
    assert counts(found)["against with dropout"] == counts(found)["for without dropout"] == 9
    assert found.cases == {
        "with dropout": {"for": 0, "against": 9, "unclear": 0, "missing": 0},
        "without dropout": {"for": 9, "against": 0, "unclear": 0, "missing": 0},
    }
    assert found.reason.startswith("With dropout: Of the paper's 9 cases 0 gain")
    graded = [line.partition(" is ")[0] for line in found.graded]
    assert graded == [
        f"{where} dropout: {metric}"
        for where in ("with", "without")
        for metric in ("test accuracy", "training loss")
    ]


def test_every_field_of_a_claim_has_an_effect(make_paper):
    results = Results(make_paper(**EFFECTS))
    assert judge_cases(replace(BETTER, share=0.0), Results(make_paper())).answer == HOLDS
    assert counts(judge_cases(replace(BETTER, activations=("elu",)), results))["claimed"] == 30
    assert "shine" in judge_cases(replace(BETTER, yes="shine"), results).reason
    assert "rain" in judge_cases(replace(BETTER, no="rain"), results).reason
    assert "is lower" in judge_cases(replace(BETTER, sign=-1), results).graded[0]
    assert "noise floor" in judge_cases(replace(BETTER, floor=True), results).graded[-1]
