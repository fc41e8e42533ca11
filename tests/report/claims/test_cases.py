"""How single cells speak for and against claims."""

import pytest

pytest.importorskip("polars")
pytest.importorskip("scipy")

from qneurons.report.claims import cases
from qneurons.report.comparisons import Cell
from qneurons.report.results import Results

ELU = Cell("digits", "mnist-mlp", False, "elu")
Q = ("c0.02", "c0.1", "a1", "a5", "a9")
NOISE = {"noise": 0.01, "loss_noise": 0.05}
UP, DOWN = 0.005, -0.005


@pytest.mark.parametrize(
    ("judge", "settings", "effects", "answer"),
    [
        (cases.improves, ("base", "a1"), {"gain": UP, "loss_gain": UP}, "for"),
        (cases.improves, ("base", "a1"), {"gain": UP}, "against"),
        (cases.improves, ("base", "a1"), {"gain": UP, "loss_noise": 0.05}, "unclear"),
        (cases.improves_neither, ("base", "a1"), {}, "for"),
        (cases.improves_neither, ("base", "a1"), {"gain": UP}, "against"),
        (cases.improves_neither, ("base", "a1"), {"loss_noise": 0.05}, "unclear"),
        (cases.insensitive, ("base", *Q[:2]), {"gain": UP}, "for"),
        (cases.insensitive, ("base", *Q[:2]), {"gain": {"c0.1": UP}}, "against"),
        (cases.insensitive, ("base", *Q[:2]), {"gain": {"c0.02": 0.002, "c0.1": 0.009}}, "against"),
        (cases.insensitive, ("base", *Q[:2]), {"gain": {"c0.02": UP, "c0.1": 2 * UP}}, "unclear"),
        (cases.insensitive, ("base", *Q[:2]), NOISE, "unclear"),
        (cases.annealing_helps, ("base", *Q), {"gain": {"a5": UP}}, "for"),
        (cases.annealing_helps, ("base", *Q), {"gain": {"a5": UP, "c0.1": UP}}, "against"),
        (cases.annealing_helps, ("base", *Q), NOISE, "unclear"),
        (cases.underfits, ("base", "c0.02", "a9"), {"loss_gain": {"a9": DOWN}}, "for"),
        (cases.underfits, ("base", "c0.02", "a9"), {"loss_gain": {"a9": UP}}, "against"),
        (cases.underfits, ("base", "c0.02", "a9"), {"loss_noise": 1e-4}, "against"),
        (cases.underfits, ("base", "c0.02", "a9"), {**NOISE, "rng": 1}, "unclear"),
        (cases.benefits, ("base", *Q), {"gain": {"a1": UP}}, "for"),
        (cases.benefits, ("base", *Q), {"gain": DOWN}, "against"),
        (cases.benefits, ("base", *Q), NOISE, "unclear"),
    ],
)
def test_answers(make_frame, judge, settings, effects, answer):
    results = Results(make_frame(cells=[ELU], **effects))
    case = judge(results, ELU, settings)
    assert case.answer == answer
    assert case.cell == ELU
    assert case.effects


def test_the_largest_lambda_is_the_largest_over_the_training(make_frame):
    # c3 has a smaller λ than a9 at first, and a larger one on average over 100 epochs
    frame = make_frame(
        cells=[ELU],
        settings=("base", "c0.02", "a9", "c3"),
        epochs=100,
        every=50,
        loss_gain={"c3": DOWN},
    )
    case = cases.underfits(Results(frame), ELU, ("base", "c0.02", "a9"))
    [(_, row)] = case.effects
    assert (row.setting, row.reference, case.answer) == ("c3", "c0.02", "for")


def test_lambdas_without_compared_runs_are_passed_over(make_frame):
    settings = ("base", "c0.02", "c0.1", "a1", "a9")
    dead = {(setting, seed): 1 for setting in ("c0.02", "a9") for seed in range(10)}
    frame = make_frame(cells=[ELU], settings=settings, diverged=dead, loss_gain={"a1": DOWN})
    case = cases.underfits(Results(frame), ELU, ("base", "c0.02", "a9"))
    [(_, row)] = case.effects
    assert (row.setting, row.reference, case.answer) == ("a1", "c0.1", "for")
    none = make_frame(cells=[ELU], settings=("base", "c0.02", "a9"), diverged=dead)
    assert cases.underfits(Results(none), ELU, ("base", "c0.02", "a9")).answer == "unclear"


def test_the_smallest_lambda_is_of_all_constants(make_frame):
    frame = make_frame(cells=[ELU], settings=("base", "c0.01", "c0.02", "a9"))
    [(_, row)] = cases.underfits(Results(frame), ELU, ("base", "c0.02", "a9")).effects
    assert (row.setting, row.reference) == ("a9", "c0.01")


def test_effects_say_which_contrasts_were_used(make_frame):
    case = cases.insensitive(Results(make_frame(cells=[ELU])), ELU, ("base", "c0.02", "c0.1"))
    labels = ["c0.02 over base", "c0.1 over base", "c0.1 over c0.02"]
    assert [label for label, _ in case.effects] == labels
