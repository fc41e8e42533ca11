"""``qneurons quickstart``: a small study from nothing to its page, with one command."""

import dataclasses
import shlex
from pathlib import Path
from typing import Annotated

import typer

from qneurons.cli.terminal import Debug, Device, Open, console, one_line_errors, open_page
from qneurons.study.runs import counted

NOTE = "A star: p ≤ 0.05 after Holm's correction. In parentheses: the last epoch alone."
NEXT = """
What to try next:
  qneurons study list                              the paper's studies
  qneurons study run paper-mnist-mlp --seeds 0-2   a part of one, on MNIST
  qneurons figures                                 the law of q, drawn
  qneurons compare --help                          your own model
  {export}"""


def quickstart(
    out: Annotated[Path, typer.Option(metavar="DIR", help="Where everything goes.")] = Path(
        "qneurons-quickstart"
    ),
    device: Device = None,
    open_: Open = False,
    debug: Debug = False,
) -> None:
    """Train a small study in about a minute, and report it.

    Nothing is downloaded. A second call continues where the first was stopped, or shows the report.
    """
    with one_line_errors(debug):
        # All imports first, so that a missing package is noticed before the training.
        from qneurons.cli.training import train_here
        from qneurons.report import Results, answer, gains_table, rows_of, to_rich, write_report
        from qneurons.study.spec import load_study
        from qneurons.study.store import Store

        study = load_study("quickstart")
        store = out / "store"
        screen = console()
        screen.print(
            f"{study.title}: {counted(len(study.runs), 'run')} of {counted(study.epochs, 'epoch')}"
        )
        train_here(study, store, device=device)
        frame = rows_of(study, Store.open(store, readonly=True).frame())
        results = Results(frame)
        write_report(frame, out / "report", study=study)
        # What follows fits on a screen of 24 lines; the page has the rest of the note.
        screen.print(to_rich(dataclasses.replace(gains_table(results), note=NOTE)))
        screen.print(f"\nThe answer: {answer(results, study)}")
        page = out / "report" / "report.html"
        screen.print(f"The page with figures: {page}")
        export = shlex.join(["qneurons", "study", "export", str(store), "rows.csv"])
        screen.print(NEXT.format(export=export))
        if open_:
            open_page(page)
