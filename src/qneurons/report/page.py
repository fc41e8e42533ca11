"""Writes the report: one self-contained page, the same in Markdown, and the figures as files."""

from collections import Counter
from collections.abc import Mapping, Sequence
from importlib import resources
from pathlib import Path

import polars as pl

from qneurons.report.claims import FAILS, HOLDS
from qneurons.report.comparisons import Cell
from qneurons.report.figures import ON_DARK, css_name, figure_files, to_svg, write_file
from qneurons.report.rendering import markdown_text, number_text, to_markdown
from qneurons.report.results import Results
from qneurons.report.sections import Section, make_sections
from qneurons.report.tables import COUNTS, EVALUATION, compared_at, count_runs
from qneurons.study.errors import StudyError
from qneurons.study.runs import Study

LEGEND = (
    "A cell is a network on a dataset with an activation f, with or without dropout, by one "
    "protocol. Its settings are compared: base is f itself; limit is f'(x)x; c0.02 is the q-neuron "
    "with λ = 0.02; a1 is the q-neuron with λ annealed from 1 (a2@0.25: from 2, at the rate 0.25 "
    "instead of 0.5); m1 is the mean of a1 without its noise; n0.001 is f with gradient noise. "
    f"{EVALUATION}"
)
HELPS, HURTS = "it helps", "it hurts"  # answers about a user's own training
TONES = {HOLDS: "yes", FAILS: "no", HELPS: "yes", HURTS: "no"}


def rows_of(study: Study, frame: pl.DataFrame) -> pl.DataFrame:
    """The rows of a store that belong to a study."""
    ours = pl.col("run").is_in([run.id for run in study.runs])
    return frame.filter(ours & (pl.col("epoch") <= study.epochs))


def write_report(frame: pl.DataFrame, folder: Path, *, study: Study | None = None) -> list[Path]:
    """Writes report.html, report.md and the figures as PNG, PDF and dark SVG; returns their paths.

    ``frame`` has the tidy rows of a store. With a ``study`` only its runs are reported, and those
    that have not begun are counted.
    """
    if study is not None:
        frame = rows_of(study, frame)
    if frame.is_empty():
        what = f"of the study {study.name!r}" if study else "in this store"
        raise StudyError(
            f"there is nothing to report: no epoch {what} is recorded; run the study first"
        )
    title = study.title if study else "q-neurons: what the runs say"
    results = Results(frame)
    runs = count_runs(results.states, study.runs if study else ())
    epoch = compared_at(results.finals["test_accuracy"], study.epochs if study else None)
    counts = summary(runs, epoch)
    return write_page(folder, title, counts, make_sections(results, runs), LEGEND)


def write_page(
    folder: Path,
    title: str,
    counts: Sequence[tuple[str, int]],
    sections: Sequence[Section],
    legend: str,
) -> list[Path]:
    """Writes report.html, report.md and the figures as files; returns their paths."""
    # Everything is made before anything is written. The page is last: if it exists, all files do.
    files = {
        name: content
        for section in sections
        for drawing in section.figures
        for name, content in figure_files(drawing.figure, drawing.name).items()
    }
    files["report.md"] = render_markdown(title, counts, sections, legend).encode()
    files["report.html"] = render_page(title, counts, sections, legend).encode()
    return [write_file(Path(folder) / name, content) for name, content in files.items()]


def summary(runs: Mapping[Cell, Counter[str]], epoch: str) -> list[tuple[str, int]]:
    """The number of runs in all, by state, and the epoch at which they are compared."""
    totals = sum(runs.values(), Counter[str]())
    words = {"compared": f"compared {epoch}"}
    return [(words.get(name, name), totals[name]) for name in COUNTS if totals[name]]


def render_page(
    title: str, counts: Sequence[tuple[str, int]], sections: Sequence[Section], legend: str
) -> str:
    from jinja2 import Environment, StrictUndefined

    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True)
    environment.filters |= {
        "css_name": css_name,
        "number_text": number_text,
        "svg": lambda drawing: to_svg(drawing.figure, drawing.name),
        "tone": lambda answer: TONES.get(answer, "open"),
    }
    template = environment.from_string(
        resources.files("qneurons.report").joinpath("page.html").read_text(encoding="utf-8")
    )
    return template.render(
        title=title, legend=legend, counts=counts, sections=sections, colours=list(ON_DARK.items())
    )


def render_markdown(
    title: str, counts: Sequence[tuple[str, int]], sections: Sequence[Section], legend: str
) -> str:
    text = markdown_text
    lines = [f"# {text(title)}", ", ".join(f"{name}: {count}" for name, count in counts), legend]
    for section in sections:
        lines += [f"## {section.title}", text(section.intro)]
        for verdict in section.verdicts:
            lines += [f"### {verdict.claim.statement}", f"**{verdict.answer}**"]
            lines += ["\n".join(f"- {text(line)}" for line in verdict.graded), text(verdict.reason)]
            lines.append("\n".join(f"- {text(number_text(number))}" for number in verdict.numbers))
            lines.append(text(f"Missing: {', '.join(verdict.missing)}.") if verdict.missing else "")
        lines += [f"![{text(d.label)}]({d.name}.png)\n\n{text(d.caption)}" for d in section.figures]
        for table in section.tables:
            lines.append(to_markdown(table))
        lines.append("\n".join(text(f"- {name}: {'; '.join(v)}") for name, v in section.facts))
    return "\n\n".join(filter(None, lines)) + "\n"
