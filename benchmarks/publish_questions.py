"""Publishes the studies beside the paper's: results/questions, and their tables in RESULTS.md.

    python benchmarks/publish_questions.py [STORE]

The rows of a store's finished runs are added to those that are published already. Without a store
the tables are made anew. publish.py comes first, because these studies share runs with the paper's.
"""

import argparse
from pathlib import Path
from statistics import fmean

import polars as pl
from pages import bare_markdown, write_between
from publish import PAPER, ROOT, cell_name, endpoint, interval, last_epoch, read_store

from qneurons.report import Results, rows_of
from qneurons.report.final_values import setting_order
from qneurons.report.inference import ALPHA, estimate, paired_tests
from qneurons.report.rendering import Table
from qneurons.report.results import GUESSING
from qneurons.report.tables import idle_text, mean_split_table
from qneurons.study.runs import PAPER_PROTOCOL
from qneurons.study.spec import load_study
from qneurons.study.store import RUN

QUESTIONS = ROOT / "results" / "questions"
STUDIES = (
    *("mean-of-a5", "tanh-normalisation", "learning-rates"),
    *("augmented-mnist", "augmented-cifar"),
)
CHOICE = ["activation", "dropout", "setting"]  # what has a learning rate of its own


def paired_gain(runs, base):
    """The gain in test accuracy of every seed that both have."""
    both = runs.join(base, on="seed", suffix="_base")
    return both["test_accuracy"] - both["test_accuracy_base"]


def add_rows(found):
    """Adds the finished runs of every study, but for those of the paper."""
    QUESTIONS.mkdir(exist_ok=True)
    paper = pl.read_parquet(PAPER / "rows.parquet", columns=["run"])
    for name in STUDIES:
        study, path = load_study(name), QUESTIONS / f"{name}.parquet"
        rows = rows_of(study, found).join(paper, on="run", how="anti")
        ended = rows.filter((pl.col("epoch") == study.epochs) | pl.col("diverged"))
        rows = rows.join(ended, on="run", how="semi")
        print(f"{name}: {rows['run'].n_unique()} finished runs in this store")
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


def accuracy_text(runs):
    """Mean test accuracy in %, or that runs learn nothing."""
    idle = (runs["train_loss"] > GUESSING).sum()
    return idle_text(idle, len(runs)) or f"{100 * fmean(runs['test_accuracy']):.2f}"


def normalisation_table(rows):
    """Test accuracy after the last epoch, by network and learning rate."""
    found = dict(last_epoch(rows).group_by("network", "learning_rate", "setting"))
    settings = sorted({setting for *_, setting in found}, key=setting_order)
    lines = sorted({key[:2] for key in found}, key=lambda line: (line[0], -line[1]))
    body = [
        (network, f"{rate:g}", *(accuracy_text(found[network, rate, s]) for s in settings))
        for network, rate in lines
    ]
    return Table("", ("network", "learning rate", *settings), tuple(body))


def with_rate(rows):
    """The endpoint of every run, with its learning rate."""
    return endpoint(rows).join(rows.select(*RUN, "learning_rate").unique(), on=RUN)


def held_out_runs(rows):
    """The endpoint of every run with held-out images, by cell, setting and learning rate."""
    ends = with_rate(rows.filter(pl.col("held_out") > 0))
    return dict(ends.group_by(*CHOICE, "learning_rate"))


def chosen_rates(rows):
    """By cell and setting: the rate with the best mean on held-out images."""
    means = sorted((fmean(runs["test_accuracy"]), key) for key, runs in held_out_runs(rows).items())
    return {tuple(key): rate for _, (*key, rate) in means}


def in_order(keys):
    return sorted(keys, key=lambda key: (*key[:-1], setting_order(key[-1])))


def held_out_table(rows):
    """Accuracy on held-out images by learning rate; that of the rate which is chosen is bold."""
    found = held_out_runs(rows)
    rates, chosen = sorted({rate for *_, rate in found}), chosen_rates(rows)
    body = []
    for key in in_order(chosen):
        activation, dropout, setting = key
        texts = {rate: accuracy_text(found[*key, rate]) for rate in rates if (*key, rate) in found}
        texts[chosen[key]] = f"**{texts[chosen[key]]}**"
        cell = cell_name(activation, dropout=dropout)
        body.append((cell, setting, *(texts.get(rate, "") for rate in rates)))
    return Table("", ("cell", "setting", *(f"rate {rate:g}" for rate in rates)), tuple(body))


def rates_table(rows):
    """The gains over base if each setting has its own best rate, and at the printed one.

    Only of cells in which every setting has been tested at its best rate. A star marks p ≤ 0.05
    after Holm's correction over all gains of the column. In parentheses the last epoch alone.
    """
    at_end, at_last = (
        dict(with_rate(part.filter(held_out=0)).group_by(*CHOICE, "learning_rate"))
        for part in (rows, last_epoch(rows))
    )
    rates = chosen_rates(rows)
    partial = {key[:2] for key, rate in rates.items() if (*key, rate) not in at_end}
    keys = in_order(key for key in rates if key[:2] not in partial)
    _, printed = PAPER_PROTOCOL["mnist-mlp"]

    def gains(tested, rate_of):
        """The gain of every setting over base, and its star."""
        found = {}
        for *cell, setting in keys:
            if setting != "base":
                runs, base = (tested[*cell, s, rate_of(*cell, s)] for s in (setting, "base"))
                found[*cell, setting] = paired_gain(runs, base)
        stars = ("*" * (p <= ALPHA) for p in paired_tests([*found.values()]))
        return dict(zip(found, zip(map(estimate, found.values()), stars, strict=True), strict=True))

    def texts_of(rate_of):
        last = gains(at_last, rate_of)
        return {
            key: f"{interval(gain)}{star} ({100 * last[key][0].mean:+.3f}{last[key][1]})"
            for key, (gain, star) in gains(at_end, rate_of).items()
        }

    columns_of_gains = texts_of(lambda *key: rates[key]), texts_of(lambda *key: printed)
    body = []
    for key in keys:
        activation, dropout, setting = key
        rate = rates[key]
        texts = (column.get(key, "") for column in columns_of_gains)
        name = cell_name(activation, dropout=dropout)
        body.append((name, setting, f"{rate:g}", accuracy_text(at_end[*key, rate]), *texts))
    columns = ("cell", "setting", "chosen rate", "test accuracy, %", "gain, each at its rate")
    return Table("", (*columns, f"gain, both at {printed:g}"), tuple(body))


def moved_images_table(rows):
    """Test accuracy by how training images are moved; not moved they are in the paper's rows."""
    same = ["network", "activation", "dropout", "augment", "setting"]
    paper = pl.read_parquet(PAPER / "rows.parquet").filter(augment="none")
    paper = paper.join(rows, on=["network", "activation", "dropout", "setting"], how="semi")
    rows = pl.concat([paper, rows], how="diagonal")
    moves = rows.select(*RUN, "augment").unique()
    ends, lasts = (
        dict(endpoint(part).join(moves, on=RUN).group_by(same)) for part in (rows, last_epoch(rows))
    )
    means = rows.group_by(*same, "epoch").agg(pl.col("test_accuracy").mean())
    best, highest = (
        frame.group_by(same).agg(pl.col("test_accuracy").max()).rows_by_key(same, unique=True)
        for frame in (means, rows)
    )

    def order(key):
        network, activation, dropout, augment, setting = key
        return network, activation, dropout, len(augment), augment, setting_order(setting)

    body = []
    for key in sorted(ends, key=order):
        network, activation, dropout, augment, setting = key
        runs, base = ends[key], (*key[:-1], "base")
        texts = [idle_text((runs["train_loss"] > GUESSING).sum(), len(runs)), "", "", ""]
        if not texts[0]:
            peaks = (f"{100 * x:.2f}" for x in best[key] + highest[key])
            texts = [interval(estimate(runs["test_accuracy"]), form=".2f"), "", *peaks]
            if base in ends and setting != "base":
                over, at_last = (paired_gain(part[key], part[base]) for part in (ends, lasts))
                texts[1] = f"{interval(estimate(over), form='+.2f')} ({100 * at_last.mean():+.2f})"
        cell = cell_name(network, activation, dropout=dropout)
        body.append((cell, augment, setting, str(len(runs)), *texts))
    columns = ("cell", "moves", "setting", "seeds", "epochs 91 to 100, %", "gain over base")
    return Table("", (*columns, "best epoch", "highest of all"), tuple(body))


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
    return {mark: bare_markdown(table) for mark, table in tables.items() if table.rows}


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("store", type=Path, nargs="?")
    options = parser.parse_args()
    if options.store:
        add_rows(read_store(options.store))
    for mark, text in generated().items():
        write_between(ROOT / "RESULTS.md", mark, text)


if __name__ == "__main__":
    main()
