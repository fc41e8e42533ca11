"""What all commands share: the console, and errors in one line."""

import contextlib
import io
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.text import Text

from qneurons.study.errors import StudyError
from qneurons.study.files import explained

StoreFolder = Annotated[Path, typer.Argument(metavar="STORE", help="The folder of a store.")]
Device = Annotated[
    str | None, typer.Option(help="cuda, cuda:1 or cpu; else cuda where there is one.")
]
Debug = Annotated[bool, typer.Option("--debug", help="Show where an error comes from.")]


def visible(text: str) -> str:
    """Writes control characters out, which may move the cursor or turn the direction of a text.

    Titles of studies and names in stores come from the files of others.
    """
    control = r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]"
    return re.sub(control, lambda found: ascii(found[0])[1:-1], text)


class _Console(Console):
    def render_str(self, text: str, **options: Any) -> Text:
        return super().render_str(visible(text), **options)


def console(*, stderr: bool = False) -> Console:
    stream = sys.stderr if stderr else sys.stdout
    if isinstance(stream, io.TextIOWrapper) and stream.errors == "strict":
        stream.reconfigure(errors="replace")  # print "?" for letters that its encoding lacks
    screen = _Console(highlight=False, markup=False, soft_wrap=True, stderr=stderr)
    if not screen.is_terminal:
        screen.width = 200  # tables in files are not folded
    return screen


@contextlib.contextmanager
def one_line_errors(debug: bool) -> Iterator[None]:
    """Turns an error into one line on stderr and exit code 1; with ``debug`` it is raised."""
    try:
        with explained("cannot read or write"):
            yield
    except (typer.Exit, typer.Abort, typer.BadParameter, BrokenPipeError):
        raise
    except Exception as error:
        if debug:
            raise
        typer.echo(f"error: {visible(' '.join(explain(error).split()))}", err=True)
        raise typer.Exit(1) from None


def explain(error: Exception) -> str:
    """What is wrong, and the remedy."""
    match error:
        case StudyError():
            return str(error)
        case ModuleNotFoundError() if not str(error.name).startswith("qneurons"):
            package = str(error.name).partition(".")[0]
            return f"this needs {package}, which is not installed: pip install 'qneurons[study]'"
    return f"unexpected {type(error).__name__}: {error}; --debug shows where"
