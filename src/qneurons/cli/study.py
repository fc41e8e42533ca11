"""``qneurons study``: lists, shows and runs studies; inspects, merges and exports stores."""

import dataclasses
import io
import os
import shlex
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Column, Table

from qneurons.cli.status import status
from qneurons.cli.terminal import Debug, Device, StoreFolder, console, one_line_errors
from qneurons.study.errors import StudyError, unknown
from qneurons.study.files import explained, replace
from qneurons.study.runs import YOUNGER, Run, counted, study_names

app = typer.Typer(
    help="Train the paper's experiment, or a grid of your own.\n\n"
    "Both use the paper's networks, and can be stopped at any time. For a network and a training "
    "of your own: qneurons compare --help.",
    no_args_is_help=True,
    rich_markup_mode=None,
)
FORMATS = ("parquet", "csv")

Name = Annotated[
    str,
    typer.Argument(
        metavar="NAME_OR_FILE",
        help="A name from the list, or a .toml file.",
        autocompletion=study_names,
    ),
]
Only = Annotated[
    list[str] | None,
    typer.Option(
        metavar="VALUES",
        help="Only runs with all of these: 'activation=elu,setting=base|c0.1'. Repeat it to add "
        "runs.",
    ),
]
Seeds = Annotated[
    str | None,
    typer.Option(metavar="LIST", help="Seeds instead of the study's own: 0-9 or 0,3,5-7."),
]
Epochs = Annotated[
    int | None, typer.Option(metavar="N", help="Number of epochs instead of the study's own.")
]


@app.command("list")
def list_(debug: Debug = False) -> None:
    """List the studies that come with the package."""
    with one_line_errors(debug):
        from qneurons.study.spec import load_study

        counts = (Column(name, justify="right") for name in ("runs", "epochs"))
        table = Table("study", *counts, "title")
        for name in study_names():
            study = load_study(name)
            table.add_row(name, f"{len(study.runs):,}", str(study.epochs), study.title)
        console().print(table)


@app.command()
def show(
    name: Name, only: Only = None, seeds: Seeds = None, epochs: Epochs = None, debug: Debug = False
) -> None:
    """Show the grid of a study."""
    with one_line_errors(debug):
        from qneurons.study.spec import load_study, select

        study = select(load_study(name), only=only, seeds=seeds, epochs=epochs)
        screen = console()
        screen.print(f"{study.name}: {study.title}")
        screen.print(f"{counted(len(study.runs), 'run')} of {counted(study.epochs, 'epoch')}")
        varied = ("dropout", "activation", "setting", "seed")
        fixed = [field.name for field in dataclasses.fields(Run) if field.name not in varied]
        for name in YOUNGER:
            if all(getattr(run, name) == getattr(Run, name) for run in study.runs):
                fixed.remove(name)
        grids: dict[tuple[object, ...], list[Run]] = {}
        for run in study.runs:
            grids.setdefault(tuple(getattr(run, name) for name in fixed), []).append(run)
        for runs in grids.values():
            values = {"runs": str(len(runs))}
            for name in (*fixed[:2], *varied, *fixed[2:]):
                title = "φ" if name == "phi" else name.replace("_", " ")
                values[title] = _values(getattr(run, name) for run in runs)
            width = max(map(len, values)) + len(": ")
            screen.print("")
            for title, text in values.items():
                screen.print(f"{title + ':':{width}}{text}")


@app.command()
def run(
    name: Name,
    store: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="The store; runs that it has are not trained again. Else qneurons-NAME/store.",
        ),
    ] = None,
    data_dir: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Where datasets are, or are downloaded to.")
    ] = None,
    only: Only = None,
    seeds: Seeds = None,
    epochs: Epochs = None,
    device: Device = None,
    precision: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="fp32, tf32, bf16, fp64; else tf32 on cuda, else fp32."),
    ] = None,
    pack: Annotated[
        int | None,
        typer.Option(min=1, metavar="N", help="Runs that train together; else all that fit."),
    ] = None,
    time_limit: Annotated[
        float | None,
        typer.Option(min=0.0, metavar="SECONDS", help="Stop after so long, with everything saved."),
    ] = None,
    executor: Annotated[
        str,
        typer.Option(metavar="NAME", help="local, or ray: a Ray cluster, one task per pack."),
    ] = "local",
    address: Annotated[
        str | None,
        typer.Option(metavar="HOST:PORT", help="The cluster, also ray://host:port; else auto."),
    ] = None,
    cpus_per_pack: Annotated[
        float | None,
        typer.Option(min=0.0, metavar="N", help="On a cluster: CPUs, and so threads; else 1."),
    ] = None,
    gpus_per_pack: Annotated[
        float | None,
        typer.Option(
            min=0.0,
            metavar="N",
            help="On a cluster: GPUs, such as 0.5; else 1 on cuda.",
        ),
    ] = None,
    debug: Debug = False,
) -> None:
    """Train the runs of a study that its store lacks.

    Ctrl-C and --time-limit stop with everything saved; the same command continues. Several
    processes may run a study on one store. On a Ray cluster Ctrl-C cancels the tasks: what they
    saved before, every 30 seconds, is kept.

    Exit codes: 0 finished, 3 time limit, 130 Ctrl-C, 1 error, 2 wrong usage.
    """
    with one_line_errors(debug):
        from qneurons.cli.training import train_here
        from qneurons.study.spec import load_study, select
        from qneurons.study.store import Store

        whole = load_study(name)
        study = select(whole, only=only, seeds=seeds, epochs=epochs)
        folder = store or Path(f"qneurons-{study.name}") / "store"
        train_here(
            study,
            folder,
            device=device,
            precision=precision,
            data_dir=data_dir,
            pack=pack,
            time_limit=time_limit,
            keep_state=study.epochs < whole.epochs,  # the other epochs may follow
            executor=executor,
            address=address,
            cpus_per_pack=cpus_per_pack,
            gpus_per_pack=gpus_per_pack,
        )
        screen = console()
        lost = len(Store.open(folder, readonly=True).diverged() & {run.id for run in study.runs})
        diverged = f" ({lost} diverged)" if lost else ""
        screen.print(
            f"finished: {counted(len(study.runs), 'run')}{diverged} "
            f"of {counted(study.epochs, 'epoch')} in {folder}"
        )
        screen.print(f"next: qneurons report {shlex.quote(str(folder))}")


app.command()(status)


@app.command("merge")
def merge_(
    sources: Annotated[list[Path], typer.Argument(metavar="STORE", help="Folders of stores.")],
    into: Annotated[Path, typer.Option(metavar="DIR", help="The store that gets everything.")],
    min_epochs: Annotated[
        int,
        typer.Option(
            metavar="N", min=1, help="Leave out records of fewer epochs, but not of diverged runs."
        ),
    ] = 1,
    debug: Debug = False,
) -> None:
    """Join stores, for example of several machines. Stores that disagree are refused."""
    with one_line_errors(debug):
        from qneurons.study.store import merge

        merged = merge(sources, into, min_epochs=min_epochs)
        short = f", {counted(merged.left_out, 'shorter record')} left out" * (min_epochs > 1)
        console().print(
            f"{into}: {counted(merged.runs, 'run')}; {counted(merged.epochs_added, 'epoch')} "
            f"added, {merged.epochs_equal:,} there already{short}"
        )


@app.command()
def export(
    store: StoreFolder,
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="To write, such as rows.parquet or rows.csv.")
    ],
    format: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="parquet or csv; else by the ending of the file.",
            autocompletion=lambda: list(FORMATS),
        ),
    ] = None,
    debug: Debug = False,
) -> None:
    """Write all records as tidy rows, one per run and epoch."""
    with one_line_errors(debug):
        from qneurons.study.store import Store

        chosen = format or file.suffix.removeprefix(".").lower()
        if chosen not in FORMATS and format is None:
            raise StudyError(f"{file} ends with neither .parquet nor .csv", "give --format")
        if chosen not in FORMATS:
            raise unknown("format", chosen, FORMATS)
        if file.is_dir():
            raise StudyError(f"{file} is a folder", f"give the name of a file, as in rows.{chosen}")
        if not file.parent.is_dir():
            raise StudyError(f"{file.parent} is no folder", "make it first, or give another path")
        frame = Store.open(store, readonly=True).frame()
        content = io.BytesIO()
        frame.write_parquet(content) if chosen == "parquet" else frame.write_csv(content)
        is_output = str(file) == "/dev/stdout"  # others may write to it too
        is_stream = is_output or (file.exists() and not file.is_file())  # a pipe, a device
        with explained(f"cannot write {file}"):
            if is_output:
                sys.stdout.buffer.write(content.getbuffer())
                sys.stdout.flush()
            elif is_stream:
                file.write_bytes(content.getbuffer())
            else:  # a link stays; the file that it points to is replaced
                replace(Path(os.path.realpath(file)), content.getbuffer())
        console(stderr=is_stream).print(f"{counted(len(frame), 'row')} in {file}")


def _values(values: Iterable[object]) -> str:
    """The distinct values; consecutive integers as a range."""
    distinct = list(dict.fromkeys(values))
    first = distinct[0]
    if isinstance(first, int) and len(distinct) > 2:
        in_a_row = distinct == list(range(first, first + len(distinct)))
        return f"{first}-{distinct[-1]}" if in_a_row else ",".join(map(str, distinct))
    return " ".join(_text(value) for value in distinct)


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
