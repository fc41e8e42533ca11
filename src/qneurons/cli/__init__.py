"""The command line: parses, calls and prints.

The modules here import torch and the other large packages inside of their commands, so that
``--help`` and errors of usage answer at once.
"""

from typing import Annotated

from qneurons.study.errors import install

try:
    import rich  # noqa: F401
    import typer
except ModuleNotFoundError as missing:
    raise SystemExit(
        f"error: the qneurons command needs {str(missing.name).partition('.')[0]}, which is not "
        f"installed\nhint: {install()}"
    ) from None

import qneurons as qn
from qneurons.cli import bench, compare, info, quickstart, report, study

app = typer.Typer(
    help="q-activations: stochastic activations built on Jackson's q-derivative.",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)


def _print_version(is_asked: bool) -> None:
    if is_asked:
        typer.echo(f"qneurons {qn.__version__}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Show the version and exit."
        ),
    ] = False,
) -> None:
    """The options of the command itself."""


app.command()(quickstart.quickstart)
app.command()(compare.compare)
app.add_typer(study.app, name="study")
app.command()(report.report)
app.command()(report.figures)
app.command()(bench.bench)
app.command()(info.info)


def main() -> None:
    app(prog_name="qneurons")
