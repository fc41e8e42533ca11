"""The gains with more seeds than the study has, and what they say of its first ten."""

import math

import polars as pl

from qneurons.report.claims import judge
from qneurons.report.claims.cases import underfits
from qneurons.report.inference import ALPHA
from qneurons.study.store import CELL
from tests.report.published.pages import PAPER, check_section, ends


def test_the_numbers_on_more_seeds(publish, frame, results):
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
    underfit, by_noise = cases_of_underfitting(results)
    check_section(
        "With more seeds",
        [
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
            "with 95 % t-intervals",
            f"p ≤ {ALPHA}",
            f"Of the {len(underfit)} cases that speak for under-fitting {len(by_noise)} rest on",
        ],
    )


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
