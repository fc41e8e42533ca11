"""What decided the defaults, and what the docs recommend."""

from collections import defaultdict

import polars as pl
import pytest

from qneurons.report import Results
from qneurons.report.claims import CURVED
from qneurons.report.gains import gains_over
from qneurons.report.inference import estimate
from qneurons.report.results import GUESSING
from qneurons.study.runs import PAPER_PROTOCOL
from tests.report.published.pages import check_section, ends


def gains_of_modes(frame, one, other, metric="test_accuracy", by=("dropout",)):
    """By setting and epoch: λ, and one mode minus another with its interval, × 100."""
    modes = f"{metric}{one}", f"{metric}{other}"
    difference = 100 * (pl.col(modes[0]) - pl.col(modes[1]))
    for key, rows in frame.drop_nulls(modes).group_by(
        "network", "activation", "setting", "epoch", *by
    ):
        gains = rows.group_by("seed").agg(gain=difference.mean())["gain"]
        yield key, rows["lam"][0], estimate(gains)


def test_what_decided_the_default_of_evaluation(frame):
    """As QActivation's docstring and docs/training-and-evaluation.md say it."""
    frame = frame.filter(pl.col("setting").str.contains("^[ca]"))
    ends = frame.filter((pl.col("epoch") == 100) & (pl.col("train_loss") < GUESSING))
    assert ends["lam"].max() < 0.18
    assert all(abs(gain.mean) < 0.1 for *_, gain in gains_of_modes(ends, "_limit", ""))
    losses = gains_of_modes(ends, "_limit", "", "test_loss")
    assert all(gain.mean < 0.8 or gain.low <= 0 for *_, gain in losses)  # × 100

    gains = {
        (network, activation, epoch, dropout): gain
        for (network, activation, _, epoch, dropout), _, gain in gains_of_modes(
            frame.filter(setting="a9"), "_limit", ""
        )
    }
    for activation, dropout in (("elu", False), ("softplus", True)):
        early, later = (gains["cifar-cnn", activation, epoch, dropout] for epoch in (5, 20))
        assert early.high < 0  # λ = 3
        assert later.low < 0 < later.high
    a9 = {key: gain.mean for key, gain in gains.items()}
    at_20 = [gain for key, gain in a9.items() if key[::2] == ("mnist-mlp", 20)]  # λ = 0.86
    assert len(at_20) == 8
    assert 0.1 < min(at_20) < max(at_20) < 0.7
    assert a9["cifar-cnn", "elu", 20, True] == pytest.approx(-0.8, abs=0.05)
    assert a9["cifar-cnn", "tanh", 20, True] == pytest.approx(-6.6, abs=0.05)
    assert a9["cifar-cnn", "tanh", 20, False] == pytest.approx(-5.1, abs=0.05)
    assert a9["mnist-cnn", "tanh", 20, False] == pytest.approx(-2.4, abs=0.05)
    assert a9["mnist-cnn", "tanh", 5, False] == pytest.approx(-46, abs=0.5)
    assert a9["mnist-cnn", "tanh", 20, True] < -2.4

    of_means = gains_of_modes(frame.filter(setting="a9"), "_mean", "", by=())
    worse = {
        (activation, epoch)
        for (network, activation, _, epoch), _, gain in of_means
        if network.endswith("cnn") and epoch in (1, 5, 20) and gain.high < 0  # λ = 9, 3, 0.86
    }
    assert worse == {(f, epoch) for f in CURVED for epoch in (1, 5, 20)} | {("relu", 1)}
    modes = gains_of_modes(frame, "_mean", "_limit", by=())
    ahead = defaultdict(set)
    for (network, activation, *_), lam, gain in modes:
        # In some epochs only older runs were evaluated in all modes.
        if gain.n == 10 and gain.low > 0 and gain.mean > 0.1:
            ahead[activation].add((network, lam))
    ahead["tanh"] -= {found for found in ahead["tanh"] if found[0] == "mnist-cnn"}
    assert ahead.keys() == {"relu", "tanh", "softplus"}
    assert min(lam for _, lam in ahead["relu"]) == 1.5
    assert min(lam for _, lam in ahead["tanh"]) == 5
    assert {network for network, _ in ahead["softplus"]} == {"cifar-cnn"}
    ends = min(ahead["softplus"]), max(ahead["softplus"])
    assert [round(lam, 1) for _, lam in ends] == [0.3, 0.5]


def test_what_decided_the_default_of_lam(publish, frame):
    table = publish.lam_table(frame)
    accuracy = {contrast: ends(cell) for contrast, _, cell, _ in table.rows}
    for pair in (("c0.02", "limit"), ("c0.1", "c0.02")):
        for metric in ("test_accuracy", "test_loss"):
            gain, _ = publish.difference(publish.endpoint(frame), *pair, metric)
            assert gain.low < 0 < gain.high
    assert accuracy["a5 − c0.1"][0] > 0


def test_where_more_seeds_show_a_small_constant_lam_ahead_of_the_limit(more):
    """As docs/training-and-evaluation.md says it."""
    ahead = {
        (cell.activation, cell.dropout)
        for (cell, setting), row in gains_over(Results(more), "limit").items()
        if setting == "c0.1" and row.outcome == "better"
    }
    assert ahead == {("elu", False), ("softplus", False)}


def test_what_decided_which_setting_to_try_first(questions, results):
    """As docs/training-and-evaluation.md says it."""

    def better(activations, *, dropout):
        """By cell, the settings that are better than base."""
        return {
            cell: {
                setting
                for setting in results.settings(cell)
                if setting != "base" and results.contrast(cell, setting, "base").outcome == "better"
            }
            for cell in results.cells
            if cell.activation in activations and cell.dropout == dropout
        }

    assert all("a9" in found for found in better(CURVED, dropout=False).values())
    with_dropout = better(("elu", "softplus"), dropout=True)
    but = [cell for cell, found in with_dropout.items() if "limit" not in found]
    assert [(cell.network, cell.activation) for cell in but] == [("mnist-cnn", "softplus")]
    assert all("a9" in found for found in with_dropout.values())
    assert not any(better(("relu",), dropout=True).values())
    of_tanh = {cell.network: found for cell, found in better(("tanh",), dropout=True).items()}
    assert of_tanh == {
        "cifar-cnn": {*results.settings(results.cells[0])[1:]},
        "mnist-cnn": {"a5", "a9"},
        "mnist-mlp": set(),
    }
    means = {
        (cell, setting): results.contrast(cell, setting, "base").gain.mean
        for cell in results.cells
        if cell.activation in CURVED
        for setting in results.settings(cell)[1:]
    }
    for cell in (cell for cell in results.cells if cell.dataset == "cifar10"):
        assert max(results.settings(cell)[1:], key=lambda s: means[cell, s]) == "a9"
    assert set.union(*better(("relu",), dropout=False).values()) == {"a5"}
    rates = questions.chosen_rates(questions.read("learning-rates"))
    _, printed = PAPER_PROTOCOL["mnist-mlp"]
    times = {rate / printed for (_, dropout, _), rate in rates.items() if not dropout}
    assert times == {2, 10}


def test_the_numbers_on_evaluation(study):
    check_section("How to evaluate, by test accuracy", ["the 95 % t-interval excludes zero"])
    lasts = f"at epochs {study.epochs * 9 // 10 + 1} to {study.epochs}, with 95 % t-intervals"
    check_section("Which λ, evaluated in the limit", [f"both settings learn, {lasts}"])
