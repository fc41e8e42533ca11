"""``qneurons report`` writes the page of a store; ``qneurons figures`` draws without one."""

from pathlib import Path
from typing import Annotated

import typer

from qneurons.cli.terminal import (
    Debug,
    Open,
    StoreFolder,
    console,
    one_line_errors,
    open_page,
)
from qneurons.study.runs import study_names


def report(
    store: StoreFolder,
    out: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Where the files go; else 'report' beside the store."),
    ] = None,
    study: Annotated[
        str | None,
        typer.Option(
            metavar="NAME_OR_FILE",
            help="Report this study's runs, and what is missing.",
            autocompletion=study_names,
        ),
    ] = None,
    open_: Open = False,
    debug: Debug = False,
) -> None:
    """Write tables, figures and verdicts from a store as one page."""
    with one_line_errors(debug):
        from qneurons.study.spec import load_study
        from qneurons.study.store import Store

        chosen = load_study(study) if study else None
        opened = Store.open(store, readonly=True)
        # slow: after a wrong path was found
        from qneurons.report import Results, answer, rows_of, write_report

        folder = out or store.absolute().parent / "report"
        frame = opened.frame() if chosen is None else rows_of(chosen, opened.frame())
        files = write_report(frame, folder, study=chosen)
        console().print(f"{len(files)} files in {folder}; read {folder / 'report.html'}")
        console().print(f"The answer: {answer(Results(frame), chosen)}")
        if open_:
            open_page(folder / "report.html")


def figures(
    out: Annotated[Path, typer.Option(metavar="DIR", help="Where the files go.")] = Path(
        "qneurons-figures"
    ),
    activation: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="A row of the second figure; may be repeated."),
    ] = None,
    lam: Annotated[
        list[float] | None,
        typer.Option(metavar="NUMBER", help="A column of the second figure; may be repeated."),
    ] = None,
    debug: Debug = False,
) -> None:
    """Draw the law of q and the densities of q-activations.

    They are exact, and need no training.
    """
    with one_line_errors(debug):
        from qneurons.report.figures import LAMS, PAPER_ACTIVATIONS, write_figures
        from qneurons.study.spec import activation_name

        drawn = [activation_name(name) for name in activation or PAPER_ACTIVATIONS]
        for file in write_figures(out, activations=drawn, lams=lam or LAMS):
            console().print(str(file))
