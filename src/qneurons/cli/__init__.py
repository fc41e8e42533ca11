"""The command line: parses, calls and prints.

The modules here import torch and the other large packages inside of their commands, so that
``--help`` and errors of usage answer at once.
"""

try:
    import rich  # noqa: F401
    import typer
except ModuleNotFoundError as missing:
    raise SystemExit(
        f"the qneurons command needs {str(missing.name).partition('.')[0]}, which is not "
        "installed: pip install 'qneurons[study]'"
    ) from None

from qneurons.cli import bench, compare, info, quickstart, report, study

app = typer.Typer(
    help="q-activations: stochastic activations built on Jackson's q-derivative.",
    add_completion=False,
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)
app.command()(quickstart.quickstart)
app.command()(compare.compare)
app.add_typer(study.app, name="study")
app.command()(report.report)
app.command()(report.figures)
app.command()(bench.bench)
app.command()(info.info)


def main() -> None:
    app(prog_name="qneurons")
