"""Publishes the studies beside the paper's: results/questions, and their tables in RESULTS.md.

    python benchmarks/publish_questions.py [STORE]

The rows of a store's finished runs are added to those that are published already. Without a store
the tables are made anew. publish.py comes first, because these studies share runs with the paper's.
"""

import argparse
from pathlib import Path

import polars as pl
from pages import write_between
from publish import PAPER, ROOT, endpoint, interval

from qneurons.report import Results, rows_of
from qneurons.report.comparisons import setting_order
from qneurons.report.inference import estimate
from qneurons.report.rendering import Table, to_markdown
from qneurons.report.tables import mean_split_table
from qneurons.study.runs import PAPER_PROTOCOL
from qneurons.study.spec import load_study
from qneurons.study.store import RUN, Store

QUESTIONS = ROOT / "results" / "questions"
STUDIES = (
    *("mean-of-a5", "tanh-normalisation", "learning-rates"),
    *("augmented-mnist", "augmented-cifar"),
)


def add_rows(found):
    """Adds the finished runs of every study, but for those of the paper."""
    QUESTIONS.mkdir(exist_ok=True)
    paper = pl.read_parquet(PAPER / "rows.parquet", columns=["run"])
    for name in STUDIES:
        study, path = load_study(name), QUESTIONS / f"{name}.parquet"
        rows = rows_of(study, found).join(paper, on="run", how="anti")
        ended = rows.filter((pl.col("epoch") == study.epochs) | pl.col("diverged"))
        rows = rows.join(ended, on="run", how="semi")
        if path.exists():
            rows = pl.concat([pl.read_parquet(path), rows], how="diagonal")
        if len(rows):
            rows.unique(["run", "epoch"], keep="last", maintain_order=True).write_parquet(path)


def read(name, *, with_paper=False):
    """The published rows of a study; None if there are none."""
    path = QUESTIONS / f"{name}.parquet"
    if not path.exists():
        return None
    rows = pl.read_parquet(path)
    if with_paper:
        rows = pl.concat([pl.read_parquet(PAPER / "rows.parquet"), rows], how="diagonal")
        rows = rows_of(load_study(name), rows)
    return rows


def normalisation_table(rows):
    """Test accuracy after the last epoch, by network and learning rate."""
    means = (
        rows.filter(epoch=rows["epoch"].max())
        .group_by("network", "learning_rate", "setting")
        .agg(percent=100 * pl.col("test_accuracy").mean())
        .pivot("setting", index=["network", "learning_rate"], values="percent")
        .sort("network", "learning_rate", descending=[False, True])
    )
    settings = sorted(means.columns[2:], key=setting_order)
    body = [
        (network, f"{rate:g}", *(f"{value:.2f}" for value in values))
        for network, rate, *values in means.select(
            "network", "learning_rate", *settings
        ).iter_rows()
    ]
    return Table("", ("network", "learning rate", *settings), tuple(body))


def chosen_rates(rows):
    """The learning rate with the best mean accuracy on held-out images, by cell and setting."""
    same = "activation", "dropout", "setting"
    means = with_rate(rows.filter(pl.col("held_out") > 0)).group_by(*same, "learning_rate")
    means = means.agg(held_out=pl.col("test_accuracy").mean(), n=pl.len()).sort("held_out")
    return means.group_by(same).last().sort(same)


def with_rate(rows):
    rates = rows.select(*RUN, "learning_rate").unique()
    return endpoint(rows).join(rates, on=RUN)


def held_out_table(rows):
    """Accuracy on held-out images by learning rate; that of the rate which is chosen is bold."""
    same = ["activation", "dropout", "setting"]
    held_out = with_rate(rows.filter(pl.col("held_out") > 0))
    means = held_out.group_by(*same, "learning_rate").agg(pl.col("test_accuracy").mean())
    rates = sorted(means["learning_rate"].unique())
    body = []
    for (activation, dropout, setting), part in sorted(
        means.group_by(same), key=lambda item: (*item[0][:2], setting_order(item[0][2]))
    ):
        found = dict(part.select("learning_rate", "test_accuracy").iter_rows())
        texts = {rate: f"{100 * accuracy:.2f}" for rate, accuracy in found.items()}
        best = max(found, key=found.__getitem__)
        texts[best] = f"**{texts[best]}**"
        name = f"{activation}, {'dropout' if dropout else 'no dropout'}"
        body.append((name, setting, *(texts.get(rate, "") for rate in rates)))
    return Table("", ("cell", "setting", *(f"rate {rate:g}" for rate in rates)), tuple(body))


def rates_table(rows):
    """The gains over base if each setting has its own best rate, and at the printed one.

    Only of cells in which every setting has been tested at its best rate.
    """
    tested = with_rate(rows.filter(held_out=0))
    _, printed = PAPER_PROTOCOL["mnist-mlp"]
    chosen = chosen_rates(rows)

    def by_seed(activation, dropout, setting, rate):
        same = {"activation": activation, "dropout": dropout, "setting": setting}
        runs = tested.filter(**same, learning_rate=rate)
        return runs.select("seed", "test_accuracy")

    def gain(cell, setting, rate, base_rate):
        both = by_seed(*cell, setting, rate).join(
            by_seed(*cell, "base", base_rate), on="seed", suffix="_base"
        )
        return interval(estimate(both["test_accuracy"] - both["test_accuracy_base"]))

    same = ["activation", "dropout", "setting", "learning_rate"]
    untested = chosen.join(tested, on=same, how="anti")
    chosen = chosen.join(untested, on=same[:2], how="anti")
    rates = {(*cell, setting): rate for *cell, setting, rate, _, _ in chosen.iter_rows()}
    body = []
    for (activation, dropout, setting), rate in sorted(
        rates.items(), key=lambda item: (*item[0][:2], setting_order(item[0][2]))
    ):
        cell = activation, dropout
        accuracy = estimate(by_seed(*cell, setting, rate)["test_accuracy"])
        own = "" if setting == "base" else gain(cell, setting, rate, rates[*cell, "base"])
        common = "" if setting == "base" else gain(cell, setting, printed, printed)
        name = f"{activation}, {'dropout' if dropout else 'no dropout'}"
        body.append((name, setting, f"{rate:g}", f"{100 * accuracy.mean:.2f}", own, common))
    columns = ("cell", "setting", "best rate", "test accuracy, %", "gain, each at its best rate")
    return Table("", (*columns, f"gain, both at {printed:g}"), tuple(body))


def moved_images_table(rows):
    """Test accuracy by how training images are moved; not moved they are in the paper's rows."""
    same = ["network", "activation", "dropout", "augment", "setting"]
    paper = pl.read_parquet(PAPER / "rows.parquet").filter(augment="none")
    paper = paper.join(rows, on=["network", "activation", "dropout", "setting"], how="semi")
    rows = pl.concat([paper, rows], how="diagonal")
    ends = endpoint(rows).join(rows.select(*RUN, "augment").unique(), on=RUN)
    ends = dict(ends.group_by(same))
    means = rows.group_by(*same, "epoch").agg(pl.col("test_accuracy").mean())
    best = dict(means.group_by(same).agg(pl.col("test_accuracy").max()).group_by(same))
    highest = dict(rows.group_by(same).agg(pl.col("test_accuracy").max()).group_by(same))

    def order(key):
        network, activation, dropout, augment, setting = key
        return network, activation, dropout, augment != "none", augment, setting_order(setting)

    body = []
    for key in sorted(ends, key=order):
        network, activation, dropout, augment, setting = key
        accuracy = estimate(ends[key]["test_accuracy"])
        peaks = (f"{100 * table[key]['test_accuracy'].item():.2f}" for table in (best, highest))
        cell = f"{network}, {activation}, {'dropout' if dropout else 'no dropout'}"
        body.append((cell, augment, setting, interval(accuracy, form=".2f"), *peaks))
    columns = ("cell", "moves", "setting", "epochs 91 to 100, %", "best epoch", "highest of all")
    return Table("", columns, tuple(body))


def read_moved():
    """The rows of both studies with moved images; None if there are none."""
    found = [
        rows for name in ("augmented-mnist", "augmented-cifar") if (rows := read(name)) is not None
    ]
    return pl.concat(found, how="diagonal") if found else None


def generated():
    """The tables for RESULTS.md, by marker."""
    rates = read("learning-rates", with_paper=True)
    makers = {
        "rates": (normalisation_table, read("tanh-normalisation")),
        "other rates": (held_out_table, rates),
        "own rates": (rates_table, rates),
        "moved images": (moved_images_table, read_moved()),
        "noise alone": (
            lambda rows: mean_split_table(Results(rows)),
            read("mean-of-a5", with_paper=True),
        ),
    }
    tables = {mark: maker(rows) for mark, (maker, rows) in makers.items() if rows is not None}
    return {
        mark: to_markdown(Table("", table.columns, table.rows)).removeprefix("### \n\n")
        for mark, table in tables.items()
        if table.rows
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("store", type=Path, nargs="?")
    options = parser.parse_args()
    if options.store:
        add_rows(Store.open(options.store, readonly=True).frame())
    for mark, text in generated().items():
        write_between(ROOT / "RESULTS.md", mark, text)


if __name__ == "__main__":
    main()
