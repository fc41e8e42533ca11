"""How single cells speak for and against claims."""

import pytest

pl = pytest.importorskip("polars")
pytest.importorskip("scipy")

from qneurons.report.claims import cases
from qneurons.report.final_values import PRIMARY, Cell
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
        (cases.underfits, ("base", "a9"), {"loss_gain": {"a9": DOWN}}, "for"),
        (cases.underfits, ("base", "a9"), {"loss_gain": {"a9": UP}}, "against"),
        (cases.underfits, ("base", "a9"), {"loss_noise": 1e-4}, "against"),
        (cases.underfits, ("base", "a9"), {**NOISE, "rng": 1}, "unclear"),
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


def test_underfitting_is_judged_without_noise_and_against_base(make_frame):
    """a9's loss is higher with noise alone, and c0.02's is the lowest of all."""
    noisy = pl.col("train_loss") + 0.02 * (pl.col("setting") == "a9")
    frame = make_frame(cells=[ELU], epochs=10, loss_gain={"c0.02": 0.02}).with_columns(noisy)
    case = cases.underfits(Results(frame), ELU, ("base", "a9"))
    assert case.answer == "against"
    loss, _ = case.effects
    assert (loss.metric.name, loss.setting, loss.reference) == ("train_loss_limit", "a9", "base")
    older = frame.with_columns(train_loss_limit=pl.lit(None, pl.Float64))
    assert cases.underfits(Results(older), ELU, ("base", "a9")).answer == "for"


def test_underfitting_without_finished_runs_is_unclear(make_frame):
    dead = {("a9", seed): 1 for seed in range(2)}
    frame = make_frame(cells=[ELU], settings=("base", "a9"), seeds=2, diverged=dead)
    assert cases.underfits(Results(frame), ELU, ("base", "a9")).answer == "unclear"


def test_effects_are_contrasts_in_accuracy_and_loss(make_frame):
    results = Results(make_frame(cells=[ELU]))
    expected = {
        (cases.insensitive, ("base", "c0.02", "c0.1")): ["c0.02 over base", "c0.1 over base"],
        (cases.annealing_helps, ("base", "c0.1", "a1")): ["a1 over c0.1"],
        (cases.benefits, ("base", "c0.1", "a1")): ["c0.1 over base", "a1 over base"],
    }
    for (judge, settings), pairs in expected.items():
        effects = judge(results, ELU, settings).effects
        assert [f"{row.setting} over {row.reference}" for row in effects] == 2 * pairs
        assert [row.metric.name for row in effects] == sorted(len(pairs) * list(PRIMARY))
