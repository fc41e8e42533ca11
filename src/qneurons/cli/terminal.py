"""What all commands share: the console, errors with a hint, and the page in a browser."""

import contextlib
import io
import re
import sys
import textwrap
import webbrowser
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.text import Text

from qneurons.study.errors import StudyError, install
from qneurons.study.files import explained

StoreFolder = Annotated[Path, typer.Argument(metavar="STORE", help="The folder of a store.")]
Device = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help="cuda, cuda:1 or cpu; else cuda where there is one.",
        autocompletion=lambda: ["cpu", "cuda"],
    ),
]
Debug = Annotated[bool, typer.Option("--debug", help="Show where an error comes from.")]
Open = Annotated[bool, typer.Option("--open", help="Open the page in a browser.")]


def visible(text: str) -> str:
    """Writes control characters out, which may move the cursor or turn the direction of a text.

    Titles of studies and names in stores come from the files of others.
    """
    control = r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]"
    return re.sub(control, lambda found: ascii(found[0])[1:-1], text)


class _Console(Console):
    def render_str(self, text: str, **options: Any) -> Text:
        return super().render_str(visible(text), **options)

    def print(self, *objects: Any, **options: Any) -> None:
        """Breaks lines of text between words, on a terminal."""
        if self.is_terminal and all(isinstance(x, str) for x in objects):
            objects = tuple(map(self._wrapped, objects))
        elif self.is_terminal:
            options["soft_wrap"] = False  # so that the captions of tables are wrapped
        super().print(*objects, **options)

    def _wrapped(self, text: str) -> str:
        """A word that is longer than a line, such as a path, stays whole."""
        return "\n".join(
            textwrap.fill(
                line,
                self.width,
                subsequent_indent=line[: len(line) - len(line.lstrip())],
                break_long_words=False,
                break_on_hyphens=False,
            )
            for line in text.split("\n")
        )


def console(*, stderr: bool = False) -> Console:
    stream = sys.stderr if stderr else sys.stdout
    if isinstance(stream, io.TextIOWrapper) and stream.errors == "strict":
        stream.reconfigure(errors="replace")  # print "?" for letters that its encoding lacks
    screen = _Console(highlight=False, markup=False, soft_wrap=True, stderr=stderr)
    if not screen.is_terminal:
        screen.width = 200  # tables in files are not folded
    return screen


def open_page(page: Path) -> None:
    """Opens a page that was written. Without a browser it says so, and nothing is lost."""
    try:
        is_open = webbrowser.open(page.absolute().as_uri())
    except (webbrowser.Error, OSError):
        is_open = False
    if not is_open:
        console(stderr=True).print(f"there is no browser here; open {page} in one")


@contextlib.contextmanager
def one_line_errors(debug: bool) -> Iterator[None]:
    """Turns an error into a line on stderr, its remedy into a second one, and exits with 1.

    With ``debug`` it is raised.
    """
    try:
        with explained("cannot read or write"):
            yield
    except (typer.Exit, typer.Abort, BrokenPipeError):
        raise
    except Exception as error:
        if debug:
            raise
        screen = console(stderr=True)
        for label, text in zip(("error", "hint"), explain(error), strict=True):
            if text:
                screen.print(f"{label}: {' '.join(text.split())}")
        raise typer.Exit(1) from None


def explain(error: Exception) -> tuple[str, str]:
    """What is wrong, and the remedy."""
    match error:
        case StudyError():
            return error.what, error.remedy
        case ModuleNotFoundError() if not str(error.name).startswith("qneurons"):
            package = str(error.name).partition(".")[0]
            return f"this needs {package}, which is not installed", install()
    return f"unexpected {type(error).__name__}: {error}", "--debug shows where it comes from"
