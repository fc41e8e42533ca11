"""The gains with more seeds than the study has, and what they say of its first ten."""

import math

import polars as pl

from qneurons.report import Results
from qneurons.report.claims import judge
from qneurons.report.claims.cases import underfits
from qneurons.report.gains import gains_over
from qneurons.report.inference import ALPHA
from qneurons.study.store import CELL
from tests.report.published.pages import WORDS, check_section


def test_the_numbers_on_more_seeds(publish, frame, results, more):
    study_seeds = frame["seed"].n_unique()
    first = Results(more.filter(pl.col("seed") < study_seeds))
    rest = Results(more.filter(pl.col("seed") >= study_seeds))
    every = Results(more)
    assert every.cells == [cell for cell in results.cells if cell.network == "mnist-mlp"]
    few, many = gains_over(first, "base"), gains_over(every, "base")
    assert {row.test for row in many.values()} == {"paired t"}
    changed = {(few[key].outcome, row.outcome) for key, row in many.items()}
    assert {before for before, now in changed if before != now} == {"unclear"}
    counts = [[row.outcome for row in rows.values()].count for rows in (many, few)]
    halves = [
        sorted((row.gain.high - row.gain.low) / 2 for row in rows.values()) for rows in (few, many)
    ]
    half, narrow = (values[len(values) // 2] for values in halves)
    assert 0.45 < narrow / half < 0.6
    activations = {cell.activation for cell in every.cells}
    judged = [underfits(rest, cell, ("base", "a9")).answer for cell in every.cells]
    (odd,) = (cell for cell, answer in zip(every.cells, judged, strict=True) if answer != "against")
    assert (odd.activation, odd.dropout) == ("relu", True)
    assert rest.noiseless == {*every.cells}
    underfit, by_noise = cases_of_underfitting(results)
    check_section(
        "With more seeds",
        [
            f"with {study_seeds} seeds their 95 % intervals reach about ±{100 * half:.2f} points",
            f"have {more['seed'].n_unique()} seeds",
            f"The first {study_seeds} had been seen when the other {rest.frame['seed'].n_unique()}",
            f"p ≤ {ALPHA}",
            f"over the {len(every.contrasts['test_accuracy']) // len(every.cells)} comparisons",
            f"What {study_seeds} seeds showed is still there",
            f"{counts[0]('better')} of {len(many)} settings are better and",
            f"{counts[0]('worse')} are worse. With {study_seeds} seeds these were",
            f"{counts[1]('better')} and {counts[1]('worse')}, and all of them have stayed",
            f"with all {WORDS[len(activations)]} activations",
            *numbers_on_the_noise(publish, every),
            *numbers_on_relu(publish, many, few),
            f"With {study_seeds} seeds none of these four",
            f"are judged by the {study_seeds} seeds",
            f"For the MLP's first {study_seeds} seeds",
            f"The {rest.frame['seed'].n_unique()} later seeds also have",
            f"not under-fit in {judged.count('against')} of the {len(judged)} cells",
            f"In all networks {len(underfit)} cases speak for under-fitting, and {len(by_noise)}",
        ],
    )


def numbers_on_the_noise(publish, every):
    """Phrases on a9 against the limit, after a look at the outcomes that the page tells of."""
    rows = {key: row for key, row in gains_over(every, "limit").items() if key[1] in ("a5", "a9")}
    free = {k.activation: row for (k, s), row in rows.items() if not k.dropout and s == "a9"}
    dropped = {k.activation: row for (k, s), row in rows.items() if k.dropout and s == "a9"}
    assert {row.outcome for (cell, _), row in rows.items() if not cell.dropout} == {"better"}
    order = sorted(free, key=lambda activation: free[activation].gain.mean)
    assert (order[0], order[-1]) == ("softplus", "tanh")
    assert {name: row.outcome for name, row in dropped.items()} == {
        **dict.fromkeys(("elu", "relu", "softplus"), "worse"),
        "tanh": "better",
    }
    (tanh,) = (cell for cell in every.cells if (cell.activation, cell.dropout) == ("tanh", True))
    assert every.contrast(tanh, "limit", "base").outcome == "worse"
    least, most = (publish.interval(free[name].gain) for name in ("softplus", "tanh"))
    after = {name: publish.interval(row.gain) for name, row in dropped.items()}
    number, _, bounds = after["elu"].partition(" [")
    return [
        f"by {least} points with softplus up to {most} with tanh",
        f"with ELU ({number} [{bounds} points), ReLU ({after['relu']}) and softplus",
        f"({after['softplus']})",
        f"with tanh alone, {after['tanh']},",
    ]


def numbers_on_relu(publish, many, few):
    rows = {
        (cell.dropout, setting): (row, few[cell, setting])
        for (cell, setting), row in many.items()
        if cell.activation == "relu" and setting in ("a5", "a9")
    }
    for (dropout, _), (row, before) in rows.items():
        assert (row.outcome, before.outcome) == ("worse" if dropout else "better", "unclear")
    free = {f"{100 * rows[False, setting][0].gain.mean:+.2f}" for setting in ("a5", "a9")}
    (about,) = free
    lost = [publish.interval(rows[True, setting][0].gain) for setting in ("a5", "a9")]
    return [f"gain about {about} points over ReLU", f"and lose {lost[0]} and {lost[1]} with it"]


def test_all_seeds_would_change_one_verdict(frame, results, more):
    added = more.filter(pl.col("seed") > frame["seed"].max())
    verdicts = judge(results)[:-1], judge(Results(pl.concat([frame, added])))[:-1]
    changed = [
        (few.claim.id, few.answer, many.answer)
        for few, many in zip(*verdicts, strict=True)
        if few.answer != many.answer
    ]
    assert changed == [("annealing", "undecided", "can no longer hold")]


def test_with_more_seeds_all_settings_of_tanh_but_one_lose_with_dropout(more):
    rows = gains_over(Results(more.filter(activation="tanh", dropout=True)), "base")
    outcomes = {setting: row.outcome for (_, setting), row in rows.items()}
    assert outcomes.pop("a9") == "unclear"
    assert {*outcomes.values()} == {"worse"}


def test_with_more_seeds_limit_and_noise_gain_with_softplus(more):
    results = Results(more.filter(activation="softplus", dropout=False))
    (cell,) = results.cells
    assert results.contrast(cell, "limit", "base").outcome == "better"
    assert results.contrast(cell, "a9", "limit").outcome == "better"


def test_a5_is_ahead_of_the_limit_with_tanh_and_dropout(more):
    results = Results(more.filter(activation="tanh", dropout=True))
    (cell,) = results.cells
    assert results.contrast(cell, "a5", "limit").outcome == "better"


def test_every_setting_of_a_cell_has_the_same_seeds(more):
    seeds = more.group_by([*CELL, "setting"]).agg(pl.col("seed").unique().sort())
    assert seeds["seed"].n_unique() == 1


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
