"""Publishes a store of the paper's study: results/paper, RESULTS.md, and a few lines of the README.

    python benchmarks/publish.py STORE [--naive naive.csv] [--rates STORE]

Every number is computed: from the store, from what naive_loop.py found, from a store of rates.toml,
and from results/training-cuda.csv (bench_training.py). Cells that are not whole, with all settings
and seeds to the last epoch, are left out.
"""

import argparse
import tarfile
import textwrap
from pathlib import Path

import polars as pl
from pages import write_between
from publishing.drawings import draw_gains, draw_naive
from publishing.findings import (
    claims_table,
    conclusion,
    coverage,
    gains_table,
    lam_table,
    modes_table,
    naive_table,
    rates_table,
    split_cells,
    time_table,
    times,
)

from qneurons.report.claims import paper
from qneurons.report.evidence import Evidence
from qneurons.report.figures.artwork import figure_files, write_file
from qneurons.report.page import origin, write_report
from qneurons.report.rendering import to_markdown
from qneurons.study.spec import load_study
from qneurons.study.store import Store

ROOT = Path(__file__).parents[1]
PAPER = ROOT / "results" / "paper"


def pack_store(folder, path):
    """The store without the tensors of unfinished runs; equal stores give equal bytes."""

    def anonymous(member):
        member.uid = member.gid = member.mtime = 0
        member.uname = member.gname = ""
        return member

    with tarfile.open(path, "w:xz") as archive:
        for name in ("store.json", "journal.jsonl", "journal.length"):
            archive.add(folder / name, f"store/{name}", filter=anonymous)


def in_progress(begun):
    if begun.is_empty():
        return ""
    return (
        "Cells in progress, not yet counted above or below: all their runs, up to the last epoch "
        f"that all have reached.\n\n{to_markdown(gains_table(Evidence(begun)))}"
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("store", type=Path)
    parser.add_argument("--naive", type=Path, help="rows of naive_loop.py; else the last")
    parser.add_argument("--rates", type=Path, help="a store of rates.toml; else the last")
    options = parser.parse_args()
    study = load_study("paper")
    store = Store.open(options.store, readonly=True)
    progress, diverged = store.progress(), store.diverged()
    frame, begun = split_cells(store.frame(), study)
    frame.write_parquet(PAPER / "rows.parquet")
    pack_store(options.store, PAPER / "store.tar.xz")
    if options.naive:
        pl.read_csv(options.naive).write_parquet(PAPER / "naive.parquet")
    naive = pl.read_parquet(PAPER / "naive.parquet")
    if options.rates:
        Store.open(options.rates, readonly=True).frame().write_parquet(PAPER / "rates.parquet")
    rates = pl.read_parquet(PAPER / "rates.parquet")
    ordinary = pl.read_csv(PAPER / "naive-tanh-cnn.csv")
    measured = ROOT / "benchmarks" / "results"
    spent = times(frame, study, pl.read_csv(measured / "training-cuda.csv"))
    spent.write_csv(measured / "paper-time.csv")
    last = frame.filter((pl.col("epoch") == study.epochs) & ~pl.col("diverged"))
    evidence = Evidence(frame)
    *verdicts, question = paper.judge(evidence)
    for file in write_report(frame, PAPER, study=study):
        if file.suffix == ".pdf":
            file.unlink()  # the same as the PNG
    figures = {PAPER / "gains.png": draw_gains(evidence)}
    figures[ROOT / "docs" / "naive-and-packed.png"] = draw_naive(frame, naive)
    for path, figure in figures.items():
        write_file(path, figure_files(figure, "figure")["figure.png"])
    num_seeds, num_settings = (
        len({getattr(run, name) for run in study.runs}) for name in ("seed", "setting")
    )
    left = sum(0 < epoch < study.epochs for run, epoch in progress.items() if run not in diverged)
    again = f" (the {left} runs in progress begin again: their weights are not in it)" * bool(left)
    said = conclusion(evidence, verdicts, question, last, study)
    curves = "\n\n".join(
        f"![{p.stem}](results/paper/{p.name})" for p in sorted(PAPER.glob("curves-*.png"))
    )
    facts = "\n".join(f"- {name}: {'; '.join(values)}" for name, values in origin(frame))
    page = [
        "# Results",
        "The paper's experiment on the real data, by its own protocol "
        "([the study](docs/study.md)). This page is written by `python benchmarks/publish.py`; "
        "every number is computed. Tables, figures and rows: [report](results/paper/report.md), "
        "[page](results/paper/report.html), [rows](results/paper/rows.parquet). To go on with the "
        "rest: `tar xf results/paper/store.tar.xz` and `qneurons study run paper --store store`"
        f"{again}.",
        " ".join(said),
        "![gain over base of every setting](results/paper/gains.png)",
        f"Gain in test accuracy over f after the last epoch: mean over {num_seeds} seeds and 95 % "
        "interval. An arrow: nothing was learnt.",
        "Trained so far, whole cells only (a cell is a network, an activation, with or without "
        f"dropout, {num_settings} settings, {num_seeds} seeds, {study.epochs} epochs):",
        coverage(evidence, study),
        to_markdown(gains_table(evidence)),
        in_progress(begun),
        to_markdown(rates_table(rates, ordinary)),
        to_markdown(claims_table(verdicts)),
        f"### {question.claim.statement}\n\n**{question.answer}.** {question.reason}",
        to_markdown(modes_table(frame)),
        to_markdown(modes_table(frame, "test_loss")),
        to_markdown(lam_table(last)),
        to_markdown(time_table(spent)),
        to_markdown(naive_table(last, naive)),
        "![learning curves](docs/naive-and-packed.png)",
        "### Learning curves",
        curves,
        f"### Provenance\n\n{facts}",
    ]
    (ROOT / "RESULTS.md").write_text("\n\n".join(filter(None, page)) + "\n")
    lines = textwrap.fill(" ".join(said), 100)
    figure = "![gain over f of every setting](results/paper/gains.png)"
    write_between(ROOT / "README.md", "results", f"{figure}\n\n{lines}")


if __name__ == "__main__":
    main()
