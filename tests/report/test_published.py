"""What is published follows from the published rows, and from whole cells alone."""

import re
from collections import Counter
from pathlib import Path

import pytest

from qneurons.study.spec import load_study

pl = pytest.importorskip("polars")
for package in ("scipy", "matplotlib"):
    pytest.importorskip(package)

from qneurons.report.claims import CURVED, judge
from qneurons.report.claims.noise_or_limit import attribute_gain, curved_cells
from qneurons.report.claims.verdicts import ANSWERS
from qneurons.report.comparisons import is_q
from qneurons.report.inference import ALPHA, holm
from qneurons.report.results import Results

ROOT = Path(__file__).parents[2]
PAPER = ROOT / "results" / "paper"
NAMES = {"elu": "ELU", "relu": "ReLU"}  # as sentences write them; the others are written as here


@pytest.fixture
def publish(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    import publish

    return publish


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
def findings(publish, results, frame, study):
    """The phrases with numbers that both pages have, computed from the rows."""
    outcomes = Counter(
        results.contrast(cell, setting, "base").outcome
        for cell in results.cells
        if cell.activation in CURVED
        for setting in filter(is_q, results.settings(cell))
    )
    lost = {cell: results.untrained(cell) for cell in results.cells if results.untrained(cell)}
    ((failed, counts),) = lost.items()
    assert (failed.network, failed.activation, failed.dropout) == ("mnist-cnn", "tanh", False)
    assert list(counts) == ["limit", "c0.02", "c0.1"]
    failing = sum(len(results.final(failed, setting).values) for setting in counts)
    last = publish.curved_and_learning(publish.last_epoch(frame))
    q = [setting for setting in last["setting"].unique() if is_q(setting)]
    gains = {setting: publish.difference(last, setting, "base") for setting in q}
    best = max(gains, key=lambda setting: gains[setting].mean)
    assert best == "a9"
    loss = publish.difference(last, best, "base", "test_loss").mean
    assert loss > 0
    small = publish.difference(last, "c0.02", "limit")
    assert small.low < 0 < small.high  # they cannot be told apart
    *verdicts, question = judge(results)
    answers = Counter(verdict.answer for verdict in verdicts)
    assert question.answer == "both"
    parts = {"limit": [], "noise": []}
    for name in ("elu", "softplus", "tanh"):
        cells = [cell for cell in curved_cells(results)[0] if cell.activation == name]
        for part, gain in zip(parts, attribute_gain(results, cells).gains, strict=True):
            parts[part] += [NAMES.get(name, name)] * (gain == "gain")
    holds, fails, undecided = (answers[answer] for answer in ANSWERS)
    return [
        f"{len(results.cells)} of the paper's {len({run.cell for run in study.runs})} ",
        f"in {outcomes['better']} of {outcomes.total()} comparisons",
        f"lose in {outcomes['worse']}",
        f"{sum(counts.values())} of {failing} runs",
        f"On average over the other {last.select(publish.CELL).n_unique()} cells",
        f"the best of {len(gains)} q settings",
        f"gains {publish.interval(gains[best], form='+.2f')} percentage points of test accuracy",
        f"test loss is {1000 * loss:.1f} thousandths higher than f's",
        "λ = 0.02 cannot be told apart from the limit",
        f"({publish.interval(small)} points)",
        f"the limit with {' and '.join(parts['limit'])}, the noise with {' '.join(parts['noise'])}",
        f"Of the paper's {len(verdicts)} claims, {holds} hold, {fails} do not hold, and "
        f"{undecided} are not decided yet",
        f"p ≤ {ALPHA}",
    ]


def check(text, phrases):
    """Every phrase is in the text, and no digit is in it outside of the phrases."""
    for phrase in phrases:
        assert phrase in text, phrase
        text = text.replace(phrase, " ")
    assert not re.findall(r"\S*\d\S*", text)


def test_every_number_of_the_readme_is_computed_from_the_rows(findings):
    check(readme(), [*findings, "λ annealed from 9"])


def test_every_number_of_the_results_is_computed_from_the_rows(
    publish, findings, results, frame, study
):
    settings = {run.setting for run in study.runs}
    seeds = len({run.seed for run in study.runs})
    (rate,) = {run.learning_rate for run in study.runs if run.network == "mnist-cnn"}
    cells = Counter(network for _, network, *_ in {run.cell for run in study.runs})
    there = Counter(cell.network for cell in results.cells)
    rates = pl.read_parquet(PAPER / "rates.parquet")
    ordinary = pl.read_csv(PAPER / "naive-tanh-cnn.csv")
    ends = ordinary.filter(epoch=ordinary["epoch"].max())
    ends = ends.filter(pl.col("setting").is_in(rates["setting"].unique().to_list()))
    assert set(rates["activation"]) == set(ends["activation"]) == {"tanh"}
    assert ends["seed"].n_unique() == 1
    compared = publish.compare_with_ordinary(frame, pl.read_parquet(PAPER / "naive.parquet"))
    inside = sum(
        abs(value - packed.mean) <= half
        for packed, half, values, _ in compared.values()
        for value in values
    )
    count = sum(len(values) for _, _, values, _ in compared.values())
    significant = sum(p <= ALPHA for p in holm([test.pvalue for *_, test in compared.values()]))
    level = f"{100 * (1 - ALPHA):.0f} %"
    learning = publish.curved_and_learning(publish.last_epoch(frame)).select(publish.CELL)
    accuracies = {
        row["setting"]: f"{100 * row['test_accuracy']:.2f}" for row in ends.iter_rows(named=True)
    }
    text = " ".join((ROOT / "RESULTS.md").read_text().split())
    assert ", ".join(f"`{setting}` {number}" for setting, number in accuracies.items()) in text
    phrases = [
        *(f"{network}: {there[network]} of {total} cells" for network, total in cells.items()),
        f"trained in {len(settings)} settings with {seeds} seeds, for {study.epochs} epochs",
        "λ annealed from 1, 5 and 9",
        f"mean over {seeds} seeds and {level} interval",
        f"after {rates['epoch'].max()} epochs, mean over {rates['seed'].n_unique()} seeds",
        f"The paper's learning rate is {rate}",
        f"({ends['epoch'][0]} epochs, one seed,",
        *accuracies.values(),
        f"the {level} t-interval excludes zero",
        f"Mean over the {learning.n_unique()} cells",
        f"with {level} t-intervals",
        f"{inside} of {count} ordinary runs",
        f"predict {level} of single runs ({0.95 * count:.0f} are expected)",
        f"{significant} of {len(compared)} differences",
    ]
    check(results_page(), [*findings, *phrases])


def test_the_whole_cells_are_those_that_the_page_names(results):
    there = [cell for cell in results.cells if cell.network == "mnist-cnn"]
    *others, last = (NAMES.get(c.activation, c.activation) for c in there if not c.dropout)
    (dropped,) = (NAMES.get(c.activation, c.activation) for c in there if c.dropout)
    names = f"({', '.join(others)} and {last} without dropout, {dropped} with dropout)"
    assert names in results_page()


def test_every_table_is_computed_from_the_rows(publish, frame, study):
    page = (ROOT / "RESULTS.md").read_text()
    for mark, text in publish.generated(frame, study).items():
        part = page.partition(f"<!-- {mark} -->\n")[2].partition(f"\n<!-- /{mark} -->")[0]
        if mark == "provenance":  # its last line is of the machine that wrote it
            part, text = (lines.rpartition("\n")[0] for lines in (part, text))
        assert part == text, mark


def ends(cell):
    """Of an interval as it is printed: "+0.1 [-0.2, +0.4]"."""
    _, low, high = map(float, re.findall(r"[-+][\d.]+", cell))
    return low, high


def gains_of_modes(frame, one, other, metric="test_accuracy", by=("dropout",)):
    """By setting and epoch: λ, and one mode minus another with its interval, × 100."""
    from qneurons.report.inference import estimate

    difference = 100 * (pl.col(f"{metric}{one}") - pl.col(f"{metric}{other}"))
    for key, rows in frame.group_by("network", "activation", "setting", "epoch", *by):
        gains = rows.group_by("seed").agg(gain=difference.mean())["gain"]
        yield key, rows["lam"][0], estimate(gains)


def test_what_decided_the_default_of_evaluation(frame):
    """As QActivation's docstring and docs/training-and-evaluation.md say it."""
    from qneurons.report.results import GUESSING

    frame = frame.filter(pl.col("setting").str.contains("^[ca]"))
    ends = frame.filter((pl.col("epoch") == 100) & (pl.col("train_loss") < GUESSING))
    assert ends["lam"].max() < 0.18
    assert all(abs(gain.mean) < 0.0501 for *_, gain in gains_of_modes(ends, "_limit", ""))
    losses = gains_of_modes(ends, "_limit", "", "test_loss")
    assert all(gain.mean <= 0.02e-1 or gain.low <= 0 for *_, gain in losses)

    a9 = {
        (network, activation, epoch, dropout): gain.mean
        for (network, activation, setting, epoch, dropout), _, gain in gains_of_modes(
            frame, "_limit", ""
        )
        if setting == "a9"
    }
    at_20 = [gain for key, gain in a9.items() if key[::2] == ("mnist-mlp", 20)]  # λ = 0.86
    assert len(at_20) == 8
    assert 0.1 < min(at_20) < max(at_20) < 0.7
    assert a9["mnist-cnn", "tanh", 20, False] == pytest.approx(-2.4, abs=0.05)
    assert a9["mnist-cnn", "tanh", 5, False] == pytest.approx(-46, abs=0.5)

    modes = gains_of_modes(frame, "_mean", "_limit", by=())
    ahead = {
        (activation, lam)
        for (network, activation, *_), lam, gain in modes
        if gain.low > 0 and gain.mean > 0.1 and (network, activation) != ("mnist-cnn", "tanh")
    }
    assert min(lam for name, lam in ahead if name == "relu") == 1.5
    assert min(lam for name, lam in ahead if name == "tanh") == 5
    assert {name for name, _ in ahead} == {"relu", "tanh"}


def test_what_decided_the_default_of_lam(publish, frame):
    table = publish.lam_table(frame)
    accuracy = {contrast: ends(cell) for contrast, cell, _ in table.rows}
    loss = {contrast: ends(cell) for contrast, _, cell in table.rows}
    for low, high in (accuracy["c0.02 − limit"], loss["c0.02 − limit"]):
        assert low < 0 < high
    assert accuracy["c0.1 − c0.02"][0] > 0 > loss["c0.1 − c0.02"][1]
    assert accuracy["a5 − c0.1"][0] > 0


def test_what_learns_nothing(publish):
    table = publish.rates_table(pl.read_parquet(PAPER / "rates.parquet"))
    for rate, *accuracies in table.rows:
        for setting, accuracy in zip(table.columns[1:], accuracies, strict=True):
            fails = rate == "0.05" and setting in ("limit", "c0.02", "c0.1", "c0.3")
            assert (float(accuracy) < 12) == fails
            assert fails or float(accuracy) > 90


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
