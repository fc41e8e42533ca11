"""The numbers: gains, the best parameters, more seeds, the answer."""

import random

import pytest

pytest.importorskip("polars")
pytest.importorskip("scipy")

from qneurons.comparison.metrics import Metrics
from qneurons.comparison.results import Results, answer, prospect, seeds_to_show
from tests.comparison.conftest import make_trials


def around(mean, sd=0.01, n=10, stream=0):
    draw = random.Random(stream)
    return [mean + draw.gauss(0, sd) for _ in range(n)]


def results(values, grid=((),), metrics=None, **options):
    trials, arms = make_trials(values, **options)
    return Results(trials, arms, list(grid), metrics or Metrics())


def test_a_clear_gain_is_the_answer_and_says_what_to_set():
    base = around(0.8)
    better = {"base": base, "c0.1": [x + 0.02 for x in base], "limit": around(0.8, stream=1)}
    found = answer(results(better))
    assert found.word == "it helps"
    assert found.sentence.startswith("c0.1 helps: test accuracy +2.000 [+2.000, +2.000] points")
    assert found.advice == 'Set model = qn.convert(model, "c0.1").'


def test_the_best_of_several_is_set_and_the_others_are_named():
    base = around(0.8)
    values = {"base": base, "silu": [x + 0.03 for x in base], "a1": [x + 0.02 for x in base]}
    found = answer(results(values))
    assert found.sentence.endswith("a1 helps too.")
    assert found.advice == "Set the plain activation silu in the model."
    del values["silu"]
    assert "qn.LambdaScheduler(model)" in answer(results(values)).advice
    values["cos1"] = values.pop("a1")
    assert "qn.LambdaScheduler(model)" in answer(results(values)).advice


def test_what_is_excluded_of_a_loss_is_a_difference():
    values = {"base": around(0.8), "c0.1": around(0.8, stream=1)}
    sentence = answer(results(values, metric="test_loss")).sentence
    assert "No 95 % interval goes below -0.0" in sentence


def test_base_may_be_the_same_in_every_seed():
    """As it is if it learns nothing; what the others do is still compared."""
    found = results({"base": [0.1] * 10, "c0.1": around(0.8)})
    assert not found.is_one_training
    assert answer(found).word == "it helps"
    assert results({"base": [0.1] * 10, "c0.1": [0.2] * 10}).is_one_training


def test_a_loss_is_an_answer_too():
    base = around(0.8)
    found = answer(results({"base": base, "c0.1": [x - 0.02 for x in base]}))
    assert found.word == "it hurts"
    assert found.sentence.startswith("Every setting hurts: the least harmful is c0.1: test accurac")
    assert found.advice.startswith("Keep")


def test_no_effect_is_said_with_what_is_excluded():
    values = {"base": around(0.8), "c0.1": around(0.8, stream=1), "limit": around(0.7, stream=2)}
    found = answer(results(values))
    assert found.word == "no setting is shown to help"
    assert "No setting is shown to help. c0.1 comes closest: test accuracy +0.247" in found.sentence
    assert "No 95 % interval reaches a gain above +" in found.sentence
    assert "limit hurts" in found.sentence
    assert found.advice.startswith("Keep")


def test_an_interval_without_0_that_shows_nothing_is_explained():
    base = around(0.8, n=6)
    values = {"base": base, "c0.1": [x + 0.02 for x in base], "limit": base}
    found = answer(results(values))
    assert found.word == "no setting is shown to help"
    assert "+2.000 [+2.000, +2.000] points against base over 6 seeds (corrected p = 0.0" in (
        found.sentence
    )
    explained = "The interval is of c0.1 alone, and p is corrected for all 2 settings"
    assert explained in found.sentence
    values["c0.1"] = around(0.8, n=6, stream=1)
    assert "alone" not in answer(results(values)).sentence


def test_one_seed_answers_nothing():
    found = answer(results({"base": [0.8], "c0.1": [0.9]}))
    assert (found.word, found.advice) == (
        "no setting is shown to help",
        "Run more seeds, at least three.",
    )


def test_smaller_is_better_for_a_loss_and_for_what_is_named():
    base = around(0.8)
    values = {"base": base, "c0.1": [x - 0.1 for x in base]}
    assert answer(results(values, metric="val_loss")).word == "it helps"
    assert answer(results(values, metric="score")).word == "it hurts"
    named = Metrics(smaller=["score"])
    assert answer(results(values, metric="score", metrics=named)).word == "it helps"


def test_diverged_trials_count_against_their_setting():
    base = around(0.8)
    values = {"base": base, "c0.1": [x + 0.02 for x in base]}
    lost = [("c0.1", seed) for seed in range(3)]
    found = results(values, diverged=lost)
    assert answer(found).word == "no setting is shown to help"
    everything = results(values, diverged=[("c0.1", seed) for seed in range(10)])
    assert answer(everything).word == "it hurts"
    assert answer(everything).sentence.endswith(
        "c0.1: 10 of 10 trials diverged, and 0 of base's (corrected p = 0.002)."
    )
    both = [(arm, seed) for arm in values for seed in (0, 1)]
    *_, row = results({arm: x[:3] for arm, x in values.items()}, diverged=both).at_best()
    assert row.contrast.test != "sign"  # no pair tells which of the two diverges more
    assert prospect(row, 1) == "needs two seeds that do not diverge"


@pytest.mark.parametrize(
    ("lost", "word", "p"), [(5, "no setting is shown to help", "0.062"), (6, "it helps", "0.031")]
)
def test_a_base_that_diverges_loses_where_there_are_enough_seeds(lost, word, p):
    values = {"base": around(0.8, n=lost), "limit": around(0.8, n=lost, stream=1)}
    found = answer(results(values, diverged=[("base", seed) for seed in range(lost)]))
    assert found.word == word
    assert (
        f"0 of {lost} trials diverged, and {lost} of base's (corrected p = {p})" in found.sentence
    )
    assert ("smaller learning rate" in found.sentence) == (lost == 5)


def test_the_final_value_is_the_mean_over_the_last_tenth_of_the_epochs():
    found = results({"base": [1.0], "c0.1": [1.0]}, epochs=20)
    trial = found.trials[0]
    trial.measured.metrics["test_accuracy"][-2:] = [2.0, 4.0]
    assert found.at_best()[0].final.values == {0: 3.0}


SMALL, LARGE = (("lr", 0.1),), (("lr", 0.5),)


def tuned(val, test):
    return [{"val_accuracy": v, "test_accuracy": t} for v, t in zip(val, test, strict=True)]


def test_the_best_parameter_is_chosen_by_the_validation_metric():
    values = {
        "base": {SMALL: tuned([0.9, 0.9], [0.5, 0.5]), LARGE: tuned([0.8, 0.8], [0.7, 0.7])},
        "c0.1": {SMALL: tuned([0.8, 0.8], [0.9, 0.9]), LARGE: tuned([0.9, 0.9], [0.6, 0.6])},
    }
    found = results(values, [SMALL, LARGE])
    assert [row.params for row in found.at_best()] == ["lr=0.1", "lr=0.5"]
    assert found.at_best()[1].contrast.difference.mean == pytest.approx(0.1)
    assert [row.params for row in found.at_common()] == ["lr=0.1", "lr=0.1"]
    assert found.at_common()[1].contrast.difference.mean == pytest.approx(0.4)
    smallest = results(values, [SMALL, LARGE], Metrics(smaller=["val_accuracy"]))
    assert [row.params for row in smallest.at_best()] == ["lr=0.5", "lr=0.1"]


def test_every_seed_takes_its_own_best_parameter():
    """With one choice for all seeds, more than 5 % of comparisons without effect claimed one."""
    values = {
        "base": {SMALL: tuned([0.9, 0.1], [1.0, 2.0]), LARGE: tuned([0.8, 0.8], [3.0, 4.0])},
        "c0.1": {SMALL: tuned([0.9, 0.9], [0.0, 0.0]), LARGE: tuned([0.0, 0.0], [0.0, 0.0])},
    }
    base, other = results(values, [SMALL, LARGE]).at_best()
    assert base.final.values == {0: 1.0, 1: 4.0}
    assert (base.params, other.params) == ("lr=0.5", "lr=0.1")  # the best on average


def test_a_parameter_with_diverged_trials_is_not_the_best():
    values = {
        "base": {SMALL: tuned([0.1, 0.1], [0.5, 0.5])},
        "c0.1": {SMALL: tuned([0.1, 0.1], [0.5, 0.5])},
    }
    trials, arms = make_trials(values)
    wild = {"base": {LARGE: tuned([0.9, 0.9], [0.9, 0.9])}, "c0.1": {LARGE: tuned([0.9], [0.9])}}
    more, _ = make_trials(wild, diverged=[("base", 1)])
    found = Results([*trials, *more], arms, [SMALL, LARGE], Metrics())
    assert [row.params for row in found.at_best()] == ["lr=0.1", "lr=0.5"]


def test_how_many_seeds_would_show_a_gain():
    """The textbook's number: 33 pairs for half a standard deviation, and 80 % power."""
    draw = around(0.0, n=1000)
    mean = sum(draw) / len(draw)
    sd = (sum((x - mean) ** 2 for x in draw) / (len(draw) - 1)) ** 0.5
    shifted = [0.5 + (x - mean) / sd for x in draw]
    row = results({"base": [0.0] * 1000, "c0.1": shifted}, metric="score").at_best()[1]
    assert seeds_to_show(row.contrast, 1) in (33, 34)
    assert seeds_to_show(row.contrast, 4) > 40


def test_what_is_said_about_more_seeds():
    base = around(0.8)

    def said(values, n=10):
        return prospect(results({"base": base[:n], "c0.1": values[:n]}).at_best()[1], 1)

    assert said([x + 0.02 for x in base]) == "better"
    assert said([x - 0.02 for x in base]) == "worse"
    assert said(base) == "the same as base in every trial"
    assert said(base, n=1) == "needs two seeds"
    assert "more seeds would show it" in said(around(0.805, stream=3), n=4)
    tiny = [x + (-1) ** seed * 0.1 + 1e-5 for seed, x in enumerate(base)]
    assert "over 1,000 seeds" in said(tiny)


def test_only_accuracies_between_0_and_1_are_percentages():
    assert results({"base": [0.5], "c0.1": [0.5]}).metric.percent
    assert not results({"base": [50.0], "c0.1": [60.0]}).metric.percent
    assert not results({"base": [0.5], "c0.1": [0.5]}, metric="score").metric.percent


def test_costs_are_medians_of_epochs():
    found = results({"base": [0.5], "c0.1": [0.5]}, epochs=3)
    found.trials[0].measured.seconds[0] = 99.0  # a first epoch may be slow
    assert found.at_best()[0].seconds == 0.5
