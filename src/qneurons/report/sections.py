"""The sections of a report: what each of them shows, computed and drawn."""

import math
import re
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import polars as pl

from qneurons.provenance import versions
from qneurons.report import tables
from qneurons.report.claims import (
    ANSWERS,
    Verdict,
    attributions,
    decompose,
    judge,
    paper_cells,
    split_by_mean,
)
from qneurons.report.figures import (
    ACCURACY,
    GAIN,
    LOSS,
    Curve,
    Style,
    draw_curves,
    draw_gains,
    is_drawable,
    panels_of,
    paper_figures,
    setting_styles,
)
from qneurons.report.final_values import PRIMARY, Cell, is_q, setting_order
from qneurons.report.gains import gains_over, gains_table
from qneurons.report.headline import place_names
from qneurons.report.rendering import Table, listed
from qneurons.report.results import Results
from qneurons.study.runs import counted, parse_setting
from qneurons.study.store import CELL, PROVENANCE

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class Drawing:
    """A figure with its words."""

    name: str  # of its files
    alt: str  # what it shows, for those who do not see it
    caption: str
    figure: "Figure"
    parts: Sequence["Figure"] = ()  # what a page shows instead, so that it can be narrow


@dataclass(frozen=True)
class Section:
    """A part of the report."""

    id: str
    title: str
    intro: str = ""
    verdicts: Sequence[Verdict] = ()
    figures: Sequence[Drawing] = ()
    tables: Sequence[Table] = ()
    facts: Sequence[tuple[str, Sequence[str]]] = ()


def make_sections(results: Results, runs: Mapping[Cell, Counter[str]]) -> list[Section]:
    """All sections in their order; ``runs`` is the number of runs of each cell by state."""
    finals, known = results.finals["test_accuracy"], paper_cells()
    styles = setting_styles(sorted({final.setting for final in finals}, key=setting_order))
    *verdicts, question = judge(results)
    answers = [verdict.answer for verdict in verdicts]
    counts = ", ".join(f"{a}: {answers.count(a)}" for a in ANSWERS if a in answers)
    claims = Section(
        "verdicts",
        "The paper's claims",
        f"{len(verdicts)} claims of the paper's section “Experiments” ({counts}). A claim that is "
        "not decided is folded; its bar shows how many cases are for it, against it, unclear and "
        "missing.",
        verdicts=sorted(verdicts, key=lambda verdict: verdict.is_undecided),
    )
    limit = Section(
        "noise-or-limit",
        "Noise or limit?",
        "A q-neuron differs from f in two ways: it tends to f'(x)x, and it is random. The "
        "setting “limit” trains with f'(x)x alone.",
        verdicts=[question],
        tables=noise_or_limit_tables(results),
    )
    curves = draw_learning_curves(results, styles)
    has_gains = not results.gain_curves.is_empty()
    against_base = " of the difference from base of the same seed" if has_gains else ""
    learning = Section(
        "learning-curves",
        "Learning curves",
        f"Accuracy: the mean over seeds{against_base}, smoothed over a tenth of the epochs (raw "
        "values are faint). Loss: the median over seeds. The settings "
        "that end highest and lowest have a band: the 95 % t-interval of the mean, the quartiles "
        f"of the loss. Settings are compared {tables.compared_at(finals)}; runs that did not get "
        "there are left out. The axes are fitted to the second half of the epochs. Runs of one "
        "seed see the same data in the same order, so settings may share a spike."
        if curves
        else "No run reached the epoch at which settings are compared.",
        figures=curves,
    )
    neurons = Section(
        "q-activations", "The q-activations of this study", figures=draw_neurons(results)
    )
    accuracies, *others = main_tables(results)
    if gains := draw_gains_over_base(results, runs):
        first = Section("gains", "Gains", figures=gains, tables=[gains_table(results)])
        others.insert(0, accuracies)
    else:
        first = Section("accuracies", "Test accuracy", tables=[accuracies])
    return [
        first,
        # Data that are not the paper's are not held against its claims.
        *[claims] * any(final.cell in known for final in finals),
        *[limit] * bool(limit.tables),
        learning,
        Section("tables", "Tables", learned_nothing(results), tables=others),
        *[neurons] * bool(neurons.figures),
        Section(
            "provenance",
            "Runs and provenance",
            tables=[tables.accounting_table(runs, finals)],
            facts=provenance(results.frame),
        ),
    ]


def learned_nothing(results: Results) -> str:
    """Names the settings with runs that end no better than guessing."""
    named = [
        f"{cell}: {', '.join(f'{setting} ({count})' for setting, count in counts.items())}"
        for cell in results.cells
        if (counts := results.untrained(cell))
    ]
    if not named:
        return ""
    return (
        "Some runs learned nothing: their training loss ends above 95 % of the loss of guessing. "
        f"Their settings are left out of averages over cells. {'; '.join(named)}."
    )


def main_tables(results: Results) -> list[Table]:
    values = [tables.final_table(results), tables.best_table(results)]
    values.append(tables.final_table(results, "train_loss"))
    return values + [tables.contrast_table(results, m) for m in PRIMARY if results.contrasts[m]]


def noise_or_limit_tables(results: Results) -> list[Table]:
    """Each table only if it has rows."""
    found = [tables.attribution_table(results)] if attributions(results) else []
    if split_by_mean(results):
        found.append(tables.mean_split_table(results))
    return found + ([tables.decomposition_table(results)] if decompose(results) else [])


def draw_gains_over_base(results: Results, planned: Collection[Cell]) -> list[Drawing]:
    """One figure, if base is compared with another setting."""
    if not (gains := gains_over(results, "base")):
        return []
    caption = (
        "Gain in test accuracy over base, in percentage points: mean over seeds, ± half of the "
        "95 % t-interval. A tile is filled where the gain is significant (p ≤ 0.05 after Holm's "
        "correction); a stronger colour means more, and each network has its own scale."
    )
    settings = sorted({setting for _, setting in gains}, key=setting_order)
    idle = {pair for pair in gains if not results.learns(*pair)}
    untrained = sorted(set(planned) - set(results.cells))
    figure = draw_gains(gains, settings, idle, untrained)
    outcomes = Counter(row.outcome for row in gains.values())
    counts = [f"{outcomes[name]} {name}" for name in ("better", "worse", "unclear")]
    cells = counted(len(results.cells), "cell")
    alt = f"Gains over base of {listed(settings)} in {cells}: {listed(counts)}"
    if idle:
        alt += f" ({len(idle)} learn nothing)"
    learned = [row for pair, row in gains.items() if pair not in idle and row.gain.n]
    if learned:
        ends = [pick(learned, key=lambda row: row.gain.mean) for pick in (min, max)]
        names = place_names(results.cells)
        texts = [f"{100 * row.gain.mean:+.2f} ({row.setting}, {names[row.cell]})" for row in ends]
        alt += f", from {' to '.join(texts)} points" if len(learned) > 1 else f", {texts[0]} points"
    return [Drawing("gains", f"{alt}.", caption, figure)]


def learning_curves(results: Results) -> dict[str, list[Curve]]:
    """The curves of every network on a dataset, by one protocol."""
    found: dict[str, list[Curve]] = {}
    means, medians = ("mean", "low", "high"), ("median", "lower", "upper")
    for metric, frame, names in (
        (ACCURACY, results.curves["test_accuracy"], means),
        (GAIN, results.gain_curves, means),
        (LOSS, results.curves["train_loss"], medians),
    ):
        groups = frame.fill_null(math.nan).group_by(*CELL, "setting", maintain_order=True)
        for (*key, setting), group in groups:
            cell = Cell(*key)
            points = (group[name].to_list() for name in ("epoch", *names))
            panel = cell.activation, cell.dropout
            curve = Curve(
                *(*panel, setting, metric, *points),
                is_smoothed=metric != LOSS,
                final=results.final(cell, setting).estimate.mean,
                learns=results.learns(cell, setting),
            )
            found.setdefault(cell.where, []).append(curve)
    return found


def draw_learning_curves(results: Results, styles: Mapping[str, Style]) -> list[Drawing]:
    """One figure for every network, dataset and protocol."""
    drawings = []
    for where, curves in learning_curves(results).items():
        caption = f"{where}: test accuracy against base (above) and training loss (below)."
        panels = [[c for c in curves if c.panel == panel] for panel in panels_of(curves)]
        figure, *parts = (draw_curves(shown, styles) for shown in (curves, *panels))
        words = curves_name(where), curves_alt(where, curves), caption
        drawings.append(Drawing(*words, figure, parts))
    return drawings


def curves_name(where: str) -> str:
    return re.sub(r"[^\w.-]+", "-", f"curves-{where.replace(' on ', '-')}")


def curves_alt(where: str, curves: Sequence[Curve]) -> str:
    """Says for each panel which settings end highest and lowest in test accuracy."""
    panels: dict[tuple[str, bool], list[Curve]] = {}
    for curve in curves:
        if curve.metric == ACCURACY and curve.learns:
            panels.setdefault(curve.panel, []).append(curve)
    lines = []
    for (activation, dropout), shown in panels.items():
        high, low = (pick(shown, key=lambda curve: curve.final) for pick in (max, min))
        ends = dict.fromkeys(f"{c.setting} at {100 * c.final:.2f} %" for c in (high, low))
        place = f"{activation} {'with' if dropout else 'without'} dropout"
        lines.append(f"{place}: {' and lowest '.join(ends)}")
    if not lines:
        return f"Learning curves of {where}. All settings learn nothing."
    return f"Learning curves of {where}. Highest at the end, {'; '.join(lines)}."


def draw_neurons(results: Results) -> list[Drawing]:
    """The paper's two figures that need no training, for the q-activations of the frame."""
    names = sorted(filter(is_drawable, {cell.activation for cell in results.cells}))
    settings = map(parse_setting, filter(is_q, results.frame["setting"].unique()))
    lams = sorted({setting.lam(1) for setting in settings} - {0.0})
    if not lams:
        return []
    values = listed([f"{lam:g}" for lam in lams])
    words = {
        "law-of-q": (
            f"Density of q around 1 for λ = {values}: the larger λ, the wider it is and the "
            "likelier is a negative q. The larger φ, the wider is its hole around 1.",
            "The density of q, for the λ with which the settings begin, and for several φ. A "
            "negative q, shaded, turns the sign of x.",
        ),
        "density": (
            f"The law of {listed([f'q-{name}' for name in names] or ['no q-neuron'])} (rows) for "
            f"λ = {values} (columns): f, its limit, its mean and bands of probability at "
            "each x.",
            "The law of g_q(x) at each x: f, the limit f'(x)x, the mean, and the bands around the "
            "median that hold 98, 80 and 50 % of the draws. A value that has a probability of its "
            "own is a line as wide as this probability.",
        ),
    }
    drawn = paper_figures(names, lams)
    return [Drawing(name, *words[name], figure) for name, figure in drawn.items()]


def provenance(frame: pl.DataFrame) -> list[tuple[str, list[str]]]:
    """Where the rows come from, and the versions that made the report."""
    facts = []
    for name in PROVENANCE:
        if name in frame.columns:
            values = frame.group_by(name).len().sort(name).rows()  # a run may have several
            alone = len(values) == 1
            facts.append(
                (name, [str(v) if alone else f"{v} ({counted(n, 'epoch')})" for v, n in values])
            )
    made = ", ".join(f"{k} {v}" for k, v in versions().items() if k != "triton")  # not used here
    return [*facts, ("report made with", [made])]
