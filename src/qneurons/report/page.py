"""Writes the report: one self-contained page, the same in Markdown, and every figure beside it."""

import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING

import polars as pl

from qneurons.provenance import versions
from qneurons.report import comparisons, tables
from qneurons.report.claims import paper
from qneurons.report.claims.noise_or_limit import decompose
from qneurons.report.claims.verdicts import (
    ANSWERS,
    FAILS,
    HOLDS,
    LEAST_EPOCHS,
    Verdict,
    paper_cells,
)
from qneurons.report.comparisons import Cell
from qneurons.report.evidence import Evidence
from qneurons.report.figures.artwork import ON_DARK, css_name, figure_files, to_svg, write_file
from qneurons.report.figures.curves import Curve, draw_curves, setting_styles
from qneurons.report.figures.densities import is_drawable
from qneurons.report.figures.neurons import paper_figures
from qneurons.report.rendering import Table, number_text, to_markdown
from qneurons.study.errors import StudyError
from qneurons.study.store import PROVENANCE

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from qneurons.study.runs import Study

KEYS = ("network", "dataset", "protocol", "activation", "dropout", "setting")
LEGEND = (
    "Settings: base is f itself; limit is f'(x)x; c0.02 is the q-neuron with λ = 0.02; a1 is that "
    "with λ annealed from 1 (a2@0.25: from 2 at the rate 0.25 instead of 0.5); n0.001 is f with "
    "gradient noise."
)
TONES = {HOLDS: "yes", FAILS: "no"}


@dataclass(frozen=True)
class Drawing:
    """A figure with its words."""

    name: str  # of its files
    label: str
    caption: str
    figure: "Figure"

    @property
    def svg(self) -> str:
        return to_svg(self.figure, self.name)


@dataclass(frozen=True)
class Section:
    """A part of the report: everything that it shows is computed already."""

    id: str
    title: str
    intro: str = ""
    verdicts: Sequence[Verdict] = ()
    figures: Sequence[Drawing] = ()
    tables: Sequence[Table] = ()
    facts: Sequence[tuple[str, Sequence[str]]] = ()
    folded: bool = False  # verdicts are shown when asked for


def rows_of(study: "Study", frame: pl.DataFrame) -> pl.DataFrame:
    """The rows of a store that belong to a study."""
    ours = pl.col("run").is_in([run.id for run in study.runs])
    return frame.filter(ours & (pl.col("epoch") <= study.epochs))


def write_report(frame: pl.DataFrame, folder: Path, *, study: "Study | None" = None) -> list[Path]:
    """Writes report.html, report.md and the figures as PNG and PDF; returns their paths.

    Args:
        frame: the tidy rows of a store.
        folder: where the files go; it is made where it is not there.

    Keyword args:
        study: reports the runs of this study only, and counts those that have not begun.
    """
    if study is not None:
        frame = rows_of(study, frame)
    if frame.is_empty():
        what = f"of the study {study.name!r}" if study else "in this store"
        raise StudyError(
            f"there is nothing to report: no epoch {what} is recorded; run the study first"
        )
    folder = Path(folder)
    title = study.title if study else "q-neurons: what the runs say"
    evidence = Evidence(frame)
    runs = tables.count_runs(frame, study.runs if study else ())
    epoch = tables.compared_at(evidence.finals.values(), study.epochs if study else None)
    counts = summary(runs, epoch)
    sections = make_sections(frame, evidence, runs)
    drawings = [drawing for section in sections for drawing in section.figures]
    # All is made before anything is written, and the page comes last: where it is, all is.
    files = {
        name: content
        for drawing in drawings
        for name, content in figure_files(drawing.figure, drawing.name).items()
    }
    files["report.md"] = render_markdown(title, counts, sections).encode()
    files["report.html"] = render_page(title, counts, sections).encode()
    return [write_file(folder / name, content) for name, content in files.items()]


def summary(runs: Mapping[Cell, Counter[str]], epoch: str) -> list[tuple[str, int]]:
    """How many runs there are in all, and at which epoch they are compared."""
    totals = sum(runs.values(), Counter[str]())
    words = {"compared": f"compared at epoch {epoch}"}
    return [(words.get(name, name), totals[name]) for name in tables.COUNTS if totals[name]]


def make_sections(
    frame: pl.DataFrame, evidence: Evidence, runs: Mapping[Cell, Counter[str]]
) -> list[Section]:
    *verdicts, question = paper.judge(evidence)
    curves = draw_learning_curves(frame)
    finals = list(evidence.finals.values())
    known = set(paper_cells())
    of_paper = any(f.cell in known and f.epoch >= LEAST_EPOCHS for f in finals)
    claimed = Section(
        "verdicts", "The paper's claims", tally(verdicts), verdicts=verdicts, folded=not of_paper
    )
    limit = Section(
        "noise-or-limit",
        "Noise or limit?",
        "A q-neuron differs from f in two ways: it tends to f'(x)x, and it is random. The "
        "setting “limit” trains with f'(x)x alone.",
        verdicts=[question],
        tables=_filled(tables.decomposition_table(decompose(evidence))),
    )
    learned = Section(
        "learning-curves",
        "Learning curves",
        "Means with 95 % t-intervals over seeds, of the runs that reached epoch "
        f"{tables.compared_at(finals)}, where settings are compared. Axes are fitted to the means; "
        "the first epochs may be outside."
        if curves
        else "No run reached the epoch at which settings are compared.",
        figures=curves,
    )
    numbers = Section("tables", "Tables", learnt_nothing(evidence), tables=main_tables(evidence))
    # Data that are not the paper's speak for themselves before they are held against its claims.
    return [
        *((claimed, limit, learned, numbers) if of_paper else (numbers, learned, limit, claimed)),
        Section("q-neurons", "The q-neurons of this study", figures=draw_neurons(frame)),
        Section(
            "provenance",
            "Runs and provenance",
            tables=[tables.accounting_table(runs, finals)],
            facts=origin(frame),
        ),
    ]


def tally(verdicts: Sequence[Verdict]) -> str:
    answers = Counter(verdict.answer for verdict in verdicts)
    counts = ", ".join(f"{answer}: {answers[answer]}" for answer in ANSWERS)
    return f"{len(verdicts)} claims of the paper's section “Experiments” ({counts})."


def learnt_nothing(evidence: Evidence) -> str:
    """Names the settings whose runs end no better than guessing."""
    counts = {cell: evidence.untrained(cell) for cell in evidence.cells}
    named = [
        f"{cell}: {', '.join(f'{setting} ({count})' for setting, count in of_cell.items())}"
        for cell, of_cell in counts.items()
        if of_cell
    ]
    if not named:
        return ""
    return (
        "Runs that learnt nothing (their training loss ends above 95 % of guessing's) and are not "
        f"averaged with those of other cells: {'; '.join(named)}."
    )


def main_tables(evidence: Evidence) -> list[Table]:
    accuracy, accuracy_contrasts = evidence.of_metric("test_accuracy")
    loss, loss_contrasts = evidence.of_metric("train_loss")
    return _filled(
        tables.accuracy_table(accuracy),
        tables.best_table(accuracy),
        tables.accuracy_table(loss),
        tables.contrast_table(accuracy_contrasts),
        tables.contrast_table(loss_contrasts),
    )


def _filled(*found: Table) -> list[Table]:
    return [table for table in found if table.rows]


def draw_learning_curves(frame: pl.DataFrame) -> list[Drawing]:
    """One figure for every network and dataset."""
    settings = sorted(frame["setting"].unique(), key=comparisons.setting_order)
    styles = setting_styles(settings)
    by_network: dict[tuple[str, str, str], list[Curve]] = {}
    for metric in ("test_accuracy", "train_loss"):
        means = comparisons.curves(frame, metric=metric).fill_null(math.nan)
        for key, group in groupby(means.iter_rows(named=True), itemgetter(*KEYS)):
            network, dataset, protocol, activation, dropout, setting = key
            points = [itemgetter("epoch", "mean", "low", "high")(row) for row in group]
            curve = Curve(activation, dropout, setting, metric, *zip(*points, strict=True))
            by_network.setdefault((network, dataset, protocol), []).append(curve)
    drawn = []
    for (network, dataset, protocol), curves in by_network.items():
        what = ", ".join(filter(None, (f"{network} on {dataset}", protocol)))
        name = "-".join(filter(None, ("curves", network, dataset, protocol)))
        drawn.append(
            Drawing(
                re.sub(r"[^\w.-]+", "-", name),
                f"learning curves of {what}",
                f"{what}: test accuracy (ascending) and training loss (descending), by activation "
                "and setting.",
                draw_curves(curves, styles),
            )
        )
    return drawn


def draw_neurons(frame: pl.DataFrame) -> list[Drawing]:
    """The paper's two figures without training, for the activations of the frame."""
    names = [name for name in sorted(frame["activation"].unique()) if is_drawable(name)]
    words = {
        "law-of-q": ("density of q", "The density of q, for several λ and φ."),
        "density": (
            "density of the q-neurons",
            "The density of g_q(x) at each x, exactly; the stronger the shade, the denser. f and "
            "the limit f'(x)x are drawn over it.",
        ),
    }
    drawn = paper_figures(names)
    return [Drawing(name, *words[name], figure) for name, figure in drawn.items()]


def origin(frame: pl.DataFrame) -> list[tuple[str, list[str]]]:
    """Where the numbers come from, and with what the report was made."""
    facts = []
    for name in PROVENANCE:
        if name in frame.columns:
            values = frame.group_by(name).len().sort(name).rows()  # a run may have several
            alone = len(values) == 1
            facts.append((name, [str(v) if alone else f"{v} ({n:,} epochs)" for v, n in values]))
    made = ", ".join(f"{k} {v}" for k, v in versions().items() if k != "triton")  # not used here
    return [*facts, ("report made with", [made])]


def render_page(title: str, counts: Sequence[tuple[str, int]], sections: Sequence[Section]) -> str:
    from jinja2 import Environment, StrictUndefined

    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True)
    environment.filters |= {
        "css_name": css_name,
        "number_text": number_text,
        "tone": lambda answer: TONES.get(answer, "open"),
    }
    template = environment.from_string(
        resources.files("qneurons.report").joinpath("page.html").read_text(encoding="utf-8")
    )
    return template.render(
        title=title, legend=LEGEND, counts=counts, sections=sections, colours=list(ON_DARK.items())
    )


def render_markdown(
    title: str, counts: Sequence[tuple[str, int]], sections: Sequence[Section]
) -> str:
    lines = [f"# {title}", ", ".join(f"{name}: {count}" for name, count in counts), LEGEND]
    for section in sections:
        lines += [f"## {section.title}", section.intro]
        for verdict in section.verdicts:
            lines += [f"### {verdict.claim.statement}", f"**{verdict.answer}.** {verdict.reason}"]
            lines.append("\n".join(f"- {number_text(number)}" for number in verdict.numbers))
            lines.append(f"Missing: {', '.join(verdict.missing)}." if verdict.missing else "")
        lines += [f"![{d.label}]({d.name}.png)\n\n{d.caption}" for d in section.figures]
        for table in section.tables:
            lines.append(to_markdown(table))
        lines.append("\n".join(f"- {name}: {'; '.join(v)}" for name, v in section.facts))
    return "\n\n".join(filter(None, lines)) + "\n"
