"""``qneurons quickstart``: a small study from nothing to its page, with one command."""

import shlex
from pathlib import Path
from typing import Annotated

import typer

from qneurons.cli.terminal import Debug, Device, Open, console, one_line_errors, open_page

NEXT = """\
What to try next:
  qneurons study list                              the paper's studies
  qneurons study show paper-mnist-mlp              what one of them trains
  qneurons study run paper-mnist-mlp --seeds 0-2   train a part of it (it downloads MNIST)
  qneurons figures                                 the law of q and the densities of q-neurons"""


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
        screen.print(f"{study.title}: {len(study.runs)} runs of {study.epochs} epochs")
        train_here(study, store, device=device)
        frame = rows_of(study, Store.open(store, readonly=True).frame())
        results = Results(frame)
        screen.print(to_rich(gains_table(results)))
        write_report(frame, out / "report", study=study)
        export = shlex.join(["qneurons", "study", "export", str(store), str(out / "rows.csv")])
        screen.print(f"Everything that was recorded: {export}")
        screen.print(NEXT)
        page = out / "report" / "report.html"
        screen.print(f"The page with figures and verdicts: {page}")
        screen.print(f"The answer: {answer(results, study)}")
        if open_:
            open_page(page)
