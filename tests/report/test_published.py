"""What is published follows from the published rows, and from whole cells alone."""

import math
import re
import statistics
import sys
import tarfile
from collections import Counter
from pathlib import Path

import pytest

from qneurons.schedules import Annealed
from qneurons.study.data import DATASETS
from qneurons.study.networks import EPS, MOMENTUM
from qneurons.study.runs import PAPER_PROTOCOL, study_names
from qneurons.study.spec import load_study
from qneurons.study.store import CELL

pl = pytest.importorskip("polars")
for package in ("scipy", "matplotlib"):
    pytest.importorskip(package)

import numpy as np
from scipy import stats

from qneurons.comparison.store import TrialStore
from qneurons.report.claims import CURVED, attributions, judge
from qneurons.report.claims.cases import underfits
from qneurons.report.claims.evidence import MARGIN
from qneurons.report.claims.noise_or_limit import attribute, split_by_mean
from qneurons.report.claims.verdicts import ANSWERS
from qneurons.report.comparisons import is_q
from qneurons.report.inference import ALPHA, holm, paired_test
from qneurons.report.results import Results

ROOT = Path(__file__).parents[2]
PAPER = ROOT / "results" / "paper"
PAPER_STUDIES = {f"paper-{network}" for network in PAPER_PROTOCOL}
RATE = "learning_rate"
NAMES = {"elu": "ELU", "relu": "ReLU"}  # as sentences write them; the others are written as here
WORDS = ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"]


@pytest.fixture
def publish(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    import publish

    return publish


@pytest.fixture
def questions(publish):
    import publish_questions

    return publish_questions


@pytest.fixture
def modern(monkeypatch, tmp_path):
    """The module that publishes modern networks, and a folder with their published stores."""
    for folder in ("benchmarks", "examples"):
        monkeypatch.syspath_prepend(ROOT / folder)
    import publish_modern

    with tarfile.open(ROOT / "results" / "modern" / "store.tar.xz") as archive:
        archive.extractall(tmp_path, filter="data")
    return publish_modern, tmp_path / "modern"


@pytest.fixture(scope="module")
def study():
    return load_study("paper")


@pytest.fixture(scope="module")
def frame():
    return pl.read_parquet(PAPER / "rows.parquet")


@pytest.fixture(scope="module")
def results(frame):
    return Results(frame)


def plain(text):
    """Words only: no images, no code, no generated parts, of links their text."""
    text = re.sub(r"<!-- (?!results)([\w ]+) -->.*?<!-- /\1 -->", "", text, flags=re.DOTALL)
    text = re.sub(r"!\[[^\]]*\]\([^)]*\)|<!--.*?-->|`[^`]*`", "", text)
    return " ".join(re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", text).split())


def readme():
    page = (ROOT / "README.md").read_text()
    return plain(page[page.index("<!-- results -->") : page.index("<!-- /results -->")])


def results_page():
    return plain((ROOT / "RESULTS.md").read_text())


@pytest.fixture
def digits(modern):
    """The outcome of the residual MLP."""
    publish_modern, stores = modern
    store = TrialStore.open(stores / "digits" / "store", readonly=True)
    return publish_modern.Outcome(publish_modern.modern.TASKS["digits"], store)


@pytest.fixture
def modern_findings(publish, digits):
    """The phrases with numbers on modern networks that both pages have."""
    gains = {cell: row for cell, row in digits.over_base.items() if row and cell[1] != "rrelu"}
    better, worse = (
        {cell for cell, row in gains.items() if row.outcome == outcome}
        for outcome in ("better", "worse")
    )
    annealed = digits.task.annealed
    assert better == {*(("elu", s) for s in ("limit", "c0.1", annealed)), ("tanh", "c0.1")}
    assert worse == {("mish", annealed)}
    ends = {cell: final.estimate.mean for cell, final in digits.finals.items()}
    top, mean = max(ends.items(), key=lambda item: item[1])
    assert top == ("gelu", "base")
    elu, tanh = (digits.over_base_common[f, "limit"].gain for f in ("elu", "tanh"))
    own_tanh = publish.interval(gains["tanh", "limit"].gain)
    second, mean_of_second = sorted(ends.items(), key=lambda item: item[1])[-2]
    assert second == ("silu", "c0.1")
    return {
        "README": [
            f"the limit gains {publish.interval(elu)} points with ELU and "
            f"{publish.interval(tanh)} with tanh, at one learning rate",
            f"Plain GELU has the highest mean, {100 * mean:.2f} %",
        ],
        "RESULTS": [
            f"by the limit {publish.interval(elu)} points at the common rate, and "
            f"{publish.interval(gains['elu', 'limit'].gain)} points at the rates",
            f"by the limit {publish.interval(tanh)} points.",
            f"significantly, {publish.interval(gains['tanh', 'c0.1'].gain)} points",
            f"loses {publish.interval(gains['mish', annealed].gain)} points.",
            f"the limit gains {own_tanh} points",
            f"highest mean**, {100 * mean:.2f} %; of SiLU has {100 * mean_of_second:.2f} %",
            f"The {len(digits.task.final_seeds)} test sets are drawn from the same 1,797 rows",
        ],
    }


def test_modern_networks_at_one_rate(digits):
    common = digits.over_base_common
    gains = {cell: row for cell, row in common.items() if row and cell[1] != "rrelu"}
    better = {cell for cell, row in gains.items() if row.outcome == "better"}
    settings = "limit", "c0.1", digits.task.annealed
    assert better == {(f, setting) for f in ("elu", "tanh") for setting in settings}
    assert not [cell for cell, row in gains.items() if row.outcome == "worse"]
    ends = [final.estimate.mean for final in digits.finals_common.values()]
    assert max(ends) == digits.finals["gelu", "base"].estimate.mean
    lowest = sorted(digits.finals_common, key=lambda c: digits.finals_common[c].estimate.mean)[:2]
    assert set(lowest) == {("elu", "base"), ("tanh", "base")}
    for activation in ("silu", "mish"):
        of_it = [f.estimate.mean for c, f in digits.finals_common.items() if c[0] == activation]
        assert max(ends) - max(of_it) < 0.001
    unlucky = {
        cell
        for cell, final in digits.finals.items()
        if final.estimate.mean < digits.finals_common[cell].estimate.mean
    }
    annealed = digits.task.annealed
    of_tanh = {("tanh", setting) for setting in ("limit", "c0.1", annealed)}
    assert unlucky == {("elu", "base"), ("mish", annealed)} | of_tanh
    largest = {cell for cell, (_, r) in digits.chosen.items() if r == max(digits.task.rates)}
    assert {cell for cell in largest if cell[1] == "base"} == {("elu", "base"), ("tanh", "base")}


def test_tables_of_modern_networks_follow_from_the_published_stores(modern, tmp_path, monkeypatch):
    publish_modern, stores = modern
    page = tmp_path / "RESULTS.md"
    page.write_text("<!-- modern -->\n<!-- /modern -->\n")
    monkeypatch.setattr(publish_modern, "ROOT", tmp_path)
    monkeypatch.setattr(publish_modern, "MODERN", tmp_path / "made")
    monkeypatch.setattr(sys, "argv", ["publish_modern.py", str(stores)])
    publish_modern.main()
    assert page.read_text() in (ROOT / "RESULTS.md").read_text()
    made, published = (
        re.sub(r"- report made with: .*", "", (folder / "digits" / "report.md").read_text())
        for folder in (tmp_path / "made", ROOT / "results" / "modern")
    )
    assert made == published


def own_rates(questions, column=4):
    """The gains in the table of rates, by cell and setting: the interval and the outcome."""
    table = questions.rates_table(questions.read("learning-rates", with_paper=True))
    return {
        (row[0], row[1]): (
            row[column].partition("]")[0] + "]",
            ("better" if row[column][0] == "+" else "worse") if "]*" in row[column] else "unclear",
        )
        for row in table.rows
        if row[1] != "base"
    }


@pytest.fixture
def findings(publish, questions, results, frame, study):
    """The phrases with numbers, computed from the rows: those of both pages, and of RESULTS."""
    outcomes = Counter(
        results.contrast(cell, setting, "base").outcome
        for cell in results.cells
        if cell.activation in CURVED
        for setting in filter(is_q, results.settings(cell))
    )
    lost = {cell: results.untrained(cell) for cell in results.cells if results.untrained(cell)}
    assert [(cell.network, cell.activation, cell.dropout) for cell in lost] == [
        *(("mnist-cnn", "tanh", dropout) for dropout in (False, True)),
    ]
    assert all(list(counts) == ["limit", "c0.02", "c0.1"] for counts in lost.values())
    failed = [(cell, setting) for cell, counts in lost.items() for setting in counts]
    failing = sum(len(results.final(*place).values) for place in failed)
    of_mnist = publish.endpoint(frame.filter(dataset="mnist"))
    q = [setting for setting in of_mnist["setting"].unique() if is_q(setting)]
    gains = {setting: publish.difference(of_mnist, setting, "base") for setting in q}
    best = max(gains, key=lambda setting: gains[setting][0].mean)
    assert best == "a9"
    gain, num_cells = gains[best]
    cells = [
        cell for cell in results.cells if cell.dataset == "mnist" and cell.activation in CURVED
    ]
    single = [results.contrast(cell, best, "base").gain.mean for cell in cells]
    assert len(single) == num_cells
    small = Counter(
        results.contrast(cell, "c0.1", "base").outcome
        for cell in cells
        if results.learns(cell, "c0.1")
    )
    assert small["worse"] == 1
    idle_losses = sum(
        is_q(setting) and results.contrast(cell, setting, "base").outcome == "worse"
        for cell, setting in failed
    )
    cifar = [cell for cell in results.cells if cell.dataset == "cifar10"]
    free_elu, *_ = cifar
    assert [(cell.activation, cell.dropout) for cell in cifar] == [
        *(("elu", False), ("tanh", False), ("elu", True), ("tanh", True))
    ]

    for cell in cifar:
        gains = {s: results.contrast(cell, s, "base").gain.mean for s in results.settings(cell)[1:]}
        assert max(gains, key=gains.get) == best
    of_limit = {cell: results.contrast(cell, "limit", "base").outcome for cell in cifar}
    assert of_limit == dict.fromkeys(cifar, "better") | {free_elu: "worse"}
    own = own_rates(questions)
    curved = {cell for cell, _ in own}
    assert {key for key, (_, outcome) in own.items() if outcome == "better"} == {
        *((cell, "limit") for cell in curved if not cell.startswith("tanh")),
        *((cell, "a5") for cell in curved if cell.startswith("softplus")),
    }
    assert {key for key, (_, outcome) in own.items() if outcome == "worse"} == {
        *(("tanh, no dropout", "limit"), ("tanh, dropout", "limit"), ("tanh, dropout", "a5")),
    }
    *verdicts, _ = judge(results)
    answers = Counter(verdict.answer for verdict in verdicts)
    holds, fails, undecided, cannot_hold, cannot_fail = (answers[answer] for answer in ANSWERS)
    at_once = significant_at_once(results)
    both = [
        f"{len(results.cells)} of the paper's {len({run.cell for run in study.runs})} cells",
        f"{sum(sum(counts.values()) for counts in lost.values())} of {failing} runs",
        f"limit gains in {2 * len(curved) // 3} of {len(curved)} cells",
        f"{publish.interval(gain, form='+.2f')} points on average over {num_cells} cells",
        f"the paper's {len(verdicts)} claims",
        f"{holds} hold, {fails} do not hold, "
        f"{cannot_hold} can no longer hold, {cannot_fail} can no longer fail "
        f"and {undecided} is undecided",
    ]
    of_results = [
        f"in {outcomes['better']} of {outcomes.total()} comparisons and worse in "
        f"{outcomes['worse']} (p ≤ {ALPHA}, corrected within each cell; "
        f"{at_once[True]} and {at_once[False]} if corrected over all at once). "
        f"In {WORDS[idle_losses]} of the {WORDS[outcomes['worse']]} it learns nothing",
        f"between {100 * min(single):+.2f} and {100 * max(single):+.2f} points",
        f"gains in {small['better']} of the {small.total()} cells where it learns, and loses in "
        f"{WORDS[small['worse']]}",
        f"points of test accuracy with ELU and tanh on CIFAR-10; on MNIST it gains only "
        f"{100 * gain.mean:+.2f} on average",
        f"are trained so far, {WORDS[len(cifar)]} of them on CIFAR-10",
    ]
    return {
        "README": [*both, "CIFAR-10"],
        "RESULTS": [*of_results, *both, f"p ≤ {ALPHA}", "CIFAR-10"],
    }


def significant_at_once(results):
    """How many gains and losses of q settings survive a correction over all comparisons."""
    learning = [
        row
        for row in results.contrasts["test_accuracy"]
        if results.learns(row.cell, row.setting, row.reference)
    ]
    p = holm([paired_test(np.array([*row.by_seed.values()]), len(learning))[1] for row in learning])
    return Counter(
        row.gain.mean > 0
        for row, q in zip(learning, p, strict=True)
        if q <= ALPHA and row.reference == "base" and is_q(row.setting)
        if row.cell.activation in CURVED
    )


def check(text, phrases):
    """Every phrase is in the text, and no digit is in it outside of the phrases."""
    missing = []
    for phrase in phrases:
        missing += [phrase] * (phrase not in text)
        text = text.replace(phrase, " ")
    assert not missing
    assert not re.findall(r"\S*\d\S*", text)


def test_every_number_of_the_readme_is_computed_from_the_rows(
    publish, questions, findings, modern_findings, results
):
    from pages import bare_markdown

    table = questions.moved_images_table(questions.read_moved())
    moves = {row[:3]: row[3:] for row in table.rows}
    key = "cifar-cnn, elu, dropout", "shift=0.1 flip=horizontal"
    seeds, mean, *_ = moves[*key, "base"]
    highest = max(
        final.estimate.mean
        for final in results.finals["test_accuracy"]
        if final.cell[:4] == ("cifar10", "cifar-cnn", True, "elu")
    )
    assert float(mean.split()[0]) > 100 * highest
    table = (ROOT / "README.md").read_text()
    assert bare_markdown(publish.cifar_table(results)) in table
    phrases = [
        "λ annealed from 9",
        f"plain ELU with dropout has {mean.split()[0]} %",
        f"gains {moves[*key, 'a9'][2].partition(' (')[0]} points over it, with {seeds} seeds",
    ]
    check(readme(), [*findings["README"], *modern_findings["README"], *phrases])


def test_what_brings_the_gain(results):
    """As the section on the noise or the limit says it, by network."""
    groups = {group.where: group.answer for group in attributions(results)[:-1]}
    assert groups == {
        "elu without dropout": "the noise",
        "elu with dropout": "both",
        "softplus without dropout": "undecided",
        "softplus with dropout": "the limit",
        "tanh without dropout": "both",
        "tanh with dropout": "both",
    }
    parts = {}
    for cell in results.cells:
        q = [s for s in results.settings(cell) if is_q(s)]
        if cell.activation in CURVED and results.learns(cell, "base", "limit", *q):
            found = attribute(results, "", [(cell, setting) for setting in q])
            parts[cell.network, cell.activation, cell.dropout] = found.limit, found.noise

    def signs(network, activation, dropout):
        """Of the limit's part and the noise's, where their intervals leave out 0."""
        return tuple(
            (part.low > 0) - (part.high < 0) for part in parts[network, activation, dropout]
        )

    assert signs("cifar-cnn", "tanh", False) == signs("cifar-cnn", "tanh", True) == (1, 1)
    for dropout in (False, True):
        limit, noise = parts["cifar-cnn", "tanh", dropout]
        assert limit.low > noise.high  # most of the gain
    assert signs("mnist-mlp", "tanh", False) == (-1, 1)
    assert signs("mnist-mlp", "tanh", True) == (-1, 0)
    gaining = {
        cell.dropout: {
            setting
            for setting in results.settings(cell)[1:]
            if results.contrast(cell, setting, "base").outcome == "better"
        }
        for cell in results.cells
        if (cell.network, cell.activation) == ("mnist-mlp", "tanh")
    }
    assert gaining == {False: {"a5", "a9"}, True: set()}
    assert signs("cifar-cnn", "elu", False) == (-1, 1)
    assert signs("cifar-cnn", "elu", True) == (1, 1)
    assert signs("mnist-cnn", "elu", False)[0] == signs("mnist-cnn", "elu", True)[0] == 1
    assert [signs("mnist-mlp", "elu", dropout)[0] for dropout in (False, True)] == [0, 1]
    over_limit = {
        (cell.network, cell.dropout): results.contrast(cell, "a9", "limit")
        for cell in results.cells
        if cell.activation == "elu" and cell.dataset == "mnist"
    }
    ahead = {key for key, row in over_limit.items() if row.outcome == "better"}
    assert ahead == {("mnist-cnn", False)}
    assert over_limit["mnist-mlp", False].gain.low > 0
    assert max(over_limit[network, True].gain.low for network, _ in over_limit) < 0
    assert signs("mnist-mlp", "softplus", False) == (0, 0)
    assert signs("mnist-mlp", "softplus", True) == (1, 0)


SETTINGS_OF_ORDINARY = 2 * 7 + 2  # two cells of the MLP in all settings, one of a CNN in two


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


def test_every_number_of_the_results_is_computed_from_the_rows(
    publish, questions, findings, modern_findings, results, frame, study, digits
):
    settings = {run.setting for run in study.runs}
    seeds = len({run.seed for run in study.runs})
    first = results.final(results.cells[0], "base").first
    (rate,) = {run.learning_rate for run in study.runs if run.network == "mnist-cnn"}
    cells = Counter(network for _, network, *_ in {run.cell for run in study.runs})
    there = Counter(cell.network for cell in results.cells)
    rates = questions.read("tanh-normalisation")
    ordinary = pl.read_csv(PAPER / "naive-tanh-cnn.csv")
    ends = ordinary.filter(epoch=ordinary["epoch"].max())
    ends = ends.filter(pl.col("setting").is_in(rates["setting"].unique().to_list()))
    assert set(rates["activation"]) == set(ends["activation"]) == {"tanh"}
    assert ends["seed"].n_unique() == 1
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
    before = publish.compare_with_ordinary(packed.filter(pl.col("seed") < thirty), ordinary_runs)
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
    last = [rows.filter(epoch=study.epochs) for rows in (packed, ordinary_runs)]
    inside_last, _, significant_last = ordinary_counts(publish, *last)
    doubted = {"network": "mnist-mlp", "activation": "elu", "dropout": True}
    first_ten, all_seeds, loop = (
        publish.endpoint(rows.filter(**doubted)) for rows in (frame, packed, ordinary_runs)
    )
    a5, more_a5, loop_a5 = (
        100 * ends.filter(setting="a5")["test_accuracy"].mean()
        for ends in (first_ten, all_seeds, loop)
    )
    small, _ = publish.difference(publish.endpoint(frame), "c0.02", "limit")
    assert small.low < 0 < small.high  # they cannot be told apart
    losses = [
        publish.difference(publish.endpoint(part), "a9", "base", "test_loss")[0]
        for part in (frame.filter(dataset=name) for name in ("mnist", "cifar10"))
    ]
    assert losses[0].low < 0 < losses[0].high  # the same within its interval
    of_mnist = publish.endpoint(frame.filter(dataset="mnist"))
    of_a5, _ = publish.difference(of_mnist, "a5", "base")
    by_cell = {
        key: 1000 * publish.difference(ends, "a9", "base", "test_loss")[0].mean
        for key, ends in of_mnist.filter(pl.col("activation").is_in(CURVED)).group_by(CELL)
    }
    cell_losses = sorted(by_cell.values())
    lowest, highest = (min(by_cell, key=by_cell.get), max(by_cell, key=by_cell.get))
    assert lowest[1:4] == ("mnist-cnn", True, "elu")
    assert highest[1:4] == ("mnist-mlp", True, "tanh")
    lower = publish.Estimate(losses[1].n, -losses[1].mean, 0.0, -losses[1].high, -losses[1].low)
    level = f"{100 * (1 - ALPHA):.0f} %"
    accuracies = {
        row["setting"]: f"{100 * row['test_accuracy']:.2f}" for row in ends.iter_rows(named=True)
    }
    noise = [
        contrasts[0].difference.mean
        for (cell, _), contrasts in split_by_mean(
            Results(questions.read("mean-of-a5", with_paper=True))
        ).items()
        if not cell.dropout
    ]
    of_means, (within, overall) = differences_from_means(questions)
    underfit, by_noise = cases_of_underfitting(results)
    compared_at_last = publish.compare_at_last(packed, ordinary_runs)
    at_last = Counter(publish.judge_equivalence(row[-1])[-1] for row in compared_at_last.values())
    assert at_last.total() == at_last["equivalent"] + at_last["undecided"]
    held = questions.read("learning-rates").filter(pl.col("held_out") > 0)
    (left,) = set(held["held_out"])
    own = {key: text for key, (text, _) in own_rates(questions).items()}
    tried = questions.read("learning-rates").filter(pl.col("precision") == "fp32")
    assert tried.select("activation", "dropout", "learning_rate", "held_out").unique().rows() == [
        ("softplus", True, 0.1, 0)
    ]
    moved_phrases = phrases_on_moved_images(publish, questions, frame)
    table = questions.normalisation_table(rates)
    behind = {
        row[1]: float(row[table.columns.index("base")]) - float(row[table.columns.index("limit")])
        for row in table.rows
        if row[0] == "mnist-cnn-no-norm"
    }
    images = DATASETS["mnist"].num_train
    text = " ".join((ROOT / "RESULTS.md").read_text().split())
    assert ", ".join(f"`{setting}` {number}" for setting, number in accuracies.items()) in text
    phrases = [
        *phrases_on_rates(publish, questions),
        *(f"{network}: {there[network]} of {total} cells" for network, total in cells.items()),
        f"trained in {len(settings)} settings with {seeds} seeds, for {study.epochs} epochs",
        "and anneal λ from 1, 5 and 9",
        f"the gain in test accuracy over at epochs {first}–{study.epochs}",
        f"mean over {seeds} seeds and {level} interval",
        f"its mean over epochs {first} to {study.epochs}",
        f"gains {publish.interval(of_a5, form='+.2f')} points on average, too",
        f"from {cell_losses[0]:+.1f} (CNN with ELU and dropout)",
        f"to {cell_losses[-1]:+.1f} (MLP with tanh and dropout)",
        f"both settings learn, at epochs {first} to {study.epochs}",
        f"after {rates['epoch'].max()} epochs, mean over {rates['seed'].n_unique()} seeds",
        f"The paper's learning rate is {rate}",
        f"({ends['epoch'][0]} epochs, one seed,",
        *accuracies.values(),
        f"the {level} t-interval excludes zero",
        f"with {level} t-intervals",
        f"with {level} intervals over seeds and over cells",
        f"λ = 0.02 cannot be told apart from the limit ({publish.interval(small)} points)",
        f"an interval for {level} of single runs. {inside} of {count} ordinary runs",
        f"({0.95 * count:.0f} are expected), at the last epoch alone {inside_last}",
        f"{len(significant)} of {SETTINGS_OF_ORDINARY} differences of means are significant, and "
        f"{len(significant_last)} at the last epoch",
        f"(each by a test at the level {ALPHA}",
        f"still undecided, {interval_before} points, and {inside_before} of the {count} runs were "
        f"inside, {inside_of_round} of the {len(of_round)} new ones",
        f"end at {a5:.2f} %, {a5 - loop_a5:.3f} points above the ordinary ones",
        f"All {thirty} end at {more_a5:.2f} %",
        *phrases_on_more_seeds(publish, frame),
        f"by {publish.interval(losses[0], 1000, '+.1f')} thousandths on average",
        f"it is lower by {publish.interval(lower, 1000, '.1f')} thousandths",
        f"equal within ±{100 * publish.MARGIN:g} points",
        "the 90 % interval",
        f"MNIST-MLP with {seeds} seeds",
        f"all {len(noise)} activations, from {100 * min(noise):+.2f} points (softplus) to "
        f"{100 * max(noise):+.2f} points (tanh)",
        f"{images - left:,} of the {images:,} training images at "
        f"{held['learning_rate'].n_unique()} rates",
        f"Corrected over all {len(of_means)} differences of the table, {overall} of its {within} "
        f"stars remain, and of these {WORDS[len(noise)]} gains only that with tanh",
        f"Of the {len(underfit)} cases that speak for under-fitting {len(by_noise)} rest on",
        f"At the last epoch alone (in parentheses in the table) {at_last['equivalent']} are "
        f"equivalent and {at_last['undecided']} undecided",
        f"on the other {left:,}, at epochs {first} to {study.epochs}, mean over "
        f"{held['seed'].n_unique()} seeds",
        *("6eb0707-dirty", "4209449", "7a503e6"),
        *moved_phrases,
        f"at its own rate, with {seeds} seeds, and tested",
        f"An ordinary training loop with batch normalisation at {rate} ends",
        f"At {rate} then does not differ measurably from ; at 0.02 and 0.01 it is "
        f"{behind['0.02']:.2f} and {behind['0.01']:.2f} points lower",
        "about 1/|x|",
        f"Of {SETTINGS_OF_ORDINARY} settings {answers['equivalent']} are equivalent, "
        f"{answers['different']} are different and {answers['undecided']} are undecided",
        f"in the {len(spreads)} settings with more than 3 ordinary runs",
        f"the smallest p is {min(spreads):.3f}",
        f"have {many} ordinary runs or more, and all of these {len(equal)} are equivalent",
        f"runs with the seeds {many} to {most - 1}",
        f"packed runs with the seeds {thirty} to {sixty - 1}",
        f"All others have {few} runs each",
        "the CIFAR-CNN on the H200, with convolutions in tf32",
        f"the planned {many} ordinary runs of every setting",
        f"is {100 * gain_of_loop:+.2f} points over in the ordinary runs, and "
        f"{100 * gain_of_pack:+.2f} points in the packed ones",
    ]
    best = [
        results.contrast(cell, "a9", "base").gain.mean
        for cell in results.cells
        if cell.dataset == "cifar10"
    ]
    for cell in (cell for cell in results.cells if cell.dataset == "cifar10"):
        limit, rest = (results.contrast(cell, *pair).gain.mean for pair in LIMIT_AND_REST)
        assert (limit > rest) == (cell.activation == "tanh")  # where most of the gain comes from
    opening = [
        f"gains {100 * min(best):+.2f} to {100 * max(best):+.2f} ",
        f"gains in {len(best) - 1} of the {len(best)} cells, and loses with",  # a finding
        f"below {100 * MARGIN:.0f} % of base's error",
        f"the {len(own)} gains of the column",
    ]
    check(results_page(), [*phrases, *findings["RESULTS"], *modern_findings["RESULTS"], *opening])


LIMIT_AND_REST = (("limit", "base"), ("a9", "limit"))


def differences_from_means(questions):
    """Those of the noise and its mean, and how many survive a correction in a row and over all."""
    results = Results(questions.read("mean-of-a5", with_paper=True))
    rows = [row for contrasts in split_by_mean(results).values() for row in contrasts]
    p = holm([paired_test(np.array([*row.by_seed.values()]), len(rows))[1] for row in rows])
    left = {
        (row.cell.activation, row.cell.dropout, row.setting, row.reference)
        for row, q in zip(rows, p, strict=True)
        if q <= ALPHA
    }
    noise = {(f, dropout) for f, dropout, setting, reference in left if reference == "m5"}
    assert noise == {("tanh", False)}
    return rows, (sum(row.outcome != "unclear" for row in rows), len(left))


def cases_of_underfitting(results):
    """The cells that speak for it, and those of them that are judged by a loss with noise."""
    cells = [c for c in results.cells if underfits(results, c, ("base", "a9")).answer == "for"]
    by_noise = [cell for cell in cells if cell not in results.noiseless]
    assert {(cell.network, cell.activation, cell.dropout) for cell in by_noise} == {
        *(("mnist-cnn", "relu", False), ("mnist-cnn", "tanh", True)),
    }
    (verdict,) = (v for v in judge(results) if v.claim.id == "under-fit")
    cases = verdict.cases[""]
    to_refute = sum(cases.values()) - math.ceil(verdict.claim.share * sum(cases.values())) + 1
    assert cases["against"] + len(by_noise) + cases["missing"] < to_refute
    return cells, by_noise


def phrases_on_more_seeds(publish, frame):
    columns = "cell", "setting", "few", "all", "noise", "seeds"
    rows = [dict(zip(columns, row, strict=True)) for row in publish.more_seeds_table(frame).rows]
    assert {row["cell"] for row in rows} == {
        f"mnist-mlp, {cell}" for cell in ("elu, no dropout", "elu, dropout", "tanh, no dropout")
    }
    for row in rows:
        (few_low, _), (low, high) = ends(row["few"]), ends(row["all"])
        assert ("*" in row["all"]) == (low * high > 0)
        assert few_low <= 0 or low > 0  # every gain is still there
    (a5,) = (row for row in rows if (row["cell"][-14:], row["setting"]) == (", elu, dropout", "a5"))
    more_rows = pl.read_parquet(PAPER / "more-seeds.parquet")
    more = more_rows.filter(epoch=frame["epoch"].max())
    losses = {
        key: (part["train_loss"].median(), part["train_loss_limit"].median())
        for key, part in more.drop_nulls("train_loss_limit").group_by([*CELL, "setting"])
    }
    of_a9 = {key[:-1]: pair for key, pair in losses.items() if key[-1] == "a9"}
    ratios = [noisy / free for noisy, free in of_a9.values()]
    assert len(ratios) == 3
    assert all(max(pair) < losses[*cell, "base"][1] / 2 for cell, pair in of_a9.items())
    few = frame["seed"].n_unique()
    beyond = publish.endpoint(
        more_rows.filter(activation="elu", dropout=True, network="mnist-mlp")
    ).partition_by("setting", as_dict=True)
    alone = publish.estimate(publish.paired_gain(beyond["a5",], beyond["base",]))
    noise = {row["cell"].partition(", ")[2]: row["noise"] for row in rows if row["setting"] == "a9"}
    free, dropped = (noise[cell] for cell in ("elu, no dropout", "elu, dropout"))
    assert free.endswith("*")
    assert dropped.endswith("*")
    ((sixty, thirty),) = (row["seeds"].split(" and ") for row in rows if " " in row["seeds"])
    num_gains = sum(bool(row[key]) for row in rows for key in ("all", "noise"))
    return [
        f"over the {num_gains} gains with all",
        f"the {alone.n} new seeds alone give {publish.interval(alone)}",
        f"is {free.rstrip('*')} points ahead",
        f"is behind, {dropped.rstrip('*')} points",
        f"With {few} seeds the intervals of a single cell",
        f"have {min(int(row['seeds'].split()[0]) for row in rows)} seeds or more",
        f"with tanh has {sixty} seeds over base and {thirty} over the limit",
        f"Every gain that {few} seeds showed",
        f"gains {a5['all'].rstrip('*')} points and not {a5['few'].split()[0]};",
        f"The runs beyond the {few} seeds",
        f"the loss of is {min(ratios):.1f} to {max(ratios):.1f} times as large",
        f"packed runs beyond {few} seeds also settled",
    ]


def phrases_on_rates(publish, questions):
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
    return [
        f"from {limits[2]:+.3f} to {limits[-1]:+.3f} points",
        f"softplus alone, {own[free, 'a5']} points without dropout and {own[dropped, 'a5']} points "
        "with it",
        "If that is 0.5, a larger rate",
        "with dropout at the rate 0.1 were trained on a CPU in float32",
        "all others on the H200 in tf32",
        f"{held['seed'].n_unique()} seeds can show",
        f"The limit is behind by {own['tanh, no dropout', 'limit']} points without dropout and "
        f"{own['tanh, dropout', 'limit']} points with it, and by {own['tanh, dropout', 'a5']}",
        f"gains {printed['tanh, no dropout', 'a5']} points at the paper's rate, but only "
        f"{own['tanh, no dropout', 'a5']} points",
        f"rises from {tanh[0]:.2f} to {tanh[1]:.2f} %",
        "Of 50,000 images the last batch of an epoch has 16",
        "have the rate 0.5",
        f"limit gains {gain('softplus', 'limit', rates, 0.5)} points and "
        f"{gain('softplus', 'a5', rates, 0.5)} points",
        "At first 3 seeds chose the rates",
        f"With {held['seed'].n_unique()} seeds six settings have",
        f"gains in {gaining['a5']} cells and not in {gaining_by_three['a5']}, the limit in "
        f"{gaining['limit']} and not in {gaining_by_three['limit']}",
        "Without dropout, 3 seeds had chosen",
        f"gained {gain('tanh', 'a5', by_three, by_three).split()[0]} and "
        f"{gain('elu', 'a5', by_three, by_three).split()[0]} points",
        f"chosen 0.5, which tests higher ({at('softplus', False, 0.5)} and "
        f"{at('elu', True, 0.5)} %) than 0.1 ({at('softplus', False, 0.1)} and "
        f"{at('elu', True, 0.1)} %)",
        f"Over plain ELU at 0.5 the limit gains {of_half} points and not "
        f"{own['elu, dropout', 'limit'].split()[0]}",
    ]


def phrases_on_moved_images(publish, questions, frame):
    moved = questions.read_moved()
    seeds = moved["seed"].n_unique()
    table = {row[:3]: row[3:] for row in questions.moved_images_table(moved).rows}

    def mean(cell, moves, setting="base"):
        return float(table[cell, moves, setting][1].split()[0])

    def gain(cell, moves, setting):
        return table[cell, moves, setting][2].partition(" (")[0]

    cifar, mnist = "cifar-cnn, elu, dropout", "mnist-cnn, elu, dropout"
    free = mnist.replace("dropout", "no dropout")
    mirrored, all_moves = "shift=0.1 flip=horizontal", "rotation=5 shift=0.1 flip=both"
    (of_mnist,) = {moves for cell, moves, _ in table if cell == mnist} - {"none"}
    for cell, moves in ((cifar, mirrored), (mnist, of_mnist), (free, of_mnist)):
        same = dict(zip(("network", "activation"), cell.split(", ")[:2], strict=True))
        plain = publish.endpoint(frame.filter(dropout=cell != free, **same))
        highest = (
            100
            * plain.group_by("setting").agg(pl.col("test_accuracy").mean())["test_accuracy"].max()
        )
        assert mean(cell, moves) > highest
    for setting in ("base", "a9"):
        for cell in (cifar, "cifar-cnn, elu, no dropout"):
            assert mean(cell, all_moves, setting) < mean(cell, mirrored, setting)
    assert max(mean(cell, m, s) for cell, m, s in table if "cifar" in cell) == mean(
        cifar, mirrored, "a9"
    )

    def pairs(rows):
        ends = publish.endpoint(rows.filter(network="cifar-cnn", activation="elu"))
        both = ends.pivot("setting", index=["dropout", "protocol", "seed"], values="test_accuracy")
        return both.with_columns(gain=pl.col("a9") - pl.col("base"))

    def average(pairs):
        by_seed = pairs.group_by("seed").agg(pl.col("gain").mean())["gain"]
        return publish.interval(publish.estimate(by_seed), form="+.2f")

    of_moved, as_they_are = pairs(moved), pairs(frame)
    for cell, moves, setting in table:
        if cell.startswith("mnist-cnn, tanh") and setting == "limit":
            assert table[cell, moves, setting][1] == "learns nothing"
        elif moves == of_mnist and setting != "base":
            low, high = ends(gain(cell, moves, setting))
            assert low <= 0 <= high
    peaks = [
        row[-2:] for key, row in table.items() if key[:2] in ((mnist, of_mnist), (free, of_mnist))
    ]
    assert max(float(mean) for mean, _ in peaks) < 99.65 <= max(float(one) for _, one in peaks)
    last = frame["epoch"].max()
    return [
        f"has the mean over epochs {last - last // 10 + 1} to {last} with its 95 % interval",
        f"Moved images have {seeds} seeds",
        f"with dropout from {mean(cifar, 'none')} to {mean(cifar, mirrored)} %",
        f"in {(of_moved['gain'] > 0).sum()} of {len(of_moved)} pairs of runs: on average "
        f"{average(of_moved)} points; without moves the same three seeds gain "
        f"{average(as_they_are.filter(pl.col('seed') < seeds))} points",
        f"best, at {mean(cifar, mirrored, 'a9')} %",
        f"plain ELU from {mean(mnist, 'none')} to {mean(mnist, of_mnist)} % with dropout and from "
        f"{mean(free, 'none')} to {mean(free, of_mnist)} % without",
        f"visible with {seeds} seeds",
        "the paper's 99.65 %",
    ]


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


def headline():
    page = (ROOT / "docs" / "reading-the-paper.md").read_text()
    return plain(page[page.index("<!-- headline -->") : page.index("<!-- /headline -->")])


def test_every_number_of_the_headline_is_computed_from_the_rows(
    publish, questions, results, frame, study
):
    cells = {run.cell for run in study.runs if run.network == "mnist-cnn"}
    finals = [f for f in results.finals["test_accuracy"] if f.cell.network == "mnist-cnn"]
    ranked = sorted(finals, key=lambda final: final.best.estimate.mean, reverse=True)
    best = {}
    for final in ranked:
        best.setdefault((final.cell.activation, is_q(final.setting)), final)

    def peak(activation):
        mean = best[activation, True].best.estimate
        return publish.interval(mean, form=".2f") + " %"

    of_cifar = [f for f in results.finals["test_accuracy"] if f.cell.network == "cifar-cnn"]
    top = max(of_cifar, key=lambda final: final.best.estimate.mean)
    assert (top.cell.activation, top.setting, top.cell.dropout) == ("elu", "a9", True)
    plain_cifar = max(
        (f for f in of_cifar if f.setting == "base"), key=lambda final: final.best.estimate.mean
    )
    assert plain_cifar.cell.activation == "elu"
    rows_of_cifar = frame.filter(network="cifar-cnn")
    elu, tanh = best["elu", True], best["tanh", True]
    assert ranked[0] is best["relu", True]
    assert (elu.setting, elu.cell.dropout) == (tanh.setting, tanh.cell.dropout) == ("a5", True)
    plain_elu = max(
        f.best.estimate.mean for f in finals if (f.cell.activation, f.setting) == ("elu", "base")
    )
    rows = frame.filter(network="mnist-cnn")
    lost = {cell: found for cell in results.cells if (found := results.untrained(cell))}
    runs = study.runs
    failing = sum(r.setting in lost.get(r.cell, ()) for r in runs)
    rates = questions.read("tanh-normalisation")
    table = questions.normalisation_table(rates)
    after = {
        (network, at): dict(zip(table.columns[2:], accuracies, strict=True))
        for network, at, *accuracies in table.rows
    }
    (rate,) = {run.learning_rate for run in runs if run.network == "mnist-cnn"}
    free = after["mnist-cnn-no-norm", str(rate)]
    slower, slowest = (after["mnist-cnn", at]["limit"] for at in ("0.02", "0.01"))
    printed = {v.claim.id: v.claim.level for v in judge(results)[-3:-1]}
    table = questions.moved_images_table(questions.read_moved()).rows
    moved = {
        (*cell.split(", ")[1:], setting): (float(best), float(highest))
        for cell, moves, setting, *_, best, highest in table
        if moves != "none" and cell.startswith("mnist") and best
    }
    cifar = {
        (moves, setting): float(best)
        for cell, moves, setting, *_, best, _ in table
        if cell == "cifar-cnn, elu, dropout"
    }
    shifted, mirrored, all_moves = list(dict.fromkeys(m for m, _ in cifar))[1:]
    assert (shifted, mirrored) == ("shift=0.1", "shift=0.1 flip=horizontal")
    assert all(cifar[m, "a9"] > cifar[m, "base"] for m in (shifted, mirrored, all_moves))
    assert max(cifar[all_moves, s] for s in ("base", "a9")) < 82.9 < cifar[shifted, "base"]
    of_elu = {key[1:]: numbers for key, numbers in moved.items() if key[0] == "elu"}
    plain, limit, a5 = (
        [of_elu[dropout, setting] for dropout in ("dropout", "no dropout")]
        for setting in ("base", "limit", "a5")
    )
    assert all(round(h - 100 * printed["mnist-best"], 2) >= 0 for _, h in plain)
    assert max(best for best, _ in moved.values()) < 100 * printed["mnist-best"]
    (peak_of_tanh,) = {moved["tanh", dropout, "base"][0] for dropout in ("dropout", "no dropout")}
    assert all(moved["tanh", d, "a5"][0] <= peak_of_tanh for d in ("dropout", "no dropout"))
    assert plain[0][0] == plain[1][0]
    check(
        headline(),
        [
            f"Of the CNN's {len(cells)} cells {len({f.cell for f in of_cifar})} are trained, ELU",
            f"best mean is {publish.interval(top.best.estimate, form='.2f')} %, of q-ELU at in "
            f"epoch {top.best.epoch}",
            f"is {100 * rows_of_cifar['test_accuracy'].max():.2f} %. Plain ELU peaks at "
            f"{100 * plain_cifar.best.estimate.mean:.2f} %",
            f"has {plain[0][0]} % in its best epoch, with dropout and without. With dropout its "
            f"limit has {limit[0][0]} % and {a5[0][0]:.2f} %, without it {limit[1][0]} % and "
            f"{a5[1][0]} %",
            f"and with {questions.read_moved()['seed'].n_unique()} seeds plain ELU",
            f"also with plain ELU ({questions.read_moved()['seed'].n_unique()} seeds)",
            "passes 82.9 %",
            f"plain ELU has {cifar[shifted, 'base']} % in its best epoch and "
            f"{cifar[shifted, 'a9']} %; with shifts and mirroring {cifar[mirrored, 'base']} % and "
            f"{cifar[mirrored, 'a9']:.2f} %",
            f"it is less, {cifar[all_moves, 'base']} % and {cifar[all_moves, 'a9']} %",
            f"up to {max(h for _, h in of_elu.values()):.2f} % (plain ELU up to "
            f"{max(h for _, h in plain):.2f} %)",
            f"it has {peak_of_tanh} % in its best epoch",
            *("CIFAR-10", f"MNIST, {100 * printed['mnist-best']:.2f} %"),
            f"{100 * printed['cifar-best']:.1f} %",
            f"Of the CNN's {len(cells)} cells {len({f.cell for f in finals})} are trained",
            f"q-ELU is {peak('elu')}, at with dropout in epoch {elu.best.epoch}",
            f"With q-tanh it is {peak('tanh')}, at with dropout",
            f"q-ReLU, {peak('relu')}",
            f"is {100 * rows['test_accuracy'].max():.2f} %, of {len(rows):,} that were recorded",
            f"Plain ELU peaks at {100 * plain_elu:.2f} %",
            f"nearly reaches {100 * printed['mnist-best']:.2f} %",
            f"learning rate of {rate}",
            f"({sum(sum(counts.values()) for counts in lost.values())} of {failing} runs)",
            f"with {rates['seed'].n_unique()} seeds): after {rates['epoch'].max()} epochs at "
            f"{rate} the limit has {free['limit']} %",
            f"and tanh itself {free['base']} %",
            f"it has {slower} % at 0.02 and {slowest} % at 0.01",
            f"fails at {rate} in the same way",
        ],
    )


def test_the_protocol_of_the_page_is_that_of_the_study(study):
    page = plain((ROOT / "docs" / "reading-the-paper.md").read_text())
    (mnist, rate), (cifar, low) = (PAPER_PROTOCOL[name] for name in ("mnist-cnn", "cifar-cnn"))
    run = study.runs[0]
    for phrase in (
        f"batches of {mnist} (MNIST) or {cifar} (CIFAR)",
        f"a learning rate of {rate} (MNIST) or {low} (CIFAR)",
        f"always with φ = {run.phi}",
        f"{study.epochs} epochs",
        f"the mean of {len({run.seed for run in study.runs})} runs",
        f"ε = {EPS}, momentum {1 - MOMENTUM}",
        f"annealed from 1, 5 or 9 with γ = {Annealed.gamma}",
    ):
        assert phrase in page, phrase


def test_studies_without_rows_are_said_to_be_untrained(questions):
    page = (ROOT / "docs" / "reading-the-paper.md").read_text()
    untrained = re.findall(r"`([\w-]+)` \|.*not trained yet \|", page)
    for name in questions.STUDIES:
        runs, rows = {run.id for run in load_study(name).runs}, questions.read(name)
        assert (name in untrained) == (rows is None)
        assert rows is None or set(rows["run"]) <= runs
    assert set(study_names()) - set(questions.STUDIES) == {"paper", "quickstart", *PAPER_STUDIES}


def test_the_whole_cells_are_those_that_the_page_names(results):
    there = [cell for cell in results.cells if cell.network == "mnist-cnn"]
    *others, last = (NAMES.get(c.activation, c.activation) for c in there if not c.dropout)
    dropped = " and ".join(NAMES.get(c.activation, c.activation) for c in there if c.dropout)
    names = f"({', '.join(others)} and {last} without dropout, {dropped} with dropout)"
    assert names in results_page()
    cifar = {(c.activation, c.dropout) for c in results.cells if c.network == "cifar-cnn"}
    assert cifar == {(name, dropout) for name in ("elu", "tanh") for dropout in (False, True)}
    assert "(ELU and tanh, without and with dropout)" in results_page()


def test_every_table_is_computed_from_the_rows(publish, questions, frame, study):
    page = (ROOT / "RESULTS.md").read_text()
    tables = publish.generated(frame, study) | questions.generated()
    for mark, text in tables.items():
        part = page.partition(f"<!-- {mark} -->\n")[2].partition(f"\n<!-- /{mark} -->")[0]
        if mark == "provenance":  # its last line is of the machine that wrote it
            part, text = (lines.rpartition("\n")[0] for lines in (part, text))
        assert part == text, mark


def ends(cell):
    """Of an interval as it is printed: "+0.1 [-0.2, +0.4]* (+0.2)"."""
    _, low, high, *_ = map(float, re.findall(r"[-+][\d.]+", cell))
    return low, high


def gains_of_modes(frame, one, other, metric="test_accuracy", by=("dropout",)):
    """By setting and epoch: λ, and one mode minus another with its interval, × 100."""
    from qneurons.report.inference import estimate

    modes = f"{metric}{one}", f"{metric}{other}"
    difference = 100 * (pl.col(modes[0]) - pl.col(modes[1]))
    for key, rows in frame.drop_nulls(modes).group_by(
        "network", "activation", "setting", "epoch", *by
    ):
        gains = rows.group_by("seed").agg(gain=difference.mean())["gain"]
        yield key, rows["lam"][0], estimate(gains)


def test_what_decided_the_default_of_evaluation(frame):
    """As QActivation's docstring and docs/training-and-evaluation.md say it."""
    from qneurons.report.results import GUESSING

    frame = frame.filter(pl.col("setting").str.contains("^[ca]"))
    ends = frame.filter((pl.col("epoch") == 100) & (pl.col("train_loss") < GUESSING))
    assert ends["lam"].max() < 0.18
    assert all(abs(gain.mean) < 0.1 for *_, gain in gains_of_modes(ends, "_limit", ""))
    losses = gains_of_modes(ends, "_limit", "", "test_loss")
    assert all(gain.mean < 0.5 or gain.low <= 0 for *_, gain in losses)  # × 100

    gains = {
        (network, activation, epoch, dropout): gain
        for (network, activation, _, epoch, dropout), _, gain in gains_of_modes(
            frame.filter(setting="a9"), "_limit", ""
        )
    }
    unclear = gains["cifar-cnn", "elu", 20, False]
    assert unclear.low < 0 < unclear.high
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
    assert worse == {(f, epoch) for f in ("elu", "tanh") for epoch in (1, 5, 20)} | {("relu", 1)}
    modes = gains_of_modes(frame, "_mean", "_limit", by=())
    ahead = {
        (activation, lam)
        for (network, activation, *_), lam, gain in modes
        if gain.low > 0 and gain.mean > 0.1 and (network, activation) != ("mnist-cnn", "tanh")
        if gain.n == 10  # in some epochs only older runs were evaluated in all modes
    }
    assert min(lam for name, lam in ahead if name == "relu") == 1.5
    assert min(lam for name, lam in ahead if name == "tanh") == 5
    assert {name for name, _ in ahead} == {"relu", "tanh"}


def test_what_decided_the_default_of_lam(publish, frame):
    table = publish.lam_table(frame)
    accuracy = {contrast: ends(cell) for contrast, _, cell, _ in table.rows}
    for pair in (("c0.02", "limit"), ("c0.1", "c0.02")):
        for metric in ("test_accuracy", "test_loss"):
            gain, _ = publish.difference(publish.endpoint(frame), *pair, metric)
            assert gain.low < 0 < gain.high
    assert accuracy["a5 − c0.1"][0] > 0


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
    assert all("limit" in found for found in with_dropout.values())
    (cifar,) = (cell for cell in with_dropout if cell.dataset == "cifar10")
    assert not any(better(("relu",), dropout=True).values())
    of_tanh = {cell.network: found for cell, found in better(("tanh",), dropout=True).items()}
    assert of_tanh == {
        "cifar-cnn": {s for s in results.settings(cifar) if s != "base"},
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


def test_what_learns_nothing(questions):
    table = questions.normalisation_table(questions.read("tanh-normalisation"))
    for network, rate, *accuracies in table.rows:
        for setting, accuracy in zip(table.columns[2:], accuracies, strict=True):
            is_small = setting in ("limit", "c0.02", "c0.1", "c0.3")
            fails = (network, rate) == ("mnist-cnn", "0.05") and is_small
            assert accuracy == "learns nothing" if fails else float(accuracy) > 90


def test_a_rate_at_which_some_runs_learn_nothing_is_named(questions, frame):
    runs = frame.filter(network="mnist-mlp", activation="elu", dropout=False, setting="base")
    loss = pl.when(pl.col("seed") == 0).then(2.3).otherwise("train_loss")
    lost = runs.with_columns(train_loss=loss, held_out=pl.lit(10_000, pl.Int64))
    (row,) = questions.held_out_table(lost).rows
    assert row[-1] == "**learns nothing (1 of 10 runs)**"


def test_the_noise_gains_without_dropout_and_the_mean_with_it(questions):
    contrasts = split_by_mean(Results(questions.read("mean-of-a5", with_paper=True)))
    noise = {(cell.activation, cell.dropout): row[0] for (cell, _), row in contrasts.items()}
    mean = {(cell.activation, cell.dropout): row[2] for (cell, _), row in contrasts.items()}
    free = [row for (_, dropout), row in noise.items() if not dropout]
    gains = sorted((row.difference.mean, row.cell.activation) for row in free)
    assert {row.outcome for row in free} == {"better"}
    assert (gains[0][1], gains[-1][1]) == ("softplus", "tanh")
    assert {row.outcome for (_, dropout), row in noise.items() if dropout} == {"unclear"}
    gaining = {f for (f, dropout), row in mean.items() if dropout and row.outcome == "better"}
    assert gaining == {"elu", "softplus"}


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


def test_moved_images_are_beside_those_of_the_paper(questions, frame):
    one = frame.filter(network="cifar-cnn", activation="elu", dropout=True, setting="a9")
    moved = one.with_columns(
        pl.col("test_accuracy") + 0.01, augment=pl.lit("shift=0.1"), protocol=pl.lit("moved")
    )
    moved = moved.filter(pl.col("seed") < 3)
    before, after = questions.moved_images_table(moved).rows
    assert before[5] == after[5] == ""
    alike = moved.with_columns(pl.col("test_accuracy") - 0.02, setting=pl.lit("base"))
    *_, with_gain = questions.moved_images_table(pl.concat([moved, alike])).rows
    assert with_gain[:6] == (*after[:5], "+2.00 [+2.00, +2.00] (+2.00)")
    cell = "cifar-cnn, elu, dropout"
    assert before[:4] == (cell, "none", "a9", "10")
    assert after[:4] == (cell, "shift=0.1", "a9", "3")
    assert float(before[-1]) == pytest.approx(100 * one["test_accuracy"].max(), abs=0.005)
    three = one.filter(pl.col("seed") < 3)
    assert float(after[-1]) == pytest.approx(100 * three["test_accuracy"].max() + 1, abs=0.005)
    best = three.group_by("epoch").agg(pl.col("test_accuracy").mean())["test_accuracy"].max()
    assert float(after[-2]) == pytest.approx(100 * best + 1, abs=0.005)


def test_only_cells_in_which_every_run_has_ended_are_published(publish):
    study = load_study("paper-mnist-mlp")
    whole, short, missing = list(dict.fromkeys(run.cell for run in study.runs))[:3]
    ids = {cell: [r.id for r in study.runs if r.cell == cell] for cell in (whole, short, missing)}
    stopped, gone = ids[short][-1], ids[missing][0]
    rows = [
        {"run": run, "epoch": epoch, "diverged": False}
        for runs in ids.values()
        for run in runs
        for epoch in (1, 50, study.epochs)
        if run != gone and (run, epoch) != (stopped, study.epochs)
    ]
    found = publish.whole_cells(pl.DataFrame(rows), study)
    assert set(found["run"]) == set(ids[whole])
    assert len(found) == 3 * len(ids[whole])
    diverged = [{**row, "diverged": (row["run"], row["epoch"]) == (stopped, 50)} for row in rows]
    found = publish.whole_cells(pl.DataFrame(diverged), study)
    assert set(found["run"]) == {*ids[whole], *ids[short]}


def test_settings_share_the_spikes_that_the_page_on_the_study_names(frame):
    page = plain((ROOT / "docs" / "study.md").read_text())
    times = int(re.search(r"jumps to at least (\d+) times its level", page)[1])
    relu = frame.filter(dataset="mnist", activation="relu", dropout=False)
    places = [map(int, found) for found in re.findall(r"epoch (\d+) with seed (\d+)", page)]
    assert len(places) == 2
    for epoch, seed in places:
        late = relu.filter(pl.col("epoch") > 80, pl.col("train_loss").is_not_nan(), seed=seed)
        level = pl.col("train_loss").median().over("network", "setting")
        spikes = late.with_columns(pl.col("train_loss") / level).filter(epoch=epoch)
        assert spikes["setting"].n_unique() == 7
        assert spikes["train_loss"].min() >= times
