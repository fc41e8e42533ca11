"""The tables, figures and page of a comparison."""

import dataclasses

import pytest

for package in ("jinja2", "matplotlib", "polars", "scipy"):
    pytest.importorskip(package)

from qneurons.comparison.arms import parse_arm
from qneurons.comparison.metrics import Metrics
from qneurons.comparison.page import (
    curves_of,
    draw_curves,
    draw_gains,
    far_below,
    gain_table,
    gains_alt,
    gains_caption,
    grid_table,
    meaning_of,
    summary_lines,
    write_comparison,
)
from qneurons.comparison.results import Results, answer
from qneurons.report.figures import setting_styles
from tests.comparison.conftest import make_trials

GRID = [(("lr", 0.1),), (("lr", 0.5),)]


def numbers(shift=0.0):
    return [
        {"val_accuracy": 0.7 + shift, "test_accuracy": 0.8 + shift + 0.001 * i, "train_loss": 1.0}
        for i in range(6)
    ]


@pytest.fixture(scope="module")
def results():
    trials, arms = make_trials({"base": numbers(), "c0.1": numbers(0.02)}, epochs=4)
    return Results(trials, arms, [()], Metrics())


@pytest.fixture(scope="module")
def tuned():
    values = {
        "base": dict(zip(GRID, (numbers(), numbers(0.01)), strict=True)),
        "a1": dict(zip(GRID, (numbers(0.03), numbers(0.02)), strict=True)),
    }
    trials, arms = make_trials(values, diverged=[("a1", 5)])
    return Results(trials, arms, GRID, Metrics())


def cells(table, row):
    return dict(zip(table.columns, table.rows[row], strict=True))


def test_a_row_has_value_gain_p_and_cost(results):
    table = gain_table(results.at_best())
    assert table.title == "Test accuracy in %, gains in points"
    base, other = (cells(table, row) for row in range(2))
    assert base["test accuracy"].startswith("80.25 ±")
    assert (base["difference"], base["verdict"]) == ("–", "–")
    assert (other["difference"], other["seeds"], other["verdict"]) == ("+2.000", "6", "better")
    assert (base["more seeds"], other["more seeds"]) == ("–", "–")
    assert float(other["p (Holm)"]) == pytest.approx(2**-5, abs=1e-3)
    assert other["s per epoch"] == "0.5 (×1.00)"
    assert "peak memory" not in table.columns
    assert "Larger is better" in table.note


@pytest.mark.parametrize(
    ("numbers", "more"),
    [([0.5, 0.5], "–"), ([0.6, 0.41], "> 1,000"), ([0.6, 0.52], "8"), ([0.6], "–")],
)
def test_how_many_more_seeds_would_show_it(numbers, more):
    trials, arms = make_trials({"base": [0.5] * len(numbers), "c0.1": numbers})
    table = gain_table(Results(trials, arms, [()], Metrics()).at_best())
    assert (cells(table, 1)["verdict"], cells(table, 1)["more seeds"]) == ("unclear", more)


def test_memory_is_shown_where_it_was_measured():
    trials, arms = make_trials({"base": [0.5] * 3, "c0.1": [0.5] * 3})
    sizes = (9, 1, 1, 3, 3, 3)  # the first trial has loaded the data, too
    trials = sorted(trials, key=lambda trial: (trial.spec.arm != "base", trial.spec.seed))
    for trial, size in zip(trials, (size * 2**20 for size in sizes), strict=True):
        object.__setattr__(trial.measured, "peak_bytes", size)
    table = gain_table(Results(trials, arms, [()], Metrics()).at_best())
    assert cells(table, 1)["peak memory"] == "3 MiB (×3.00)"


def test_a_cost_is_shown_where_base_has_none():
    trials, arms = make_trials({"base": [0.5], "c0.1": [0.5]}, diverged=[("base", 0)])
    trials = [
        dataclasses.replace(t, measured=dataclasses.replace(t.measured, seconds=[]))
        if t.measured.diverged
        else t
        for t in trials
    ]
    table = gain_table(Results(trials, arms, [()], Metrics()).at_best())
    assert [cells(table, row)["s per epoch"] for row in range(2)] == ["–", "0.5"]


def test_a_grid_is_shown_whole_with_the_best_marked(tuned):
    table = grid_table(tuned)
    assert [row[:2] + row[-1:] for row in table.rows] == [
        ("base", "lr=0.1", ""),
        ("base", "lr=0.5", "best"),
        ("a1", "lr=0.1", "best"),
        ("a1", "lr=0.5", ""),
    ]
    assert "val accuracy over seeds (larger is better)" in table.note
    assert "(1 diverged)" in cells(gain_table(tuned.at_best()), 1)["test accuracy"]


def test_results_so_far_have_a_line_for_each_setting(results):
    first, second = summary_lines(results)
    assert first.startswith("so far, test accuracy: base 80.25 ±")
    assert second == "  c0.1: +2.000 [+2.000, +2.000], better"
    trials, arms = make_trials({"base": numbers()[:1], "c0.1": numbers(0.02)[:1]})
    assert summary_lines(Results(trials, arms, [()], Metrics())) == [
        "so far, test accuracy: base 80.00 (1 seed)",
        "  c0.1: +2.000, needs two seeds",
    ]


def test_curves_are_means_over_seeds(results):
    base, _ = curves_of(results.at_best(), results.metric)
    assert list(base.epoch) == [1, 2, 3, 4]
    assert base.middle == pytest.approx([0.8025] * 4)


def test_every_metric_has_a_panel_and_the_others_are_off(results):
    styles = setting_styles(["base", "c0.1"])
    axes = draw_curves(results.at_best(), results.metrics, styles).axes
    assert [ax.get_title() for ax in axes if ax.axison] == [
        "test accuracy, %",
        "val accuracy, %",
        "train loss",
    ]
    assert len(axes) == 4


def test_gains_are_drawn_in_points(results):
    (ax,) = draw_gains(results.at_best(), setting_styles(["base", "c0.1"])).axes
    assert [label.get_text() for label in ax.get_xticklabels()] == ["c0.1"]
    dots = next(line for line in ax.lines if len(line.get_ydata()) == 6)
    assert dots.get_ydata() == pytest.approx([2.0] * 6)


def test_a_setting_far_beyond_the_others_is_a_number_at_the_border():
    shifts = {"base": 0, "c0.1": 0.02, "a1": -0.01, "limit": 0.01, "relu2": -0.7}
    trials, arms = make_trials({name: numbers(shift) for name, shift in shifts.items()}, epochs=4)
    rows = Results(trials, arms, [()], Metrics()).at_best()
    (ax,) = draw_gains(rows, setting_styles(list(shifts))).axes
    low, high = ax.get_ylim()
    assert -5 < low < high < 5
    assert [text.get_text() for text in ax.texts] == ["−70"]
    assert len(ax.get_xticklabels()) == 4
    assert gains_caption(rows).endswith(
        "The loss of relu2 is a number at the border, far below the others."
    )
    *others, _ = rows
    assert gains_caption(others).endswith("a dot for every seed.")


def test_one_of_two_settings_may_be_far_below():
    shifts = {"base": 0, "c0.1": 0.02, "relu2": -0.7}
    trials, arms = make_trials({name: numbers(shift) for name, shift in shifts.items()}, epochs=4)
    rows = Results(trials, arms, [()], Metrics()).at_best()
    assert far_below(rows) == ["relu2"]
    base, _, alone = rows
    assert far_below([base, alone]) == []


def test_a_large_gain_is_drawn():
    shifts = {"base": 0, "c0.1": 0.001, "a1": -0.001, "limit": 0.001, "a9": 0.1}
    trials, arms = make_trials({name: numbers(shift) for name, shift in shifts.items()}, epochs=4)
    assert far_below(Results(trials, arms, [()], Metrics()).at_best()) == []


def test_the_page_has_the_answer_first_and_everything_else(tuned, tmp_path):
    origin = {"device": "a <device>", "command": "my.py"}
    page = write_comparison(tmp_path, "my-model", tuned, [origin], {"seed 9, a1": "Boom"}, 30)
    files = {path.name for path in tmp_path.iterdir()}
    assert files == {
        *("report.html", "report.md", "gains.svg", "gains-dark.svg", "gains.png", "gains.pdf"),
        *("curves.svg", "curves-dark.svg", "curves.png", "curves.pdf"),
    }
    html, text = page.read_text(), (tmp_path / "report.md").read_text()
    assert page.name == "report.html"
    assert "a &lt;device&gt;" in html
    for part in (
        *("Does it help this training?", "each setting at its own best parameters"),
        *("all settings at lr=0.5", "All parameters", "Boom", "failed: 1", "trials: 30"),
        *("Other metrics", "Train loss", "Learning curves"),
    ):
        assert part in text
    sentence = answer(tuned).sentence
    assert text.splitlines()[2] == f"**{sentence} 24 of 30 trials are finished.**"
    assert "## Gains" in text[: text.index("## The answer")]
    header = html[html.index("<header>") : html.index("</header>")]
    assert "Base is the model as it is, with its own activation f; a1 is the model with" in header
    assert "annealed from 1 over the epochs of the training. q-activations are evaluated" in header


def test_the_figure_of_gains_is_told_in_words(results):
    assert gains_alt(results.at_best()) == (
        "Gain in test accuracy over base with its 95 % interval, in points: "
        "c0.1 +2.000 [+2.000, +2.000]."
    )


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ("limit", "the model with f'(x)x"),
        ("relu", "the model with the plain activation of that name"),
        ("c0.1", "the model with the q-activation with λ = 0.1"),
        ("a1@0.5", "the model with the q-activation with λ annealed from 1 at the rate 0.5"),
        ("a1/20", "the model with the q-activation with λ annealed from 1 over 20 epochs"),
    ],
)
def test_what_a_setting_is(setting, words):
    template, filling = meaning_of(parse_arm(setting))
    assert template.format(filling) == words
