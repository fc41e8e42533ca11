"""What the commands share towards the user: the console, and errors of one line."""

import contextlib
import errno
import io
import sys
from collections.abc import Iterator
from typing import Annotated

import typer
from rich.console import Console

from qneurons.study.errors import StudyError

Debug = Annotated[bool, typer.Option("--debug", help="Show where an error comes from.")]

_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
_FORBIDDEN = {errno.EACCES, errno.EPERM, errno.EROFS}


def console(*, stderr: bool = False) -> Console:
    stream = sys.stderr if stderr else sys.stdout
    if isinstance(stream, io.TextIOWrapper) and stream.errors == "strict":
        stream.reconfigure(errors="replace")  # a letter that its encoding lacks is no error
    screen = Console(highlight=False, markup=False, soft_wrap=True, stderr=stderr)
    if not screen.is_terminal:
        screen.width = 200  # in a file a table must not be folded to the width of no terminal
    return screen


@contextlib.contextmanager
def one_line_errors(debug: bool) -> Iterator[None]:
    """An error becomes one line on stderr and exit code 1; with ``debug`` a traceback too."""
    try:
        yield
    except (typer.Exit, typer.Abort, typer.BadParameter, BrokenPipeError):
        raise
    except Exception as error:
        if debug:
            raise
        typer.echo(f"error: {' '.join(explain(error).split())}", err=True)
        raise typer.Exit(1) from None


def explain(error: Exception) -> str:
    """What is wrong and what can be done about it."""
    match error:
        case StudyError():
            return str(error)
        case ModuleNotFoundError() if not str(error.name).startswith("qneurons"):
            package = str(error.name).partition(".")[0]
            return f"this needs {package}, which is not installed: pip install 'qneurons[study]'"
        case OSError() if error.errno in _FULL:
            return f"no space is left ({error}); make room and give the same command again"
        case OSError() if error.errno in _FORBIDDEN:
            return f"this may not be read or written ({error}); name another folder, or permit it"
        case OSError():
            return f"{error}; check the path"
    return f"unexpected {type(error).__name__}: {error}; --debug shows where"
