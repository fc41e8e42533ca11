"""The first sentence of a report is true and can be read, whatever was trained."""

import pytest

pl = pytest.importorskip("polars")
pytest.importorskip("scipy")

from qneurons.report.final_values import Cell
from qneurons.report.headline import answer, place_names
from qneurons.report.results import Results
from qneurons.study.runs import Run, Study

ELU = ("digits", "mnist-mlp", False, "elu")
EXACT = {"noise": 0, "spread": 0, "epochs": 3, "seeds": 9}  # differences without spread
PLACE = "(elu without dropout in mnist-mlp on digits)"


@pytest.fixture
def say(make_frame):
    def say(study=None, **options):
        return answer(Results(make_frame(**EXACT | options)), study)

    return say


def test_what_helps_in_one_cell(say):
    text = say(cells=[ELU], settings=("base", "c0.1"), gain=0.004)
    assert text == (
        f"c0.1 helps: it gains +0.40 [+0.40, +0.40] points of test accuracy over base {PLACE}; "
        "all 18 runs are trained and compared at epoch 3."
    )


def test_what_hurts_is_named_beside_what_helps(say):
    gain = {"c0.1": 0.004, "a1": 0.002, "limit": -0.003}
    text = say(cells=[ELU], settings=("base", "limit", "c0.1", "a1"), gain=gain)
    assert text.startswith("c0.1 helps most: it gains +0.40 ")
    assert f"{PLACE}; limit hurts; all" in text


def test_where_it_helps_and_where_not(say, digits_cells):
    def gain(cell, setting):
        return {"elu": 0.004, "tanh": -0.002}[cell[3]] * (setting == "a1")

    text = say(settings=("base", "a1"), gain=gain)
    assert text.startswith(
        "a1 helps: it beats base in 1 of 2 cells, by +0.40 points of test accuracy (elu) and loses "
        "in 1 cell (tanh); all 36"
    )


def test_many_cells_are_counted_by_activation(say, paper_cells):
    def gain(cell, setting):
        size = {"elu": 0.004, "relu": 0.0, "softplus": 0.0, "tanh": -0.002}[cell[3]]
        return size * (setting == "a9") - 0.01 * (setting == "a1" and cell[3] == "tanh")

    text = say(cells=paper_cells, settings=("base", "a1", "a9"), gain=gain)
    assert "it beats base in 6 of 24 cells, by +0.40 points of test accuracy (most with elu" in text
    assert (
        "loses in 6 cells (6 of 6 with tanh) and is unclear in 12 cells (6 of 6 with relu, " in text
    )
    assert "; a1 hurts in 6 cells (6 of 6 with tanh); all 648 runs" in text


def test_the_setting_that_helps_in_most_cells_is_named(say):
    def gain(cell, setting):
        return {"a1": 0.003, "c0.1": 0.02 if cell[3] == "elu" else 0.0}.get(setting, 0.0)

    assert say(settings=("base", "c0.1", "a1"), gain=gain).startswith("a1 helps most: it beats")


def test_nothing_that_helps(say):
    text = say(cells=[ELU], settings=("base", "c0.1"), noise=2e-3, seeds=3)
    assert text.startswith("c0.1 is not shown to help: it gives ")
    assert f"points of test accuracy over base {PLACE}, with p = " in text
    worse = say(settings=("base", "limit", "c0.1"), gain={"limit": -0.003, "c0.1": -0.002})
    assert worse.startswith(
        "Every setting hurts: the best, c0.1, gives -0.20 [-0.20, -0.20] points"
    )
    one = say(cells=[ELU], settings=("base", "limit"), gain={"limit": -0.003})
    assert one.startswith("limit hurts: it gives -0.30 [-0.30, -0.30] points")
    assert "c0.1 is not shown to help: at best it gives" in say(
        settings=("base", "c0.1"), noise=1e-4
    )
    some = say(settings=("base", "limit", "c0.1"), gain={"limit": -0.003}, noise=1e-4)
    assert some.startswith("No setting is shown to help: the best, c0.1, gives ")
    assert "; limit hurts in 2 cells (elu and tanh); all 54 runs" in some


def test_one_seed_allows_no_test(say):
    text = say(cells=[ELU], settings=("base", "c0.1"), gain=0.004, seeds=1)
    assert text == (
        "One seed cannot show whether c0.1 helps: it gives +0.40 points of test accuracy over base "
        f"{PLACE}; all 2 runs are trained and compared at epoch 3."
    )


def test_an_interval_without_0_that_shows_nothing_is_explained(say):
    text = say(cells=[ELU], settings=("base", "limit", "c0.1"), gain=0.004, seeds=6)
    assert text.startswith(
        "No setting is shown to help: the best, c0.1, gives +0.40 [+0.40, +0.40] points of test "
        f"accuracy over base {PLACE}, but this interval is of one comparison alone, and with "
        "Holm's correction for all comparisons of the cell p = 0.0"
    )
    assert "alone" not in say(cells=[ELU], settings=("base", "c0.1"), noise=2e-3, seeds=6)


@pytest.mark.parametrize(
    ("settings", "top"), [(("base",), "98.00 %, of base"), (("limit", "c0.1"), "98.40 %, of c0.1")]
)
def test_without_base_or_with_base_alone_nothing_is_compared(say, settings, top):
    text = say(cells=[ELU], settings=settings, gain=0.004)
    assert text.startswith("What helps cannot be said, because no cell has both base and another")
    assert f"the highest test accuracy is {top} {PLACE}; all" in text


def test_diverged_runs_are_told_of(say):
    options = {"cells": [ELU], "settings": ("base", "a1"), "gain": 0.004}
    text = say(**options, diverged={("a1", 0): 2})
    assert "with p = 0.039 after Holm's correction, but more of its runs diverged; 17 of 18" in text
    assert text.endswith("runs are trained and compared at epoch 3 (1 diverged).")
    lost = {("base", seed): 1 for seed in range(8)}
    text = say(**options | {"gain": -0.004}, diverged=lost)
    assert text.startswith("a1 helps: it beats base in 1 of 1 cell; 10 of 18 runs")
    dead = {("a1", seed): 1 for seed in range(2)}
    text = say(**options | {"seeds": 2}, diverged=dead)
    assert "because too many runs diverged; 2 of 4 runs" in text
    died = say(**options | {"seeds": 3}, diverged=dead | {("a1", 2): 1})
    assert died.startswith("a1 is not shown to help, because too many runs diverged; 3 of 6 runs")
    died = say(**options | {"seeds": 6}, diverged={("a1", seed): 1 for seed in range(6)})
    assert died.startswith("a1 hurts, because more of its runs diverge; 6 of 12 runs")
    dead |= {("base", seed): 1 for seed in range(2)}
    text = say(**options | {"seeds": 2}, diverged=dead)
    assert text.startswith("There is no answer, because no run reached the epoch of comparison; 0")


def test_settings_without_a_common_seed_are_not_compared(make_frame):
    frame = make_frame(**EXACT, cells=[ELU], settings=("base", "a1"))
    apart = frame.filter((pl.col("setting") == "base") == (pl.col("seed") < 4))
    assert "because no seed has both base and another setting" in answer(Results(apart))


def test_a_study_says_what_is_missing(say):
    runs = tuple(Run(*ELU, "base", seed, 64, 0.05) for seed in range(30))
    study = Study(name="mine", title="Mine", epochs=100, runs=runs)
    text = say(study, cells=[ELU], settings=("base", "c0.1"), gain=0.004)
    assert text.endswith("18 of 30 runs are trained and compared at epoch 3 of 100.")


def test_names_have_what_differs():
    elu = Cell(*ELU)
    assert place_names([elu, elu._replace(activation="tanh")])[elu] == "elu"
    assert place_names([elu, elu._replace(dropout=True)])[elu] == "elu without dropout"
    assert (
        place_names([elu, elu._replace(network="mnist-cnn")])[elu] == "elu in mnist-mlp on digits"
    )
