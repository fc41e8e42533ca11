"""The first screens of README and RESULTS: what is gained where, and the claims."""

from collections import Counter

import polars as pl
import pytest

from qneurons.report import Results
from qneurons.report.claims import CURVED, judge
from qneurons.report.claims.evidence import MARGIN
from qneurons.report.claims.verdicts import ANSWERS
from qneurons.report.final_values import is_q
from qneurons.report.inference import ALPHA, paired_tests
from qneurons.study.store import CELL
from tests.report.published.pages import (
    OPENING,
    ROOT,
    WORDS,
    between,
    check,
    check_section,
    own_rates,
)


@pytest.fixture
def cifar(results):
    """The trained cells of CIFAR-10."""
    cells = [cell for cell in results.cells if cell.dataset == "cifar10"]
    assert [(cell.activation, cell.dropout) for cell in cells] == [
        *(("elu", False), ("tanh", False)),
        *(("elu", True), ("softplus", True), ("tanh", True)),
    ]
    return cells


@pytest.fixture
def idle(results):
    """The settings that learn nothing, with their cells."""
    lost = {cell: found for cell in results.cells if (found := results.untrained(cell))}
    assert [(cell.network, cell.activation, cell.dropout) for cell in lost] == [
        *(("mnist-cnn", "tanh", dropout) for dropout in (False, True)),
    ]
    assert all(list(counts) == ["limit", "c0.02", "c0.1"] for counts in lost.values())
    return [(cell, setting) for cell, counts in lost.items() for setting in counts]


@pytest.fixture
def on_both(publish, results, frame, study, idle):
    """The phrases with numbers that both screens have."""
    count = sum(results.untrained(cell)[setting] for cell, setting in idle)
    of_mnist = publish.endpoint(frame.filter(dataset="mnist"))
    q = [setting for setting in of_mnist["setting"].unique() if is_q(setting)]
    gains = {setting: publish.difference(of_mnist, setting, "base") for setting in q}
    assert max(gains, key=lambda setting: gains[setting][0].mean) == "a9"
    gain, num_cells = gains["a9"]
    *verdicts, _ = judge(results)
    answers = Counter(verdict.answer for verdict in verdicts)
    holds, fails, undecided, cannot_hold, cannot_fail = (answers[answer] for answer in ANSWERS)
    return [
        "CIFAR-10",
        f"{len(results.cells)} of the paper's {len({run.cell for run in study.runs})} cells",
        f"{count} of {sum(len(results.final(*place).values) for place in idle)} runs",
        f"{publish.interval(gain, form='+.2f')} points on average over {num_cells} cells",
        f"the paper's {len(verdicts)} claims",
        f"{holds} {'holds' if holds == 1 else 'hold'}, {fails} do not hold, "
        f"{cannot_hold} can no longer hold, {cannot_fail} can no longer fail "
        f"and {undecided} is undecided",
    ]


def test_the_numbers_of_the_readme(publish, questions, results, more, on_both):
    from pages import bare_markdown

    assert bare_markdown(publish.cifar_table(results)) in (ROOT / "README.md").read_text()
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
    own = own_rates(questions)
    gaining = Counter(setting for (_, setting), (_, out) in own.items() if out == "better")
    every = Results(more)
    noise = [
        100 * every.contrast(cell, "a9", "limit").gain.mean
        for cell in every.cells
        if not cell.dropout
    ]
    text = between("README.md", "results")
    before, title, _ = text.partition("**Networks of today.**")
    assert title  # what follows is in test_modern_networks.py
    check(
        before,
        [
            f"with {more['seed'].n_unique()} seeds, is ahead of the limit",
            f"by {min(noise):+.2f} to {max(noise):+.2f} points. With dropout",
            *on_both,
            "λ annealed from 9",
            f"plain ELU with dropout has {mean.split()[0]} %",
            f"gains {moves[*key, 'a9'][2].partition(' (')[0]} points over it, with {seeds} seeds",
            f"limit gains in {gaining['limit']} of {len({cell for cell, _ in own})} cells "
            "(softplus and ELU; with ELU and dropout this is uncertain), and in "
            f"{WORDS[gaining['a5']]} (softplus)",
        ],
    )


def test_the_numbers_of_the_opening(publish, results, frame, study, cifar, idle, on_both):
    gained, answers = gains_of_q(results)
    at_once = significant_at_once(results)
    idle_losses = sum(answers.get(place) == "worse" for place in idle)
    curved = [c for c in results.cells if c.dataset == "mnist" and c.activation in CURVED]
    single = [results.contrast(cell, "a9", "base").gain.mean for cell in curved]
    small = Counter(answers[cell, "c0.1"] for cell in curved if results.learns(cell, "c0.1"))
    of_cifar = [(c.activation, 100 * results.contrast(c, "a9", "base").gain.mean) for c in cifar]
    best = [gain for activation, gain in of_cifar if activation != "softplus"]
    (of_softplus,) = (gain for activation, gain in of_cifar if activation == "softplus")
    first, last = results.final(cifar[0], "base").first, study.epochs
    stands_in = sum(cell not in results.noiseless for cell in results.cells)
    (dropout,) = (verdict for verdict in judge(results) if verdict.claim.id == "dropout")
    assert dropout.answer == "holds"
    assert "At the last epoch alone: can no longer fail" in dropout.reason
    cases = dropout.cases
    counts = {where: f"{each['for']} of {sum(each.values())}" for where, each in cases.items()}
    missing = cases["without dropout"]["missing"]
    of_mnist = publish.endpoint(frame.filter(dataset="mnist"))
    gain, of_a5 = (publish.difference(of_mnist, s, "base")[0] for s in ("a9", "a5"))
    check_section(
        OPENING,
        [
            f"gains {min(best):+.2f} to {max(best):+.2f} points of test accuracy "
            f"with ELU and tanh on CIFAR-10, and {of_softplus:+.2f} with softplus and dropout; on "
            f"MNIST it gains only {100 * gain.mean:+.2f} on average",
            "and anneal λ from 1, 5 and 9",
            f"the gain in test accuracy over at epochs {first}–{last}",
            f"mean over {len({run.seed for run in study.runs})} seeds and 95 % interval",
            f"its mean over epochs {first} to {last}",
            f"gains in {len(cifar) - 1} of the {len(cifar)} cells, and loses with",
            f"between {100 * min(single):+.2f} and {100 * max(single):+.2f} points",
            f"gains {publish.interval(of_a5, form='+.2f')} points on average, too",
            f"gains in {small['better']} of the {small.total()} cells where it learns, and loses "
            f"in {WORDS[small['worse']]}",
            f"in {gained['better']} of {gained.total()} comparisons and worse in "
            f"{gained['worse']} (p ≤ {ALPHA}, corrected within each cell; "
            f"{at_once[True]} and {at_once[False]} if corrected over all at once). "
            f"In {WORDS[idle_losses]} of the {WORDS[gained['worse']]} it learns nothing",
            f"p ≤ {ALPHA}",
            *phrases_on_test_loss(publish, frame),
            f"stands in for the one without it in {stands_in} of {len(results.cells)} cells",
            f"are trained so far, {WORDS[len(cifar)]} of them on CIFAR-10",
            f"below {100 * MARGIN:.0f} % of base's error",
            f"in {counts['with dropout']} cells with dropout, and in {counts['without dropout']} "
            f"without, of which {WORDS[missing]} are missing",
            *on_both,
        ],
    )


def gains_of_q(results):
    """How the q settings of curved activations compare with base: counted, and one by one."""
    answers = {
        (cell, setting): results.contrast(cell, setting, "base").outcome
        for cell in results.cells
        if cell.activation in CURVED
        for setting in filter(is_q, results.settings(cell))
    }
    return Counter(answers.values()), answers


def significant_at_once(results):
    """How many gains and losses of q settings survive a correction over all comparisons."""
    learning = [
        row
        for row in results.contrasts["test_accuracy"]
        if results.learns(row.cell, row.setting, row.reference)
    ]
    p = paired_tests([[*row.by_seed.values()] for row in learning])
    return Counter(
        row.gain.mean > 0
        for row, q in zip(learning, p, strict=True)
        if q <= ALPHA and row.reference == "base" and is_q(row.setting)
        if row.cell.activation in CURVED
    )


def phrases_on_test_loss(publish, frame):
    losses = [
        publish.difference(publish.endpoint(part), "a9", "base", "test_loss")[0]
        for part in (frame.filter(dataset=name) for name in ("mnist", "cifar10"))
    ]
    assert losses[0].low < 0 < losses[0].high
    curved = frame.filter(pl.col("activation").is_in(CURVED), dataset="mnist")
    by_cell = {
        key: 1000 * publish.difference(ends, "a9", "base", "test_loss")[0].mean
        for key, ends in publish.endpoint(curved).group_by(CELL)
    }
    lowest, highest = (min(by_cell, key=by_cell.get), max(by_cell, key=by_cell.get))
    assert lowest[1:4] == ("mnist-cnn", True, "elu")
    assert highest[1:4] == ("mnist-mlp", True, "tanh")
    lower = publish.Estimate(losses[1].n, -losses[1].mean, 0.0, -losses[1].high, -losses[1].low)
    return [
        f"by {publish.interval(losses[0], 1000, '+.1f')} thousandths on average",
        f"from {by_cell[lowest]:+.1f} (CNN with ELU and dropout)",
        f"to {by_cell[highest]:+.1f} (MLP with tanh and dropout)",
        f"it is lower by {publish.interval(lower, 1000, '.1f')} thousandths",
    ]


def test_where_the_gain_on_cifar_comes_from(results, cifar):
    """a9 gains most; with ELU alone most of that is not the limit's, which loses there once."""
    for cell in cifar:
        gains = {s: results.contrast(cell, s, "base").gain.mean for s in results.settings(cell)[1:]}
        assert max(gains, key=gains.get) == "a9"
        rest = results.contrast(cell, "a9", "limit").gain.mean
        assert (gains["limit"] > rest) == (cell.activation != "elu")
    of_limit = [results.contrast(cell, "limit", "base").outcome for cell in cifar]
    assert of_limit == ["worse", *["better"] * 4]
    with_dropout = {cell.activation: cell for cell in cifar if cell.dropout}
    softplus = with_dropout.pop("softplus")
    plain, limit, a9 = (
        results.final(softplus, setting).estimate.mean for setting in ("base", "limit", "a9")
    )
    for cell in with_dropout.values():
        ahead = results.final(cell, "base").estimate.mean
        assert plain + (ahead - plain) / 2 < limit < a9 < ahead


@pytest.mark.parametrize(
    ("settings", "dropout"),
    [(None, (False, True)), (("c0.02", "c0.1"), (False, True)), (None, (True,))],
    ids=["first claim", "λ fixed", "with dropout"],
)
def test_one_cell_makes_half_of_the_mean_differences(results, settings, dropout):
    """Softplus with dropout on CIFAR-10, as the section on the claims says it."""
    gains = {
        (cell, setting): results.contrast(cell, setting, "base").gain.mean
        for cell in results.cells
        if cell.activation in CURVED and cell.dropout in dropout
        for setting in settings or filter(is_q, results.settings(cell))
        if results.learns(cell, setting, "base")
    }
    of_cell = [gain for (cell, _), gain in gains.items() if cell[1::2] == ("cifar-cnn", "softplus")]
    assert sum(of_cell) > sum(gains.values()) / 2


def test_a9_gains_on_moved_images_too(questions):
    table = questions.moved_images_table(questions.read_moved())
    gains = [row[5] for row in table.rows if row[0].startswith("cifar") and row[2] == "a9"]
    assert len(gains) == 8
    assert all(gain.startswith("+") for gain in gains)
