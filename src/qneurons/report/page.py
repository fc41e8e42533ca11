"""Writes the report: one self-contained page, the same in Markdown, and the figures as files."""

import html
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

import polars as pl

from qneurons.report.claims import FAILS, HOLDS
from qneurons.report.figures import (
    FORMATS,
    ON_DARK,
    css_name,
    figure_files,
    share_styles,
    to_svg,
    write_file,
)
from qneurons.report.final_values import Cell, is_q, setting_order
from qneurons.report.headline import answer
from qneurons.report.legend import legend, meaning
from qneurons.report.rendering import markdown_text, number_text, one_line, to_markdown
from qneurons.report.results import Results
from qneurons.report.sections import Drawing, Section, make_sections
from qneurons.report.tables import COUNTS, EVALUATION, compared_at, count_runs
from qneurons.study.errors import StudyError
from qneurons.study.runs import Study

CELLS = (
    "A cell is a network on a dataset with an activation f, with or without dropout, by one "
    "protocol. Its settings are compared: "
)
HELPS, HURTS = "it helps", "it hurts"  # answers about a user's own training
TONES = {HOLDS: "yes", FAILS: "no", HELPS: "yes", HURTS: "no"}


def rows_of(study: Study, frame: pl.DataFrame) -> pl.DataFrame:
    """The rows of a store that belong to a study."""
    ours = pl.col("run").is_in([run.id for run in study.runs])
    return frame.filter(ours & (pl.col("epoch") <= study.epochs))


def write_report(
    frame: pl.DataFrame,
    folder: Path,
    *,
    study: Study | None = None,
    formats: Sequence[str] = FORMATS,
) -> list[Path]:
    """Writes report.html, report.md and the figures; returns their paths.

    ``frame`` has the tidy rows of a store. With a ``study`` only its runs are reported, and those
    that have not begun are counted. Figures are written as SVG, for a light and for a dark page,
    and in the other ``formats``.
    """
    if study is not None:
        frame = rows_of(study, frame)
    if frame.is_empty():
        what = f"of the study {study.name!r}" if study else "in this store"
        raise StudyError(
            f"there is nothing to report: no epoch {what} is recorded", "run the study first"
        )
    title = study.title if study else "q-activations: what the runs say"
    results = Results(frame)
    finals = results.finals["test_accuracy"]
    runs = count_runs(results.states, study.runs if study else ())
    epoch = compared_at(finals, study.epochs if study else None)
    settings = sorted({final.setting for final in finals}, key=setting_order)
    evaluation = f" {EVALUATION}" if any(map(is_q, settings)) else ""
    head = Head(
        title,
        answer(results, study),
        summary(runs, epoch),
        f"{CELLS}{legend({s: meaning(s) for s in settings})}.{evaluation}",
    )
    return write_page(folder, head, make_sections(results, runs), formats)


@dataclass(frozen=True)
class Head:
    """The beginning of a page."""

    title: str
    answer: str  # one sentence
    counts: Sequence[tuple[str, int]]
    legend: str


def write_page(
    folder: Path, head: Head, sections: Sequence[Section], formats: Sequence[str] = FORMATS
) -> list[Path]:
    """Writes report.html, report.md and the figures as files; returns their paths."""
    # Everything is made before anything is written. The page is last: if it exists, all files do.
    files = {
        name: content
        for section in sections
        for drawing in section.figures
        for name, content in figure_files(drawing.figure, drawing.name, formats).items()
    }
    files["report.md"] = render_markdown(head, sections).encode()
    files["report.html"] = render_page(head, sections, formats).encode()
    return [write_file(Path(folder) / name, content) for name, content in files.items()]


def summary(runs: Mapping[Cell, Counter[str]], epoch: str) -> list[tuple[str, int]]:
    """The number of runs in all, by state, and the epoch at which they are compared."""
    totals = sum(runs.values(), Counter[str]())
    words = {"compared": f"compared {epoch}"}
    return [(words.get(name, name), totals[name]) for name in COUNTS if totals[name]]


def render_page(head: Head, sections: Sequence[Section], formats: Sequence[str]) -> str:
    from jinja2 import Environment, StrictUndefined

    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True)
    environment.filters |= {
        "css_name": css_name,
        "number_text": number_text,
        "svg": draw_svg,
        "tone": lambda answer: TONES.get(answer, "open"),
    }
    template = environment.from_string(
        resources.files("qneurons.report").joinpath("page.html").read_text(encoding="utf-8")
    )
    page = template.render(
        head=head, sections=sections, formats=("svg", *formats), colours=list(ON_DARK.items())
    )
    return share_styles(page)


def draw_svg(drawing: Drawing) -> str:
    if not drawing.parts:
        return to_svg(drawing.figure, drawing.name)
    names = (f"{drawing.name}-{k}" for k in range(len(drawing.parts)))
    return "\n".join(map(to_svg, drawing.parts, names))


def picture(stem: str, alt: str) -> str:
    """A figure in Markdown: GitHub shows the file for the reader's light or dark page."""
    dark = f'<source media="(prefers-color-scheme: dark)" srcset="{stem}-dark.svg">'
    light = f'<img src="{stem}.svg" alt="{html.escape(one_line(alt))}">'
    return f"<picture>\n  {dark}\n  {light}\n</picture>"


def render_markdown(head: Head, sections: Sequence[Section]) -> str:
    text = markdown_text
    counts = ", ".join(f"{name}: {count:,}" for name, count in head.counts)
    lines = [f"# {text(head.title)}", f"**{text(head.answer)}**", counts, text(head.legend)]
    for section in sections:
        lines += [f"## {section.title}", text(section.intro)]
        for verdict in section.verdicts:
            lines += [f"### {verdict.claim.statement}", f"**{verdict.answer}**"]
            lines += ["\n".join(f"- {text(line)}" for line in verdict.graded), text(verdict.reason)]
            lines.append("\n".join(f"- {text(number_text(number))}" for number in verdict.numbers))
            lines.append(text(f"Missing: {', '.join(verdict.missing)}.") if verdict.missing else "")
        lines += [f"{picture(d.name, d.alt)}\n\n{text(d.caption)}" for d in section.figures]
        for table in section.tables:
            lines.append(to_markdown(table))
        lines.append("\n".join(text(f"- {name}: {'; '.join(v)}") for name, v in section.facts))
    return "\n\n".join(filter(None, lines)) + "\n"
