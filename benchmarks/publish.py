"""Publishes a store of the paper's study: results/paper, tables of RESULTS.md, and the explorer.

    python benchmarks/publish.py STORE [--naive naive.csv]

Sentences are written by hand; tests/report/published compares their numbers with the rows.
Only complete cells are published, in which every setting and seed has ended. Seeds beyond those of
the study are kept apart.
"""

import argparse
import math
import runpy
import statistics
from datetime import timedelta
from pathlib import Path

import matplotlib
import polars as pl
from archives import FOLDERS, pack_stores
from matplotlib.figure import Figure
from pages import bare_markdown, write_between
from scipy import stats

from qneurons.report import Results, rows_of, write_report
from qneurons.report.claims import CURVED, judge
from qneurons.report.figures.artwork import INK, LOOK, PALE, theme_svgs, write_file
from qneurons.report.final_values import PRIMARY, setting_order
from qneurons.report.gains import gains_table
from qneurons.report.inference import Estimate, estimate
from qneurons.report.page import picture
from qneurons.report.rendering import Table
from qneurons.report.results import GUESSING
from qneurons.report.sections import curves_alt, curves_name, learning_curves, provenance
from qneurons.report.tables import attribution_table, survival_text
from qneurons.study.data import DATASETS
from qneurons.study.spec import load_study
from qneurons.study.store import CELL, RUN, Store

ROOT = Path(__file__).parents[1]
PAPER = ROOT / "results" / "paper"
MEASURED = ROOT / "benchmarks" / "results"
MARGIN = 0.0005  # of test accuracy: ordinary and packed training may differ by so much
MODES_AT = (("c0.1", 100), ("a9", 100), ("a9", 20), ("a9", 5), ("a9", 1))  # λ from 0.1 to 9
LAM_PAIRS = (
    *(("limit", "base"), ("c0.02", "limit"), ("c0.1", "c0.02"), ("c0.1", "base")),
    *(("a1", "c0.1"), ("a5", "c0.1"), ("a9", "a5"), ("a5", "base")),
)


def read_store(path):
    """The rows of a store; of folders in their commands only the names remain."""
    return (
        Store.open(path, readonly=True)
        .frame()
        .with_columns(pl.col("command").str.replace_all(FOLDERS.pattern, "$1"))
    )


def whole_cells(frame, study):
    """The rows of cells in which every run has reached the last epoch or diverged."""
    frame = rows_of(study, frame)
    ended = set(frame.filter((pl.col("epoch") == study.epochs) | pl.col("diverged"))["run"])
    partial = {run.cell for run in study.runs if run.id not in ended}
    whole = [run.id for run in study.runs if run.cell not in partial]
    return frame.filter(pl.col("run").is_in(whole))


def endpoint(frame):
    """One row per run that did not diverge: its means over the last tenth of the epochs.

    A setting learns if none of its runs ends at the loss of guessing.
    """
    last = frame["epoch"].max()
    ends = frame.filter(pl.col("epoch") > last - max(last // 10, 1)).group_by(RUN)
    means = ends.agg(pl.col("^(train|test)_.*$").mean(), n=pl.col("train_loss").count()).sort(RUN)
    means = means.filter(pl.col("n") == pl.col("n").max())
    return means.with_columns(
        learns=(pl.col("train_loss") <= GUESSING).all().over(*CELL, "setting")
    )


def difference(ends, one, other, column="test_accuracy"):
    """One setting minus another with a curved activation, by seed, and the number of cells.

    It is the average over the cells in which both settings learn.
    """
    curved = ends.filter(
        pl.col("activation").is_in(CURVED) & pl.col("setting").is_in([one, other])
    ).filter(pl.col("learns").all().over(CELL))
    means = curved.group_by("seed", "setting").agg(pl.col(column).mean())
    # Sorted, because a sum in another order may end in another last digit.
    means = means.pivot("setting", index="seed", values=column).sort("seed")
    return estimate(means[one] - means[other]), curved.select(CELL).n_unique()


def interval(value, factor=100, form="+.3f"):
    low, high = factor * value.low, factor * value.high
    return f"{factor * value.mean:{form}} [{low:{form}}, {high:{form}}]"


def cell_name(*names, dropout):
    return ", ".join((*names, "dropout" if dropout else "no dropout"))


def modes_table(frame, metric, factor, form):
    """The same trained networks, evaluated in three ways, at small and at large λ."""
    ends = endpoint(frame)
    learned = frame.join(ends.filter("learns"), on=RUN, how="semi")
    groups = ends.select("network", "activation").unique().sort("network", "activation")

    def text(group, setting, epoch, mode):
        rows = learned.filter(**group, setting=setting, epoch=epoch)
        gain = (pl.col(f"{metric}_{mode}") - pl.col(metric)).mean()
        found = estimate(rows.group_by("seed").agg(gain=gain).sort("seed")["gain"])
        number = f"{factor * found.mean:{form}}"
        return "" if not found.n else f"**{number}**" if found.low * found.high > 0 else number

    rows = [
        (*group.values(), mode, *(text(group, *at, mode) for at in MODES_AT))
        for group in groups.rows(named=True)
        for mode in ("limit", "mean")
    ]
    lams = (learned.filter(setting=s, epoch=e)["lam"].mean() for s, e in MODES_AT)
    at = [f"{s}, epoch {e}, λ = {lam:.2g}" for (s, e), lam in zip(MODES_AT, lams, strict=True)]
    return Table("", ("network", "activation", "mode", *at), tuple(rows))


def lam_table(frame):
    """Settings against each other, each evaluated in the limit, as the library does.

    In parentheses the last epoch alone.
    """
    ends, last = endpoint(frame), endpoint(frame.filter(epoch=frame["epoch"].max()))

    def text(pair, metric, factor, form):
        mean, _ = difference(ends, *pair, metric)
        at_last, _ = difference(last, *pair, metric)
        return f"{interval(mean, factor, form)} ({factor * at_last.mean:{form}})"

    rows = []
    for pair in LAM_PAIRS:
        _, cells = difference(ends, *pair)
        accuracy = text(pair, "test_accuracy_limit", 100, "+.3f")
        loss = text(pair, "test_loss_limit", 1000, "+.2f")
        rows.append((" − ".join(pair), str(cells), accuracy, loss))
    return Table("", ("contrast", "cells", "test accuracy, points", "test loss × 1000"), (*rows,))


def times(frame, study):
    """The time that each cell took, and would have taken one run at a time."""
    same = ["network", "precision", "device"]
    naive = pl.read_csv(MEASURED / "training-cuda.csv").filter(variant="naive loop")
    naive = naive.group_by(same).agg(naive_us_per_step=pl.col("us_per_run_and_step").median())
    steps = {
        run.network: math.ceil(DATASETS[run.dataset].num_train / run.batch_size)
        for run in study.runs
    }
    spent = frame.group_by(*CELL, "precision", "device", maintain_order=True).agg(
        runs=pl.col("run").n_unique(),
        epochs_of_a_run=pl.len(),
        packed_s=pl.col("seconds").sum(),
        commits=pl.col("commit").unique().sort().str.join(" "),
    )
    spent = spent.join(naive, on=same, how="left", validate="m:1", maintain_order="left")
    assert not spent["naive_us_per_step"].null_count(), "no naive loop was measured for some runs"
    num_steps = pl.col("epochs_of_a_run") * pl.col("network").replace_strict(steps)
    spent = spent.with_columns(naive_s=num_steps * pl.col("naive_us_per_step") / 1e6)
    return spent.with_columns(to_naive=pl.col("packed_s") / pl.col("naive_s"))


def time_table(spent):
    """By network."""
    sums = spent.group_by("network", "precision", "device", maintain_order=True).agg(
        pl.col("runs", "epochs_of_a_run", "packed_s", "naive_s").sum(),
        pl.col("naive_us_per_step").first(),
    )
    rows = [
        (
            row["network"],
            f"{row['runs']:,}",
            f"{row['epochs_of_a_run']:,}",
            str(timedelta(seconds=round(row["packed_s"]))),
            f"{row['naive_us_per_step']:,.0f} µs",
            f"{timedelta(seconds=row['naive_s']) / timedelta(days=1):.1f} days",
            f"{row['naive_s'] / row['packed_s']:.0f}",
            f"{row['device']}, {row['precision']}",
        )
        for row in sums.iter_rows(named=True)
    ]
    columns = ("network", "runs", "epochs of a run", "packed, with evaluation")
    columns += ("naive loop, a step", "naive loop, training alone", "times as fast", "device")
    return Table("", columns, tuple(rows))


def packed_runs(frame):
    """What the ordinary runs are compared with: the published rows, and more seeds."""
    return pl.concat([frame, pl.read_parquet(PAPER / "more-seeds.parquet")])


def last_epoch(rows):
    return rows.filter(epoch=rows["epoch"].max())


def with_more_seeds(frame):
    """The cells with more seeds than the study has, with all seeds that each of their settings has.

    A few settings have still more, for the comparison with ordinary runs.
    """
    more = pl.read_parquet(PAPER / "more-seeds.parquet")
    rows = packed_runs(frame).join(more, on=CELL, how="semi")
    settings = pl.col("setting").n_unique()
    return rows.filter(settings.over(*CELL, "seed") == settings.over(CELL))


def cifar_table(results):
    """The first screen's numbers on CIFAR-10: plain f, and what the limit and a9 gain."""
    rows = []
    for cell in (cell for cell in results.cells if cell.dataset == "cifar10"):
        base = f"{100 * results.final(cell, 'base').estimate.mean:.2f} %"
        gains = (results.contrast(cell, setting, "base").gain for setting in ("limit", "a9"))
        name = cell_name({"elu": "ELU"}.get(cell.activation, cell.activation), dropout=cell.dropout)
        rows.append((name, base, *(interval(gain, form="+.2f") for gain in gains)))
    return Table("", ("CIFAR-10, CNN", "plain", "limit", "`a9`"), tuple(rows))


def verdict_table(verdicts):
    """Every claim with the first line of each of its parts, without intervals, and its cases."""
    rows = []
    for verdict in verdicts:
        lines = [line.partition(" (")[0] for line in verdict.graded]
        firsts = [
            next(line for line in lines if line.startswith(part)) for part in verdict.cases or [""]
        ]
        counts = [" / ".join(map(str, cases.values())) for cases in verdict.cases.values()]
        rows.append((verdict.claim.statement, verdict.answer, "; ".join(firsts), "; ".join(counts)))
    columns = ("the paper's claim", "verdict", "what was found")
    return Table("", (*columns, "cases for / against / unclear / missing"), tuple(rows))


def compare_with_ordinary(frame, naive):
    """Of every setting: packed estimate, prediction interval, ordinary values, Welch's test."""
    ends, found = endpoint(frame), {}
    for key, ordinary in endpoint(naive).group_by([*CELL, "setting"], maintain_order=True):
        same = dict(zip((*CELL, "setting"), key, strict=True))
        sample = ends.filter(**same)["test_accuracy"]
        values = sorted(ordinary["test_accuracy"])
        packed = estimate(sample)
        half = stats.t.ppf(0.975, packed.n - 1) * packed.sd * math.sqrt(1 + 1 / packed.n)
        found[key] = (packed, half, values, stats.ttest_ind(values, sample, equal_var=False))
    return found


def judge_equivalence(test):
    """Two one-sided tests at the level 0.05: the 90 % interval and the answer."""
    low, high = test.confidence_interval(0.90)
    inside, outside = low > -MARGIN and high < MARGIN, low > MARGIN or high < -MARGIN
    return low, high, "equivalent" if inside else "different" if outside else "undecided"


def naive_table(compared, at_last):
    """In parentheses the answer at the last epoch alone."""
    rows = []
    for key, (packed, half, values, test) in compared.items():
        _, network, dropout, activation, _, setting = key
        mean = statistics.mean(values)
        *ends, answer = judge_equivalence(test)
        *_, last_answer = judge_equivalence(at_last[key][-1])
        inside = sum(abs(value - packed.mean) <= half for value in values)
        rows.append(
            (
                cell_name(network, activation, dropout=dropout),
                setting,
                f"{100 * packed.mean:.2f} ({packed.n})",
                f"{100 * (packed.mean - half):.2f} to {100 * (packed.mean + half):.2f}",
                f"{100 * mean:.2f} ({len(values)})",
                f"{inside} of {len(values)}",
                interval(Estimate(len(values), mean - packed.mean, math.nan, *ends)),
                f"{answer} ({last_answer})",
            )
        )
    rows.sort(key=lambda row: (row[0], setting_order(row[1])))
    columns = ("cell", "setting", "packed, mean % (runs)", "95 % of single runs")
    columns += ("ordinary, mean % (runs)", "inside", "ordinary − packed, points [90 %]")
    return Table("", (*columns, f"within ±{100 * MARGIN:g} points"), tuple(rows))


def draw_naive(frame, naive):
    """Learning curves of packed and ordinary runs over each other."""
    metrics = {
        "test_accuracy": (100, {"ylim": (97.0, 98.9)}),
        "train_loss": (1, {"yscale": "log", "ylim": (1e-5, 0.5)}),
    }
    cells = sorted(naive.filter(network="mnist-mlp").select(CELL).unique().rows())
    settings = sorted(naive["setting"].unique(), key=setting_order)
    with matplotlib.rc_context(LOOK):
        figure = Figure(figsize=(1.75 * len(settings), 3.4 * len(cells)), layout="constrained")
        grid = figure.subplots(2 * len(cells), len(settings), sharex=True, sharey="row")
        for i, cell in enumerate(cells):
            for j, setting in enumerate(settings):
                same = dict(zip((*CELL, "setting"), (*cell, setting), strict=True))
                packed = frame.filter(**same).group_by("epoch", maintain_order=True)
                for ax, metric in zip(grid[2 * i : 2 * i + 2, j], metrics, strict=True):
                    scale, limits = metrics[metric]
                    value = pl.col(metric)
                    band = packed.agg(low=value.min(), high=value.max(), lacking=value.null_count())
                    band = band.filter(lacking=0)
                    low, high = scale * band["low"], scale * band["high"]
                    ax.fill_between(band["epoch"], low, high, color="#0064a4", alpha=0.5, lw=0)
                    for run in naive.filter(**same).partition_by("seed"):
                        ax.plot(run["epoch"], scale * run[metric], color=INK, lw=0.5)
                    ax.grid(color=PALE, lw=0.5)
                    ax.set(**limits, axisbelow=True)
                grid[2 * i, j].set_title(setting)
            name = f"{cell[3]}, {'with' if cell[2] else 'without'} dropout"
            grid[2 * i, 0].set_ylabel(f"{name}\ntest accuracy, %")
            grid[2 * i + 1, 0].set_ylabel("training loss")
        for ax in grid[-1]:
            ax.set_xlabel("epoch")
    return figure


def generated(frame, study):
    """Everything between markers in RESULTS.md, by its marker."""
    results = Results(frame)
    *verdicts, question = judge(results)
    more = Results(with_more_seeds(frame))
    ordinary = packed_runs(frame), pl.read_parquet(PAPER / "naive.parquet")
    tables = {
        "gains": gains_table(results),
        "verdicts": verdict_table(verdicts),
        "noise or limit": attribution_table(results),
        "accuracy by mode": modes_table(frame, "test_accuracy", 100, "+z.2f"),  # z: no -0.00
        "loss by mode": modes_table(frame, "test_loss", 1000, "+z.1f"),
        "lam": lam_table(frame),
        "time": time_table(times(frame, study)),
        "more seeds": gains_table(more),
        "more seeds over the limit": gains_table(more, "limit"),
        "naive": naive_table(
            *(compare_with_ordinary(*rows) for rows in (ordinary, map(last_epoch, ordinary)))
        ),
    }
    found = {mark: bare_markdown(table) for mark, table in tables.items()}
    found["claims"] = "\n".join(
        "\n  - ".join((f"- **{v.answer}:** {v.claim.statement}", *v.graded, v.reason))
        for v in verdicts
    )
    found["answer"] = f"**{question.answer}.** {question.reason}"
    found["corrections"] = " ".join(survival_text(results, metric) for metric in PRIMARY)
    found["curves"] = "\n\n".join(
        f"**{where}**\n\n"
        + picture(f"results/paper/{curves_name(where)}", curves_alt(where, curves))
        for where, curves in learning_curves(results).items()
    )
    facts = provenance(frame)
    found["provenance"] = "\n".join(f"- {name}: {'; '.join(values)}" for name, values in facts)
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("store", type=Path)
    parser.add_argument("--naive", type=Path, help="rows of naive_loop.py to add")
    options = parser.parse_args()
    study = load_study("paper")
    rows = read_store(options.store)
    frame = whole_cells(rows, study)
    frame.write_parquet(PAPER / "rows.parquet")
    more = rows.filter(pl.col("seed") > frame["seed"].max())
    more.join(frame, on=CELL, how="semi").write_parquet(PAPER / "more-seeds.parquet")
    pack_stores(PAPER / "store.tar.xz", {"store": options.store})
    if options.naive:
        published = PAPER / "naive.parquet"
        added = pl.read_csv(options.naive).with_columns(pl.col(pl.String).fill_null(""))
        both = pl.concat([pl.read_parquet(published), added])
        both.unique([*RUN, "epoch"], keep="last", maintain_order=True).write_parquet(published)
    times(frame, study).write_csv(MEASURED / "paper-time.csv")
    write_report(frame, PAPER, study=study, formats=())
    naive = draw_naive(packed_runs(frame), pl.read_parquet(PAPER / "naive.parquet"))
    for name, content in theme_svgs(naive, "naive-and-packed").items():
        write_file(ROOT / "docs" / name, content)
    for mark, text in generated(frame, study).items():
        write_between(ROOT / "RESULTS.md", mark, text)
    write_between(ROOT / "README.md", "cifar", bare_markdown(cifar_table(Results(frame))))
    runpy.run_path(str(ROOT / "docs" / "draw_explorer.py"), run_name="__main__")


if __name__ == "__main__":
    main()
