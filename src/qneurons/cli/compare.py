"""``qneurons compare``: settings compared in a training of the user's own."""

import ast
import contextlib
import importlib.util
import inspect
import math
import sys
import traceback
from collections.abc import Callable, Iterable
from pathlib import Path
from types import ModuleType
from typing import Annotated, Any

import typer

from qneurons.cli.stopping import SIGNALS
from qneurons.cli.terminal import Debug, Open, console, one_line_errors, open_page
from qneurons.study.errors import StudyError, unknown


def compare(
    training: Annotated[
        str, typer.Argument(metavar="FILE:FUNCTION", help="As in my_training.py:train.")
    ],
    settings: Annotated[
        str,
        typer.Option(
            metavar="LIST", help="base, limit, c0.1, a5, cos5/20, or an activation: silu."
        ),
    ] = "base,limit,c0.1,a5",
    seeds: Annotated[int, typer.Option(min=1, metavar="N", help="How many seeds.")] = 10,
    param: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=LIST", help="A grid, as in lr=0.05,0.1; may be repeated."),
    ] = None,
    store: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Where everything goes; else qneurons-<file>."),
    ] = None,
    metric: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="The metric that decides; else the first test metric."),
    ] = None,
    choose_by: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Chooses the parameters; else the first val metric."),
    ] = None,
    smaller: Annotated[
        str, typer.Option(metavar="LIST", help="Smaller is better, also if the name is not a loss.")
    ] = "",
    larger: Annotated[
        str, typer.Option(metavar="LIST", help="Larger is better, whatever the name says.")
    ] = "",
    keep: Annotated[
        bool,
        typer.Option("--keep", help="Keep trials made before the training's code changed."),
    ] = False,
    processes: Annotated[
        int | None,
        typer.Option(min=0, metavar="N", help="Worker processes; else one per GPU, if several."),
    ] = None,
    executor: Annotated[
        str,
        typer.Option(metavar="NAME", help="local, or ray: a Ray cluster."),
    ] = "local",
    address: Annotated[
        str | None,
        typer.Option(metavar="HOST:PORT", help="The cluster, also ray://host:port; else auto."),
    ] = None,
    cpus_per_trial: Annotated[
        float | None,
        typer.Option(min=0.0, metavar="N", help="On a cluster: CPUs, and so threads; else 1."),
    ] = None,
    gpus_per_trial: Annotated[
        float | None,
        typer.Option(min=0.0, metavar="N", help="On a cluster: GPUs, such as 0.5; else 1."),
    ] = None,
    open_: Open = False,
    debug: Debug = False,
) -> None:
    """Compare several activations in a training of your own.

    Ctrl-C loses the trials that are running; the same command goes on with the others.

    Exit codes: 0 finished, 130 Ctrl-C, 1 error or failed trials, 2 wrong usage.
    """
    with one_line_errors(debug):
        function = load_function(training)
        from qneurons.comparison import compare as run

        try:
            found = run(
                function,
                settings,
                seeds,
                store or f"qneurons-{Path(training.partition(':')[0]).stem}",
                params=parse_params(param or ()),
                metric=metric,
                choose_by=choose_by,
                smaller=smaller,
                larger=larger,
                keep=keep,
                processes=processes,
                executor=executor,
                address=address,
                cpus_per_trial=cpus_per_trial,
                gpus_per_trial=gpus_per_trial,
                say=console().print,
            )
        except KeyboardInterrupt:
            raise typer.Exit(128 + SIGNALS[0]) from None
        if open_:
            open_page(found.page)
        if found.failed:
            raise typer.Exit(1)


def load_function(text: str) -> Callable[[Any], object]:
    """Imports ``file.py:function``. The folder of the file is searched for what it imports."""
    path, colon, name = text.rpartition(":")
    file = Path(path)
    if not (colon and name and file.suffix == ".py"):
        raise StudyError(
            f"cannot read {text!r}", "write file and function, as my_training.py:train"
        )
    if not file.is_file():
        raise StudyError(f"there is no file {path}", "check the path")
    module = import_file(file)
    function = getattr(module, name, None)
    if not callable(function):
        functions = filter(inspect.isfunction, vars(module).values())
        own = [f.__name__ for f in functions if f.__module__ == file.stem]
        raise unknown(f"function of {path}", name, own)
    return function


def import_file(file: Path) -> ModuleType:
    from qneurons.comparison import only_imports

    sys.path.insert(0, str(file.resolve().parent))
    spec = importlib.util.spec_from_file_location(file.stem, file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[file.stem] = module  # as an import does: pickling looks for it there
    token = only_imports.set(True)
    try:
        spec.loader.exec_module(module)
    except StudyError:
        raise
    except (Exception, SystemExit) as error:
        frames = traceback.extract_tb(error.__traceback__)
        own = [f"line {frame.lineno}: " for frame in frames if frame.filename == spec.origin]
        why = f"{''.join(own[-1:])}{type(error).__name__}: {error}"
        raise StudyError(f"{file} cannot be imported: {why}", "--debug shows all") from error
    finally:
        only_imports.reset(token)
    return module


def parse_params(texts: Iterable[str]) -> dict[str, list[Any]]:
    """Reads ``lr=0.05,0.1`` and others like it. What is no number is a text."""
    params: dict[str, list[Any]] = {}
    for text in texts:
        name, _, values = (part.strip() for part in text.partition("="))
        listed = [value.strip() for value in values.split(",")]
        if not (name and all(listed)):
            raise StudyError(f"cannot read the parameter {text!r}", "write for example lr=0.05,0.1")
        if {*values} & {*"'\""}:
            raise StudyError(
                f"the parameter {name!r} has quotes in {values}",
                "leave them out; give texts with commas to qn.compare in Python",
            )
        if name in params:
            all_values = ",".join(map(str, [*params[name], *listed]))
            raise StudyError(
                f"the parameter {name!r} is given twice", f"write --param {name}={all_values}"
            )
        params[name] = [_value(name, value) for value in listed]
    return params


def _value(name: str, text: str) -> Any:
    with contextlib.suppress(ValueError):
        if not math.isfinite(float(text)):
            raise StudyError(f"the parameter {name!r} has the value {text}", "give finite numbers")
    try:
        value = ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text
    return value if isinstance(value, int | float) else text
