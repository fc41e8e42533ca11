"""Each setting at its own learning rate: the choice, the test, and the sentences on them."""

import re
from collections import Counter

import polars as pl
import pytest

from qneurons.report.inference import ALPHA
from qneurons.study.data import DATASETS
from qneurons.study.runs import PAPER_PROTOCOL
from tests.report.published.pages import check_section, own_rates

RATE = "learning_rate"


def test_who_gains_at_its_own_rate(questions):
    """As the opening of RESULTS and README say it."""
    own = own_rates(questions)
    curved = {cell for cell, _ in own}
    assert {key for key, (_, outcome) in own.items() if outcome == "better"} == {
        *((cell, "limit") for cell in curved if not cell.startswith("tanh")),
        *((cell, "a5") for cell in curved if cell.startswith("softplus")),
    }
    assert {key for key, (_, outcome) in own.items() if outcome == "worse"} == {
        *(("tanh, no dropout", "limit"), ("tanh, dropout", "limit"), ("tanh, dropout", "a5")),
    }


def test_the_numbers_on_rates(publish, questions, study):
    own, printed = (
        {key: text for key, (text, _) in own_rates(questions, column).items()} for column in (4, 5)
    )
    rows = questions.read("learning-rates", with_paper=True)
    held = rows.filter(pl.col("held_out") > 0)
    tested = dict(questions.with_rate(rows.filter(held_out=0)).group_by(*questions.CHOICE, RATE))
    rates = questions.chosen_rates(held)
    (_, paper_rate) = PAPER_PROTOCOL["mnist-mlp"]
    late = held.filter(pl.col("epoch") > held["epoch"].max() * 9 // 10)
    medians = late.group_by(*questions.CHOICE, RATE, "seed").agg(pl.col("test_accuracy").median())
    means = medians.group_by(*questions.CHOICE, RATE).agg(pl.col("test_accuracy").mean())
    by_median = {
        key: rows.sort("test_accuracy")[RATE][-1] for key, rows in means.group_by(questions.CHOICE)
    }
    other = {key: rate for key, rate in by_median.items() if rate != rates[key]}
    assert other == {("softplus", dropout, "base"): 0.5 for dropout in (False, True)}
    by_three = questions.chosen_rates(held.filter(pl.col("seed") < 3))
    assert {key for key in rates if by_three[key] != rates[key]} == {
        *(("tanh", False, "base"), ("tanh", False, "limit"), ("elu", False, "base")),
        *(("softplus", False, "base"), ("elu", True, "base"), ("elu", True, "a5")),
    }
    assert by_three["softplus", False, "base"] == by_three["elu", True, "base"] == 0.5
    assert rates["softplus", False, "base"] == rates["elu", True, "base"] == 0.1
    three = pl.concat([held.filter(pl.col("seed") < 3), rows.filter(held_out=0)])
    gaining, gaining_by_three = (
        Counter(row[1] for row in questions.rates_table(part).rows if re.match(r"\+.*\]\*", row[4]))
        for part in (rows, three)
    )

    def at(f, dropout, rate):
        return f"{100 * tested[f, dropout, 'base', rate]['test_accuracy'].mean():.2f}"

    of_half = publish.interval(
        publish.estimate(
            questions.paired_gain(
                tested["elu", True, "limit", rates["elu", True, "limit"]],
                tested["elu", True, "base", 0.5],
            )
        )
    )

    def ends(f, setting, chosen, *, dropout=False):
        key = f, dropout, setting
        return tested[*key, chosen if isinstance(chosen, float) else chosen[key]]

    def gain(f, setting, *chosen):
        of_setting, of_base = chosen
        gains = questions.paired_gain(ends(f, setting, of_setting), ends(f, "base", of_base))
        return publish.interval(publish.estimate(gains))

    for f, setting in (("tanh", "base"), ("elu", "base")):  # "worse ones"
        worse, better = (ends(f, setting, by)["test_accuracy"].mean() for by in (by_three, rates))
        assert worse < better
    for f in ("elu", "softplus"):
        for dropout in (False, True):
            one, other = (ends(f, s, rates, dropout=dropout) for s in ("a5", "limit"))
            found = publish.estimate(questions.paired_gain(one, other))
            assert found.low < 0 < found.high
    limits = sorted(float(own[key].split()[0]) for key in own if key[1] == "limit")
    tanh = [100 * ends("tanh", "base", by)["test_accuracy"].mean() for by in (paper_rate, rates)]
    free, dropped = "softplus, no dropout", "softplus, dropout"
    first, epochs = held["epoch"].max() * 9 // 10 + 1, held["epoch"].max()
    (left,) = set(held["held_out"])
    images = DATASETS["mnist"].num_train
    tried = questions.read("learning-rates").filter(pl.col("precision") == "fp32")
    assert tried.select("activation", "dropout", "learning_rate", "held_out").unique().rows() == [
        ("softplus", True, 0.1, 0)
    ]
    curved = {cell for cell, _ in own}
    check_section(
        "At other learning rates",
        [
            f"{images - left:,} of the {images:,} training images at {held[RATE].n_unique()} rates",
            f"on the other {left:,}, at epochs {first} to {epochs}, mean over "
            f"{held['seed'].n_unique()} seeds",
            f"at its own rate, with {len({run.seed for run in study.runs})} seeds, and tested",
            "with 95 % t-intervals",
            f"p ≤ {ALPHA}",
            f"the {len(own)} gains of the column",
            f"limit gains in {gaining['limit']} of {len(curved)} cells",
            f"from {limits[2]:+.3f} to {limits[-1]:+.3f} points",
            f"softplus alone, {own[free, 'a5']} points without dropout and {own[dropped, 'a5']} "
            "points with it",
            "If that is 0.5, a larger rate",
            "with dropout at the rate 0.1 were trained on a CPU in float32",
            "all others on the H200 in tf32",
            f"{held['seed'].n_unique()} seeds can show",
            f"The limit is behind by {own['tanh, no dropout', 'limit']} points without dropout and "
            f"{own['tanh, dropout', 'limit']} points with it, and by {own['tanh, dropout', 'a5']}",
            f"gains {printed['tanh, no dropout', 'a5']} points at the paper's rate, but only "
            f"{own['tanh, no dropout', 'a5']} points",
            f"rises from {tanh[0]:.2f} to {tanh[1]:.2f} %",
            "With 50,000 images the last batch of an epoch has only 16",
            "have the rate 0.5",
            f"limit gains {gain('softplus', 'limit', rates, 0.5)} points and "
            f"{gain('softplus', 'a5', rates, 0.5)} points",
            "At first 3 seeds chose the rates",
            f"With {held['seed'].n_unique()} seeds six settings have",
            f"now gains in {gaining['a5']} cells instead of {gaining_by_three['a5']}, and the "
            f"limit in {gaining['limit']} instead of {gaining_by_three['limit']}",
            "Without dropout, 3 seeds had chosen",
            f"gained {gain('tanh', 'a5', by_three, by_three).split()[0]} and "
            f"{gain('elu', 'a5', by_three, by_three).split()[0]} points",
            f"chosen 0.5, which tests higher ({at('softplus', False, 0.5)} and "
            f"{at('elu', True, 0.5)} %) than 0.1 ({at('softplus', False, 0.1)} and "
            f"{at('elu', True, 0.1)} %)",
            f"Over plain ELU at 0.5 the limit gains {of_half} points and not "
            f"{own['elu, dropout', 'limit'].split()[0]}",
        ],
    )


def test_a_rate_at_which_some_runs_learn_nothing_is_named(questions, frame):
    runs = frame.filter(network="mnist-mlp", activation="elu", dropout=False, setting="base")
    loss = pl.when(pl.col("seed") == 0).then(2.3).otherwise("train_loss")
    lost = runs.with_columns(train_loss=loss, held_out=pl.lit(10_000, pl.Int64))
    (row,) = questions.held_out_table(lost).rows
    assert row[-1] == "**learns nothing (1 of 10 runs)**"


def test_every_setting_is_tested_at_the_rate_that_held_out_images_choose(questions, frame):
    cell = {"network": "mnist-mlp", "activation": "elu", "dropout": False}
    printed = frame.filter(pl.col("setting").is_in(["base", "limit"]), **cell)
    fast = printed.with_columns(
        pl.col("test_accuracy") + pl.when(setting="limit").then(0.02).otherwise(-0.01),
        learning_rate=pl.lit(0.5),
        protocol=pl.lit("learning rate 0.5"),
    )
    tested = pl.concat([printed, fast])
    held_out = tested.with_columns(held_out=pl.lit(10_000, pl.Int64))
    base, limit = questions.rates_table(pl.concat([tested, held_out])).rows
    assert base[:3] == ("elu, no dropout", "base", "0.05")
    assert re.fullmatch(r"\S+ \[.*\]\* \(\S+\*\)", limit[-2])  # also at the last epoch
    assert limit[:3] == ("elu, no dropout", "limit", "0.5")
    own, common = (float(gain.split()[0]) for gain in limit[-2:])
    assert own - common == pytest.approx(2)
    assert float(limit[3]) - float(base[3]) == pytest.approx(own, abs=0.011)
    untested = pl.concat([printed, held_out])
    assert questions.rates_table(untested).rows == ()
