"""Every claim can come out every way, and says why."""

import pytest

pl = pytest.importorskip("polars")
pytest.importorskip("scipy")

from qneurons.report.claims.noise_or_limit import (
    QUESTION,
    decompose,
)
from qneurons.report.claims.paper import (
    CLAIMS,
    judge,
)
from qneurons.report.claims.verdicts import ANSWERS
from qneurons.report.results import Results

HOLDS, FAILS, OPEN, CANNOT_HOLD, CANNOT_FAIL = ANSWERS


def curved(amount):
    """An effect of every q setting of the curved activations."""
    return lambda cell, setting: amount * (cell[3] != "relu" and setting[0] in "ca")


def settings(**amounts):
    """Effects by setting, c0.1 written c0_1."""
    return {name.replace("_", "."): amount for name, amount in amounts.items()}


def mnist(q, other=0.99):
    """Accuracies of the MNIST-CNN's q-ELU and q-tanh, and of everything else."""

    def gain(cell, setting):
        named = cell[1] == "mnist-cnn" and cell[3] in ("elu", "tanh") and setting[0] in "ca"
        return (q[cell[3]] if isinstance(q, dict) else q) if named else other

    return {"accuracy": 0.0, "gain": gain, "spread": 1e-5, "noise": 1e-5}


def cifar(q, other=0.80, noise=1e-4):
    def gain(cell, setting):
        return q if cell[1] == "cifar-cnn" and cell[3] == "elu" and setting[0] in "ca" else other

    return {"accuracy": 0.0, "gain": gain, "spread": 0, "noise": noise}


WORLDS = [  # effects, and what they make of claims
    ({"gain": curved(0.003), "loss_gain": curved(0.01)}, {"better": HOLDS, "not-relu": HOLDS}),
    ({"gain": curved(0.003)}, {"better": FAILS}),  # no gain in the training loss
    ({"gain": curved(-0.003), "loss_gain": curved(0.01)}, {"better": FAILS}),
    (
        {},
        {
            "better": FAILS,
            "insensitive": FAILS,
            "annealing": FAILS,
            "under-fit": FAILS,
            "dropout": FAILS,
            "noise-or-limit": "neither",
        },
    ),
    (
        {"noise": 0.02, "loss_noise": 0.05},
        {
            "better": OPEN,
            "not-relu": OPEN,
            "insensitive": OPEN,
            "annealing": OPEN,
            "under-fit": OPEN,
            "dropout": OPEN,
            "noise-or-limit": OPEN,
        },
    ),
    (
        {"gain": 0.003},
        {
            "not-relu": FAILS,
            "insensitive": HOLDS,
            "annealing": FAILS,
            "dropout": HOLDS,
            "noise-or-limit": "the noise",
        },
    ),
    ({"loss_gain": 0.01}, {"not-relu": FAILS}),
    ({"gain": settings(c0_02=0.003)}, {"insensitive": FAILS}),
    ({"gain": settings(c0_02=0.002, c0_1=0.009)}, {"insensitive": FAILS}),
    ({"gain": settings(c0_02=0.001, c0_1=0.001, a5=0.004)}, {"annealing": HOLDS}),
    ({"gain": settings(c0_1=0.005, a1=0.003, a5=0.003, a9=0.003)}, {"annealing": FAILS}),
    ({"loss_gain": settings(a9=-0.02)}, {"under-fit": HOLDS}),
    ({"loss_gain": settings(a9=0.02)}, {"under-fit": FAILS}),
    ({"gain": lambda c, s: 0.003 * (s[0] in "ca" and c[2])}, {"dropout": FAILS}),
    ({"gain": lambda c, s: 0.003 * (s != "base")}, {"noise-or-limit": "the limit"}),
    (
        {"gain": lambda c, s: 0.003 * (s != "base") * (1 + (s[0] in "ca"))},
        {"noise-or-limit": "both"},
    ),
    (mnist(0.9967), {"mnist-best": HOLDS}),
    (mnist(0.9960), {"mnist-best": FAILS}),
    (mnist({"elu": 0.9970, "tanh": 0.9950}), {"mnist-best": FAILS}),
    (mnist(0.9967, other=0.9975), {"mnist-best": FAILS}),
    ({**mnist(0.9961), "noise": 0.0005}, {"mnist-best": OPEN}),
    ({**mnist(0.9970, other=0.99708), "noise": 0.0002}, {"mnist-best": OPEN}),
    (cifar(0.831), {"cifar-best": HOLDS}),
    (cifar(0.82), {"cifar-best": FAILS}),
    (cifar(0.831, other=0.84), {"cifar-best": FAILS}),
    (cifar(0.824, noise=0.006), {"cifar-best": OPEN}),
]


@pytest.fixture
def make_paper(make_frame, paper_cells, monkeypatch):
    # Rows of every 50th epoch: the last epoch is the last tenth, and is not computed again.
    monkeypatch.setattr(Results, "last_epoch", property(lambda results: results))

    def make(**options):
        return make_frame(**{"cells": paper_cells, "epochs": 100, "every": 50, **options})

    return make


def by_claim(frame):
    return {verdict.claim.id: verdict for verdict in judge(Results(frame))}


@pytest.mark.parametrize(("effects", "answers"), WORLDS)
def test_every_claim_can_come_out_every_way(make_paper, effects, answers):
    found = by_claim(make_paper(**effects))
    assert {claim: found[claim].answer for claim in answers} == answers, [
        found[claim].reason for claim in answers
    ]
    for verdict in found.values():
        assert verdict.missing == ()
        assert verdict.reason.endswith(".")
        assert verdict.numbers or verdict.claim is QUESTION
        assert verdict.graded


def test_every_answer_of_every_claim_is_among_the_worlds():
    ways = {way for _, answers in WORLDS for way in answers.items()}
    expected = {(claim.id, answer) for claim in CLAIMS for answer in (HOLDS, FAILS, OPEN)}
    expected |= {("noise-or-limit", a) for a in ("the noise", "the limit", "both", "neither", OPEN)}
    assert ways == expected


def test_missing_cells_are_waited_for_only_if_they_can_change_the_answer(make_paper, paper_cells):
    """Half of the paper: a claim about almost all cannot hold, one of a quarter cannot fail."""
    cells = [cell for cell in paper_cells if cell[0] == "mnist"]
    loud = {"accuracy": 0.9, "noise": 0.02, "loss_noise": 0.05}
    found = {v.claim.id: v.answer for v in judge(Results(make_paper(cells=cells, **loud)))}
    assert found == {
        "better": CANNOT_HOLD,
        "not-relu": CANNOT_HOLD,
        "insensitive": CANNOT_HOLD,
        "annealing": CANNOT_HOLD,
        "under-fit": CANNOT_FAIL,
        "dropout": CANNOT_HOLD,
        "mnist-best": FAILS,
        "cifar-best": OPEN,
        "noise-or-limit": OPEN,
    }


def test_claims_are_declared_with_sentence_and_rule():
    ids = [claim.id for claim in (*CLAIMS, QUESTION)]
    assert len(set(ids)) == len(ids) == 9
    assert all(claim.statement and claim.rule.endswith(".") for claim in (*CLAIMS, QUESTION))


def test_data_without_the_papers_cells_decide_nothing_about_it(make_frame):
    frame = make_frame(epochs=100, every=50, gain=0.01, loss_gain=0.02)  # digits
    *found, question = judge(Results(frame))
    assert {verdict.answer for verdict in found} == {OPEN}
    assert all(verdict.missing for verdict in found)
    assert "10 of 10 cases gain over base in both" in found[0].reason
    assert found[0].missing[0] == "30 of 30 cases of mnist-mlp on mnist"
    assert question.answer == "the noise"


@pytest.mark.parametrize("dataset", ["digits", "fashion-mnist"])
def test_numbers_of_mnist_are_judged_on_mnist_alone(make_frame, paper_cells, dataset):
    cells = [(dataset, *cell[1:]) for cell in paper_cells]
    frame = make_frame(cells=cells, epochs=100, every=50, **mnist(0.9999))
    found = by_claim(frame)["mnist-best"]
    assert (found.answer, found.missing) == (OPEN, ("44 of 44 settings of mnist-cnn on mnist",))


def test_an_empty_frame_decides_nothing(make_frame):
    results = Results(make_frame().clear())
    assert {verdict.answer for verdict in judge(results)} == {OPEN}
    assert decompose(results) == []


@pytest.mark.parametrize("seeds", [1, 2])
def test_one_or_two_seeds_decide_nothing_without_an_effect(make_paper, seeds):
    found = judge(Results(make_paper(seeds=seeds)))
    assert {verdict.answer for verdict in found} == {OPEN}
    assert not any("nan" in verdict.reason for verdict in found)


def test_nothing_holds_of_noise_alone(make_paper):
    """Under the null no claim of a gain may hold, whatever the draw."""
    for rng in range(3):
        found = {v.claim.id: v.answer for v in judge(Results(make_paper(rng=rng, noise=0.001)))}
        for claim in ("better", "insensitive", "annealing", "dropout"):
            assert found[claim] != HOLDS
        assert found["not-relu"] != FAILS
