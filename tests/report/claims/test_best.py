"""Claims about the best value: what must be there, what decides, what is shown."""

import pytest

pytest.importorskip("polars")
pytest.importorskip("scipy")

from qneurons.report.claims.best import judge_best
from qneurons.report.claims.paper import CLAIMS
from qneurons.report.claims.verdicts import CANNOT_HOLD, FAILS, HOLDS, OPEN
from qneurons.report.results import Results

[CIFAR] = [claim for claim in CLAIMS if claim.id == "cifar-best"]


@pytest.fixture
def judged(make_frame, paper_cells):
    """The verdict on the claim about CIFAR-10 from its 8 cells."""

    def judge(*, elu=0.83, other=0.80, **options):
        def gain(cell, setting):
            return elu if cell[3] == "elu" and setting[0] in "ca" else other

        fixed = {"accuracy": 0.0, "gain": gain, "spread": 0, "noise": 1e-4, "every": 10}
        cells = [cell for cell in paper_cells if cell[0] == "cifar10"]
        frame = make_frame(**{"cells": cells, "epochs": 100, **fixed, **options})
        return judge_best(CIFAR, Results(frame))

    return judge


@pytest.mark.parametrize(
    ("elu", "answer"),
    [(0.8305, HOLDS), (0.8287, HOLDS), (0.8275, FAILS)],  # 82.87 % is printed as 82.9 %
)
def test_the_printed_value_is_reached_to_its_last_digit(judged, elu, answer):
    found = judged(elu=elu)
    assert found.answer == answer, found.reason


def test_a_rival_that_is_better_refutes(judged):
    found = judged(other=0.835)
    assert found.answer == FAILS
    assert found.reason.startswith("Another is better: cifar-cnn ")
    assert judged(other=0.8301).answer == HOLDS  # the same to the printed digit


def test_a_network_that_the_paper_did_not_have_is_no_rival(judged, paper_cells):
    cells = [cell for cell in paper_cells if cell[0] == "cifar10"]
    better = ("cifar10", "mnist-cnn-no-norm", False, "elu")

    def gain(cell, setting):
        return 0.9 if cell == better else 0.83 if cell[3] == "elu" else 0.8

    assert judged(cells=[*cells, better], gain=gain).answer == HOLDS


def test_the_limit_is_no_rival_for_the_paper_did_not_have_it(judged):
    found = judged(elu=0.83, other=0.8, accuracy=0.0)
    assert found.answer == HOLDS
    assert not any("limit" in number.label for number in found.numbers)


def test_best_single_runs_are_shown_beside_the_means(judged):
    numbers = {number.label: number for number in judged(noise=0.003).numbers}
    mean = next(n for label, n in numbers.items() if "q-elu" in label and "seeds" in label)
    single = next(n for label, n in numbers.items() if "q-elu" in label and "single" in label)
    assert single.value > mean.high > mean.value
    assert numbers["value in the paper"].value == pytest.approx(82.9)
    assert {number.unit for number in numbers.values()} == {"%"}


@pytest.mark.parametrize(
    ("options", "missing"),
    [
        ({"settings": ("base", "c0.02", "c0.1", "a1", "a5")}, "8 of 44 settings of cifar-cnn"),
        ({"epochs": 60}, "epochs: 60 of 100 in cifar-cnn on cifar10"),
        ({"seeds": 2}, "seeds: 2 of 3 in cifar-cnn on cifar10"),
        ({"cells": []}, "44 of 44 settings of cifar-cnn on cifar10"),
        ({"diverged": {("base", seed): 20 for seed in range(10)}}, "8 of 44 settings of cifar-cnn"),
    ],
)
def test_what_is_missing_is_named_and_nothing_decided(judged, options, missing):
    if options == {"cells": []}:
        options = {"cells": [("mnist", "mnist-cnn", False, "elu")]}
    found = judged(**options)
    assert found.answer == OPEN
    assert any(text.startswith(missing) for text in found.missing), found.missing
    assert missing in found.reason
    count = int(missing.partition(" of 44")[0]) if "settings" in missing else 0
    assert found.cases == {"settings": {"unclear": 44 - count, "missing": count}}


def test_equal_runs_without_spread_are_no_crash(judged):
    assert judged(noise=0.0).answer == HOLDS
    assert judged(noise=0.0).cases == {}
    assert judged(noise=0.0, other=0.9).answer == FAILS


ELU_CELLS = [("cifar10", "cifar-cnn", dropout, "elu") for dropout in (False, True)]


@pytest.mark.parametrize(
    ("elu", "noise", "answer"),
    [(0.82, 1e-4, FAILS), (0.824, 0.006, CANNOT_HOLD), (0.83, 1e-4, OPEN)],
)
def test_the_named_activation_is_judged_without_waiting_for_rivals(judged, elu, noise, answer):
    found = judged(cells=ELU_CELLS, elu=elu, noise=noise)
    assert (found.answer, found.missing) == (answer, ("32 of 44 settings of cifar-cnn on cifar10",))
    assert ("is not reached" in found.reason) == (answer == FAILS)
    part = judged(cells=ELU_CELLS[:1], elu=elu, noise=noise)  # with dropout it may be better
    assert part.answer == OPEN


def test_one_rival_is_enough_to_refute(judged):
    relu = ("cifar10", "cifar-cnn", False, "relu")
    assert judged(cells=[*ELU_CELLS, relu], other=0.835).answer == FAILS
    close = {"cells": [*ELU_CELLS, relu], "elu": 0.83, "other": 0.8312, "noise": 0.002}
    assert judged(**close).answer == CANNOT_HOLD  # better to the printed digit, not significantly


def test_relu_at_small_lambdas_is_no_rival(judged):
    def gain(cell, setting):
        return 0.9 if (cell[3], setting) in {("relu", "c0.02"), ("relu", "c0.1")} else 0.83

    assert judged(gain=gain).answer == HOLDS


def test_how_far_the_named_are_from_the_printed_value(judged):
    count, gap = judged(elu=0.82, noise=0).graded
    assert count == "0 of 1 named q-activations reach the printed 82.90%"
    assert "is -0.90 points from it ([-0.90, -0.90] over seeds) in epoch 100" in gap
    assert gap.endswith("its mean over epochs 91–100 is 82.00%, that of the last epoch 82.00%")
    assert judged(cells=[("mnist", "mnist-cnn", False, "elu")]).graded == ()
