"""What brings the gain, the noise or the limit or the mean, and where nothing is learned."""

import polars as pl

from qneurons.report.claims import CURVED, attributions
from qneurons.report.claims.noise_or_limit import LEAST, attribute, split_by_mean
from qneurons.report.final_values import is_q
from qneurons.report.inference import ALPHA, paired_tests
from qneurons.report.results import Results
from tests.report.published.pages import PAPER, ROOT, WORDS, check_section


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
    for network in ("cifar-cnn", "mnist-cnn"):
        (cell,) = (c for c in results.cells if (c.network, c.activation) == (network, "softplus"))
        reference = "limit" if network == "cifar-cnn" else "base"
        found = {
            s: results.contrast(cell, s, reference).outcome
            for s in filter(is_q, results.settings(cell))
        }
        assert [s for s, outcome in found.items() if outcome == "better"] == ["a9"]
    assert signs("mnist-mlp", "softplus", False) == (0, 0)
    assert signs("mnist-mlp", "softplus", True) == (1, 0)


def test_the_numbers_on_noise_and_limit(publish, frame, results):
    small, _ = publish.difference(publish.endpoint(frame), "c0.02", "limit")
    assert small.low < 0 < small.high  # they cannot be told apart
    (cell,) = (cell for cell in results.cells if cell[1::2] == ("cifar-cnn", "softplus"))
    (parts,) = (row for row in attributions(results) if row.where == "softplus with dropout")
    assert parts.answer == "the limit"
    assert parts.noise.low > 0
    check_section(
        "The noise or the limit?",
        [
            "CIFAR-10",
            "with 95 % t-intervals",
            f"λ = 0.02 cannot be told apart from the limit ({publish.interval(small)} points)",
            f"its interval ends below {100 * LEAST:.0f} % of base's error",
            f"the limit gains {100 * results.contrast(cell, 'limit', 'base').gain.mean:.2f} points",
            f"ahead of it, by {100 * results.contrast(cell, 'a9', 'limit').gain.mean:.2f} points",
        ],
    )


def test_the_numbers_on_noise_and_mean(questions):
    results = Results(questions.read("mean-of-a5", with_paper=True))
    splits = split_by_mean(results)
    noise = [row[0].difference.mean for (cell, _), row in splits.items() if not cell.dropout]
    rows = [row for contrasts in splits.values() for row in contrasts]
    p = paired_tests([[*row.by_seed.values()] for row in rows])
    left = [row for row, q in zip(rows, p, strict=True) if q <= ALPHA]
    of_noise = {(r.cell.activation, r.cell.dropout) for r in left if r.reference == "m5"}
    assert of_noise == {("tanh", False)}
    stars = sum(row.outcome != "unclear" for row in rows)
    (seeds,) = {row.difference.n for row in rows}
    check_section(
        "The noise or its mean?",
        [
            "CIFAR-10",
            f"MNIST-MLP with {seeds} seeds",
            "with 95 % t-intervals",
            f"p ≤ {ALPHA}",
            f"all {len(noise)} activations, from {100 * min(noise):+.2f} points (softplus) to "
            f"{100 * max(noise):+.2f} points (tanh)",
            f"Corrected over all {len(rows)} differences of the table, {len(left)} of its {stars} "
            f"stars remain. Of the {WORDS[len(noise)]} gains by the noise only that with tanh",
        ],
    )


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


def test_the_numbers_where_nothing_is_learned(questions, study):
    (rate,) = {run.learning_rate for run in study.runs if run.network == "mnist-cnn"}
    rates = questions.read("tanh-normalisation")
    ordinary = pl.read_csv(PAPER / "naive-tanh-cnn.csv")
    ends = ordinary.filter(epoch=ordinary["epoch"].max())
    ends = ends.filter(pl.col("setting").is_in(rates["setting"].unique().to_list()))
    assert set(rates["activation"]) == set(ends["activation"]) == {"tanh"}
    assert ends["seed"].n_unique() == 1
    accuracies = {
        row["setting"]: f"{100 * row['test_accuracy']:.2f}" for row in ends.iter_rows(named=True)
    }
    text = " ".join((ROOT / "RESULTS.md").read_text().split())
    assert ", ".join(f"`{setting}` {number}" for setting, number in accuracies.items()) in text
    table = questions.normalisation_table(rates)
    behind = {
        row[1]: float(row[table.columns.index("base")]) - float(row[table.columns.index("limit")])
        for row in table.rows
        if row[0] == "mnist-cnn-no-norm"
    }
    check_section(
        "Where nothing is learned",
        [
            f"after {rates['epoch'].max()} epochs, mean over {rates['seed'].n_unique()} seeds",
            f"The paper's learning rate is {rate}",
            f"At {rate} then does not differ measurably from ; at 0.02 and 0.01 it is "
            f"{behind['0.02']:.2f} and {behind['0.01']:.2f} points lower",
            f"An ordinary training loop with batch normalisation at {rate} ends",
            f"({ends['epoch'][0]} epochs, one seed,",
            *accuracies.values(),
            "about 1/|x|",
        ],
    )


def test_what_learns_nothing(questions):
    table = questions.normalisation_table(questions.read("tanh-normalisation"))
    for network, rate, *accuracies in table.rows:
        for setting, accuracy in zip(table.columns[2:], accuracies, strict=True):
            is_small = setting in ("limit", "c0.02", "c0.1", "c0.3")
            fails = (network, rate) == ("mnist-cnn", "0.05") and is_small
            assert accuracy == "learns nothing" if fails else float(accuracy) > 90
