"""The ordinary loop beside the packs: counts, equivalence, and the sentences on them."""

import statistics
from collections import Counter

import polars as pl
import pytest
from scipy import stats

from qneurons.report.inference import ALPHA, holm
from qneurons.study.store import CELL
from tests.report.published.pages import PAPER, ROOT, check_section, plain

SETTINGS_OF_ORDINARY = 2 * 7 + 2  # two cells of the MLP in all settings, one of a CNN in two
TRAINED_LATER = "561a7eb"  # the commit of packed runs that the declared rules do not know


def ordinary_counts(publish, frame, naive):
    """How many ordinary runs are inside the prediction, of how many; the significant gaps."""
    compared = publish.compare_with_ordinary(frame, naive)
    assert len(compared) == SETTINGS_OF_ORDINARY
    inside = [
        abs(value - packed.mean) <= half
        for packed, half, values, _ in compared.values()
        for value in values
    ]
    p = holm([test.pvalue for *_, test in compared.values()])
    significant = {
        key: statistics.mean(values) - packed.mean
        for (key, (packed, _, values, _)), p in zip(compared.items(), p, strict=True)
        if p <= ALPHA
    }
    return sum(inside), len(inside), significant


def variance_test(one, other):
    """The two-sided p-value of an F test."""
    ratio = statistics.variance(one) / statistics.variance(other)
    tail = stats.f.cdf(ratio, len(one) - 1, len(other) - 1)
    return 2 * min(tail, 1 - tail)


def test_the_numbers_on_the_ordinary_loop(publish, frame):
    ordinary_runs = pl.read_parquet(PAPER / "naive.parquet")
    packed = publish.packed_runs(frame)
    inside, count, significant = ordinary_counts(publish, packed, ordinary_runs)
    compared = publish.compare_with_ordinary(packed, ordinary_runs)
    answer_of = {key: publish.judge_equivalence(row[-1])[-1] for key, row in compared.items()}
    answers = Counter(answer_of.values())
    equal = {
        (activation, dropout, setting)
        for (_, _, dropout, activation, _, setting), answer in answer_of.items()
        if answer == "equivalent"
    }
    assert equal == {
        *(("elu", True, setting) for setting in ("base", "limit", "a5", "a9")),
        *(("tanh", False, setting) for setting in ("base", "limit", "a5", "a9")),
    }
    few, many, most = sorted({len(values) for *_, values, _ in compared.values()})
    rounds = {("tanh", "base"), ("tanh", "a5")}  # declared
    assert {(key[3], key[-1]) for key, row in compared.items() if len(row[2]) == most} == rounds
    of_many = {key: row for key, row in compared.items() if len(row[2]) >= many}
    thirty, sixty = sorted({row[0].n for row in of_many.values()})
    assert {(key[3], key[-1]) for key, row in of_many.items() if row[0].n == sixty} == rounds
    then = packed.filter((pl.col("seed") < thirty) & (pl.col("commit") != TRAINED_LATER))
    before = publish.compare_with_ordinary(then, ordinary_runs)
    (of_a5_before,) = (row for key, row in before.items() if (key[3], key[-1]) == ("tanh", "a5"))
    *limits, answer = publish.judge_equivalence(of_a5_before[-1])
    assert answer == "undecided"
    gap = statistics.mean(of_a5_before[2]) - of_a5_before[0].mean
    interval_before = publish.interval(publish.Estimate(most, gap, 0.0, *limits))
    inside_before = sum(
        abs(value - mean.mean) <= half
        for mean, half, values, _ in before.values()
        for value in values
    )
    of_round = [
        abs(value - before[key][0].mean) <= before[key][1]
        for key, row in publish.compare_with_ordinary(
            packed, ordinary_runs.filter(pl.col("seed") >= many)
        ).items()
        for value in row[2]
    ]
    inside_of_round = sum(of_round)
    by_cifar = {key[-1]: row for key, row in compared.items() if key[1] == "cifar-cnn"}
    gain_of_loop, gain_of_pack = (
        mean(by_cifar["a5"]) - mean(by_cifar["base"])
        for mean in (lambda row: statistics.mean(row[2]), lambda row: row[0].mean)
    )
    spreads = [
        variance_test(publish.endpoint(packed.filter(**same))["test_accuracy"], values)
        for key, (*_, values, _) in compared.items()
        if len(values) > 3 and (same := dict(zip((*CELL, "setting"), key, strict=True)))
    ]
    assert min(holm(spreads)) > ALPHA
    last = [publish.last_epoch(rows) for rows in (packed, ordinary_runs)]
    inside_last, _, significant_last = ordinary_counts(publish, *last)
    doubted = {"network": "mnist-mlp", "activation": "elu", "dropout": True}
    first_ten, all_seeds, loop = (
        publish.endpoint(rows.filter(**doubted)) for rows in (frame, packed, ordinary_runs)
    )
    a5, more_a5, loop_a5 = (
        100 * ends.filter(setting="a5")["test_accuracy"].mean()
        for ends in (first_ten, all_seeds, loop)
    )
    compared_at_last = publish.compare_with_ordinary(*last)
    at_last = Counter(publish.judge_equivalence(row[-1])[-1] for row in compared_at_last.values())
    assert at_last.total() == at_last["equivalent"] + at_last["undecided"]
    check_section(
        "The same by an ordinary loop",
        [
            "the CIFAR-CNN on the H200, with convolutions in tf32",
            f"an interval for 95 % of single runs. {inside} of {count} ordinary runs",
            f"({0.95 * count:.0f} are expected), at the last epoch alone {inside_last}",
            f"{len(significant)} of {SETTINGS_OF_ORDINARY} differences of means are significant, "
            f"and {len(significant_last)} at the last epoch",
            f"equal within ±{100 * publish.MARGIN:g} points",
            "the 90 % interval",
            f"Of {SETTINGS_OF_ORDINARY} settings {answers['equivalent']} are equivalent, "
            f"{answers['different']} are different and {answers['undecided']} are undecided",
            f"At the last epoch alone (in parentheses in the table) {at_last['equivalent']} are "
            f"equivalent and {at_last['undecided']} undecided",
            f"have {many} ordinary runs or more, and all of these {len(equal)} are equivalent",
            f"(each by a test at the level {ALPHA}",
            f"All others have {few} runs each",
            f"is {100 * gain_of_loop:+.2f} points over in the ordinary runs, and "
            f"{100 * gain_of_pack:+.2f} points in the packed ones",
            f"in the {len(spreads)} settings with more than 3 ordinary runs",
            f"the smallest p is {min(spreads):.3f}",
            f"packed runs beyond {first_ten['seed'].n_unique()} seeds also settled",
            f"end at {a5:.2f} %, {a5 - loop_a5:.3f} points above the ordinary ones",
            f"All {thirty} end at {more_a5:.2f} %",
        ],
    )
    rules = plain((ROOT / "docs" / "declared-rules.md").read_text())
    for phrase in (
        f"time for the seeds {many} to {most - 1}. After them was still undecided, "
        f"{interval_before} points. {inside_before} of the {count} ordinary runs of all settings "
        f"were inside of the prediction, and {inside_of_round} of the {len(of_round)} new ones",
        f"With the seeds {thirty} to {sixty - 1} is equivalent",
    ):
        assert phrase in rules


@pytest.mark.parametrize(
    ("shift", "spread", "answer"),
    [
        (0.0, 1e-4, "equivalent"),
        (4e-4, 1e-4, "equivalent"),
        (-4e-4, 1e-4, "equivalent"),
        (4.7e-4, 1e-4, "undecided"),  # the 90 % interval is ± 5.1e-5
        (0.0, 1.5e-3, "undecided"),
        (6e-4, 1e-4, "different"),
        (-6e-4, 1e-4, "different"),
    ],
)
def test_two_one_sided_tests(publish, shift, spread, answer):
    packed = [0.98 + spread * step for step in (-1, 1) * 10]
    ordinary = [value + shift for value in packed]
    test = stats.ttest_ind(ordinary, packed, equal_var=False)
    *ends, found = publish.judge_equivalence(test)
    assert found == answer
    one_sided = [
        stats.ttest_ind([v + s * publish.MARGIN for v in ordinary], packed, alternative=side).pvalue
        for s, side in ((1, "greater"), (-1, "less"))
    ]
    assert (max(one_sided) < 0.05) == (answer == "equivalent")
    assert sum(ends) / 2 == pytest.approx(shift, abs=1e-12)
