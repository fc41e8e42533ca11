"""What the rows of the paper's study say, as tables and as sentences."""

import math
import statistics
from collections import Counter
from datetime import timedelta

import polars as pl
from scipy import stats

from qneurons.report.claims.noise_or_limit import curved_cells, find_source
from qneurons.report.claims.verdicts import ANSWERS, CURVED, OPEN
from qneurons.report.comparisons import Cell, is_q, setting_order
from qneurons.report.evidence import GUESSING
from qneurons.report.inference import ALPHA, Estimate, estimate, holm
from qneurons.report.page import rows_of
from qneurons.report.rendering import Table
from qneurons.report.tables import compared_at
from qneurons.study.data import DATASETS
from qneurons.study.store import CELL

DAY = 86400
WORDS = ("hold", "do not hold", "are not decided yet")  # as ANSWERS, of several


def split_cells(frame, study):
    """The rows of cells of which every run has ended, and those of cells in progress.

    The latter end where the slowest run of their cell is; a cell that lacks runs is left out.
    """
    frame = rows_of(study, frame)
    cells = {run.id: run.cell for run in study.runs}
    reached = dict(frame.group_by("run").agg(pl.col("epoch").max()).iter_rows())
    ended = set(frame.filter(pl.col("diverged"))["run"])
    slowest = dict.fromkeys(cells.values(), study.epochs)
    for run, cell in cells.items():
        epoch = study.epochs if run in ended else reached.get(run, 0)
        slowest[cell] = min(slowest[cell], epoch)
    last = {run: slowest[cell] for run, cell in cells.items()}
    limit = pl.col("run").replace_strict(last, return_dtype=pl.Int64)
    common = frame.filter(pl.col("epoch") <= limit)
    is_whole = limit == study.epochs
    return common.filter(is_whole), common.filter(~is_whole)


def interval(value: Estimate, factor: float = 100, form: str = "+.3f") -> str:
    low, high = factor * value.low, factor * value.high
    return f"{factor * value.mean:{form}} [{low:{form}}, {high:{form}}]"


def learning(last):
    """Cells of which every run learns something: one that does not would outweigh all others."""
    return last.filter(~(pl.col("train_loss") > GUESSING).any().over(CELL))


def difference(last, one, other, column="test_accuracy"):
    """Paired by seed, averaged over cells."""
    means = last.group_by("seed", "setting").agg(pl.col(column).mean())
    means = means.pivot("setting", index="seed", values=column)
    return estimate(means[one] - means[other])


def gains_table(evidence):
    """Gains over base of every setting in every cell."""
    epoch = compared_at(evidence.finals.values())
    settings = sorted(
        {s for cell in evidence.cells for s in evidence.settings(cell)}, key=setting_order
    )
    settings.remove("base")

    def text(cell, setting):
        contrast = evidence.contrast(cell, setting, "base")
        gain = f"{100 * contrast.difference.mean:+.2f}"
        return gain if contrast.outcome == "unclear" else f"**{gain}**"

    rows = [
        (
            cell.network,
            "yes" if cell.dropout else "no",
            cell.activation,
            f"{100 * evidence.final(cell, 'base').estimate.mean:.2f}",
            *(text(cell, setting) for setting in settings),
        )
        for cell in evidence.cells
    ]
    columns = ("network", "dropout", "activation", "base, %", *settings)
    return Table(
        f"Test accuracy at epoch {epoch}: base, and the gain over base in percentage points",
        columns,
        tuple(rows),
        "Mean over seeds, paired by seed. Bold: p ≤ 0.05 after Holm's correction over the "
        "contrasts of the cell (exact sign-flip test).",
    )


def rates_table(rates, ordinary):
    """q-tanh in the CNN, which learns nothing at the paper's learning rate, at smaller ones."""
    last = rates.filter(epoch=rates["epoch"].max())
    settings = sorted(last["setting"].unique(), key=setting_order)

    def percents(rows):
        means = dict(rows.group_by("setting").agg(pl.col("test_accuracy").mean()).iter_rows())
        return {setting: f"{100 * means[setting]:.2f}" for setting in settings if setting in means}

    by_rate = last.sort("learning_rate", descending=True).partition_by(
        "learning_rate", as_dict=True, maintain_order=True
    )
    ends = percents(ordinary.filter(epoch=ordinary["epoch"].max()))
    return Table(
        "Where nothing is learnt",
        ("learning rate", *settings),
        tuple((f"{rate:g}", *percents(rows).values()) for (rate,), rows in by_rate.items()),
        "tanh in mnist-cnn without dropout: test accuracy in % after "
        f"{last['epoch'][0]} epochs, mean over {last['seed'].n_unique()} seeds "
        "([rows](results/paper/rates.parquet); the paper's rate is 0.05). An ordinary loop at 0.05 "
        f"({ordinary['epoch'].max()} epochs, one seed, "
        "[rows](results/paper/naive-tanh-cnn.csv)) ends the same: "
        f"{', '.join(f'{setting} {end}' for setting, end in ends.items())}. "
        "The limit of tanh is x / cosh²(x), of which value and slope vanish where |x| is large, so "
        "that a layer may go there and stay ([notes](benchmarks/NOTES.md#q-tanh-in-the-cnn)). "
        "A draw with q ≤ 0 does not vanish there, and one with |q| about 1 / |x| has a slope, but "
        "only a large λ has many of them.",
    )


MODES_AT = (("c0.1", 100), ("a9", 100), ("a9", 20), ("a9", 5), ("a9", 1))  # λ from 0.1 to 9


def modes_table(frame, metric="test_accuracy"):
    """The same trained networks, evaluated in three ways, at small and at large λ."""
    title, factor, form = {
        "test_accuracy": ("test accuracy", 100, "+z.2f"),  # z: no -0.00
        "test_loss": ("test loss", 1000, "+z.1f"),
    }[metric]
    ends = frame.filter(epoch=frame["epoch"].max())
    learnt = frame.join(ends.filter(pl.col("train_loss") <= GUESSING), on="run", how="semi")
    groups = ends.select("network", "activation").unique().sort("network", "activation")

    def text(group, setting, epoch, mode):
        rows = learnt.filter(**group, setting=setting, epoch=epoch)
        gain = (pl.col(f"{metric}_{mode}") - pl.col(metric)).mean()
        found = estimate(rows.group_by("seed").agg(gain=gain)["gain"])
        number = f"{factor * found.mean:{form}}"
        return "" if not found.n else f"**{number}**" if found.low * found.high > 0 else number

    rows = [
        (*group.values(), mode, *(text(group, *at, mode) for at in MODES_AT))
        for group in groups.rows(named=True)
        for mode in ("limit", "mean")
    ]
    lams = (learnt.filter(setting=s, epoch=e)["lam"].mean() for s, e in MODES_AT)
    at = [f"{s}, epoch {e}, λ = {lam:.2g}" for (s, e), lam in zip(MODES_AT, lams, strict=True)]
    return Table(
        f"How to evaluate, by {title}",
        ("network", "activation", "mode", *at),
        tuple(rows),
        f"The same weights with every q-activation in its limit f'(x)x, or its mean, minus those "
        f"with the noise of that epoch, times {factor}; mean over seeds, with and without dropout "
        "where both are there, without runs that learnt nothing. Bold: the 95 % t-interval "
        "excludes 0.",
    )


def lam_table(last):
    """Settings against each other, each evaluated in the limit, as the library does."""
    curved = learning(last.filter(pl.col("activation").is_in(CURVED)))
    pairs = [("limit", "base"), ("c0.02", "limit"), ("c0.1", "c0.02"), ("c0.1", "base")]
    pairs += [("a1", "c0.1"), ("a5", "c0.1"), ("a9", "a5"), ("a5", "base")]
    rows = [
        (
            f"{one} − {other}",
            interval(difference(curved, one, other, "test_accuracy_limit")),
            interval(difference(curved, one, other, "test_loss_limit"), 1000, "+.2f"),
        )
        for one, other in pairs
    ]
    return Table(
        "Which λ, evaluated in the limit",
        ("contrast", "test accuracy, points", "test loss × 1000"),
        tuple(rows),
        f"Mean over the {curved.select(CELL).n_unique()} cells of tanh, elu and softplus in which "
        "every run learns, with 95 % t-intervals over seeds, paired.",
    )


def times(frame, study, rates):
    """The time that each network took, and would have taken one run at a time."""
    same = ["network", "precision", "device", "commit"]
    naive = rates.filter(variant="naive loop").select(*same, step_us="us_per_run_and_step")
    frame = frame.join(naive, on=same, how="left", validate="m:1", maintain_order="left")
    assert not frame["step_us"].null_count(), "no naive loop was measured beside some runs"
    rows = []
    for (network, precision, device), part in frame.group_by(
        "network", "precision", "device", maintain_order=True
    ):
        run = next(run for run in study.runs if run.network == network)
        steps = math.ceil(DATASETS[run.dataset].num_train / run.batch_size) * len(part)
        step_us = part["step_us"].mean()
        packed_s, naive_s = part["seconds"].sum(), steps * step_us / 1e6
        rows.append(
            {
                "network": network,
                "precision": precision,
                "device": device,
                "runs": part["run"].n_unique(),
                "epochs_of_a_run": len(part),
                "packed_s": packed_s,
                "naive_us_per_step": step_us,
                "naive_s": naive_s,
                "to_naive": packed_s / naive_s,
                "commits": " ".join(part["commit"].unique().sort()),
            }
        )
    return pl.DataFrame(rows)


def time_table(spent):
    rows = [
        (
            row["network"],
            f"{row['runs']:,}",
            f"{row['epochs_of_a_run']:,}",
            str(timedelta(seconds=round(row["packed_s"]))),
            f"{row['naive_us_per_step']:,.0f} µs",
            f"{row['naive_s'] / DAY:.1f} days",
            f"{1 / row['to_naive']:.0f}",
            f"{row['device']}, {row['precision']}",
        )
        for row in spent.iter_rows(named=True)
    ]
    return Table(
        "Time on the device",
        (
            *("network", "runs", "epochs of a run", "packed, with evaluation"),
            *("naive loop, a step", "naive loop, training alone", "times as fast", "device"),
        ),
        tuple(rows),
        "The naive loop is the paper's snippet in an ordinary module, eager, one run at a time; "
        "its step was measured beside the runs, mean over their epochs "
        "([rows](benchmarks/results/paper-time.csv)).",
    )


def naive_table(last, naive):
    """Ends of ordinary runs within what packed runs predict, and the means of both."""
    rows, inside, count, tests = [], 0, 0, []
    final = naive.filter(pl.col("epoch") == last["epoch"].max())
    for key, ordinary in final.group_by([*CELL, "setting"], maintain_order=True):
        same = pl.all_horizontal(
            pl.col(n) == v for n, v in zip([*CELL, "setting"], key, strict=True)
        )
        sample, values = last.filter(same)["test_accuracy"], sorted(ordinary["test_accuracy"])
        packed = estimate(sample)
        tests.append(stats.ttest_ind(values, sample, equal_var=False))
        low, high = tests[-1].confidence_interval()
        gap = Estimate(len(values), statistics.mean(values) - packed.mean, math.nan, low, high)
        half = stats.t.ppf(0.975, packed.n - 1) * packed.sd * math.sqrt(1 + 1 / packed.n)
        within = sum(abs(value - packed.mean) <= half for value in values)
        inside, count = inside + within, count + len(values)
        cell = Cell(*key[: len(CELL)])
        rows.append(
            (
                f"{cell.network}, {cell.activation}, {'dropout' if cell.dropout else 'no dropout'}",
                key[-1],
                f"{100 * packed.mean:.2f}",
                f"{100 * (packed.mean - half):.2f} to {100 * (packed.mean + half):.2f}",
                ", ".join(f"{100 * value:.2f}" for value in values),
                f"{within} of {len(values)}",
                interval(gap),
            )
        )
    rows.sort(key=lambda row: (row[0], setting_order(row[1])))
    return Table(
        "The same by an ordinary loop",
        (
            *("cell", "setting", "packed, mean %", "95 % of single runs", "ordinary, %", "inside"),
            "ordinary − packed, points",
        ),
        tuple(rows),
        f"One module at a time with torch's own random numbers, in float32 on the CPU "
        f"(benchmarks/naive_loop.py): {inside} of {count} runs end inside the interval in which "
        f"the packed runs predict 95 % of single runs ({0.95 * count:.0f} are expected); "
        f"{sum(p <= ALPHA for p in holm([test.pvalue for test in tests]))} of {len(tests)} "
        "differences of means are significant (Welch's test, Holm's correction).",
    )


def claims_table(verdicts):
    rows = tuple((v.claim.statement, v.answer, v.reason) for v in verdicts)
    return Table("The paper's claims", ("claim", "verdict", "why"), rows)


def failures(evidence):
    """A sentence for every cell in which runs learn nothing."""
    for cell in evidence.cells:
        if counts := evidence.untrained(cell):
            num = sum(len(evidence.final(cell, setting).values) for setting in counts)
            which = f"{sum(counts.values())} of {num} runs of {', '.join(counts)}"
            yield f"In {cell}, {which} learn nothing at the paper's learning rate."


def by_activation(evidence):
    """With which activations the limit's part and the noise's are gains."""
    cells, _ = curved_cells(evidence)
    found = {
        name: find_source(evidence, [cell for cell in cells if cell.activation == name]).gains
        for name in dict.fromkeys(cell.activation for cell in cells)
    }
    return ", ".join(
        f"{part} with {' and '.join(names) or 'none for sure'}"
        for i, part in enumerate(("the limit", "the noise"))
        for names in [[name for name, gains in found.items() if gains[i] == "gain"]]
    )


def conclusion(evidence, verdicts, question, last, study):
    """What is found, in a few sentences."""
    curved = learning(last.filter(pl.col("activation").is_in(CURVED)))
    gains = {s: difference(curved, s, "base") for s in curved["setting"].unique() if is_q(s)}
    best = max(gains, key=lambda setting: gains[setting].mean)
    outcomes = Counter(
        evidence.contrast(cell, setting, "base").outcome
        for cell in evidence.cells
        if cell.activation in CURVED
        for setting in filter(is_q, evidence.settings(cell))
    )
    loss = difference(curved, best, "base", "test_loss")
    small = difference(curved, "c0.02", "limit")
    told = "cannot be told from" if small.low <= 0 <= small.high else "differs from"
    bring = {OPEN: "it is not decided which brings", "both": "both bring"}
    source = bring.get(question.answer, f"{question.answer} brings")
    answers = Counter(verdict.answer for verdict in verdicts)
    counts = ", ".join(
        f"{answers[answer]} {word}" for answer, word in zip(ANSWERS, WORDS, strict=True)
    )
    lost = tuple(failures(evidence))
    return (
        f"{len(evidence.cells)} of the paper's {len({run.cell for run in study.runs})} cells are "
        f"trained; with tanh, ELU and softplus a q-activation ends with a significantly better "
        f"test accuracy than f in {outcomes['better']} and a worse one in {outcomes['worse']} of "
        f"{outcomes.total()} comparisons.",
        *lost,
        f"On average over the {'other ' * bool(lost)}{curved.select(CELL).n_unique()} cells of "
        f"these activations the best of {len(gains)} settings, {best}, gains "
        f"{interval(gains[best], form='+.2f')} points, while its test loss is "
        f"{'higher' if loss.mean > 0 else 'lower'} than f's by {1000 * abs(loss.mean):.1f} "
        f"thousandths.",
        f"Of the limit f'(x)x and the noise, {source} the gain on average "
        f"({by_activation(evidence)}), and λ = 0.02 {told} the limit ({interval(small)} points).",
        f"Of {len(verdicts)} claims of the paper {counts}.",
    )


def coverage(evidence, study):
    """What was trained of every network."""
    cells = dict.fromkeys(run.cell for run in study.runs)
    lines = []
    for network in dict.fromkeys(cell[1] for cell in cells):
        there = [c for c in evidence.cells if c.network == network]
        count = sum(cell[1] == network for cell in cells)
        names = ", ".join(
            f"{c.activation} {'with' if c.dropout else 'without'} dropout" for c in there
        )
        what = "all" if len(there) == count else names or "none yet"
        lines.append(f"- {network}: {len(there)} of {count} cells ({what})")
    return "\n".join(lines)
