"""``qneurons bench``: measures q-activations on this machine."""

import re
import shlex
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated

import torch
import typer
from rich.table import Table

from qneurons import bench as benchmark
from qneurons.activations import resolve, rows
from qneurons.cli.terminal import console, explain
from qneurons.provenance import provenance


def bench(
    activations: Annotated[
        list[str] | None,
        typer.Argument(help="Rows of the table; without any, every row (with --step, elu)."),
    ] = None,
    device: Annotated[
        str | None, typer.Option(help="cuda or cpu; without it, cuda where there is one.")
    ] = None,
    dtype: Annotated[
        list[str] | None,
        typer.Option(
            help=f"{', '.join(benchmark.DTYPES)}; may be repeated. Without it float32, and for elu "
            "bfloat16 too. With --step float32 or tf32; without it, on cuda, both."
        ),
    ] = None,
    every: Annotated[bool, typer.Option("--all", help="Every dtype.")] = False,
    elements: Annotated[
        str | None,
        typer.Option(help="As in 2**28. Without it 2**28 on cuda and 2**20 on cpu."),
    ] = None,
    sizes: Annotated[
        str | None, typer.Option(help="Several sizes, as exponents of 2: 12,14,16.")
    ] = None,
    compiled: Annotated[
        bool | None,
        typer.Option(
            "--compiled/--no-compiled",
            help="Measure the snippet and ours under torch.compile too. Without it, for elu.",
        ),
    ] = None,
    step: Annotated[
        bool,
        typer.Option("--step", help="Measure a training step of the paper's MNIST-CNN instead."),
    ] = False,
    seconds: Annotated[
        float, typer.Option(min=0.0, help="For one activation in one dtype and size.")
    ] = 1.0,
    out: Annotated[
        Path | None,
        typer.Option(help="Folder of the CSV file; else benchmarks/results if here, or here."),
    ] = None,
) -> None:
    """Measure q-activations beside the plain ones, the paper's snippet and a copy.

    All variants of an activation, dtype and size are measured in turns in one run. Forward is
    measured as in training, with a graph that is then dropped. Rows are appended to
    activation-cuda.csv or activation-cpu.csv.
    """
    place = _device(device)
    names = [_known(name) for name in activations or []]
    if every and (dtype or step):
        raise typer.BadParameter("--all means every dtype; leave out --dtype and --step")
    jobs: list[benchmark.Case | benchmark.Step] = []
    if step:
        known = ("tf32", "float32") if place.type == "cuda" else ("float32",)
        precisions = _known_dtypes(dtype or known, known)
        jobs += [benchmark.Step(name, kind) for name in names or ["elu"] for kind in precisions]
    else:
        dtypes = _known_dtypes(dtype or (benchmark.DTYPES if every else []), benchmark.DTYPES)
        jobs += [
            benchmark.Case(
                name, kind, size, compiled=name == "elu" if compiled is None else compiled
            )
            for name in names or [row.name for row in rows()]
            for kind in dtypes or (["float32", "bfloat16"] if name == "elu" else ["float32"])
            for size in _sizes(elements, sizes, place)
        ]
    folder = Path("benchmarks/results")
    try:
        store = benchmark.Store(out or (folder if folder.is_dir() else Path()), place)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None
    except OSError as error:
        raise typer.BadParameter(explain(error)) from None

    origin = provenance(place, shlex.join(["qneurons", *sys.argv[1:]]))
    measured = []
    for number, job in enumerate(jobs, start=1):
        typer.echo(f"{number}/{len(jobs)} {job}", err=True)
        new = benchmark.run(job, place, seconds=seconds)
        store.append(new, origin)  # at once: a run that is stopped keeps what it has measured
        measured += new
    screen = console()
    screen.print(_table(measured))
    screen.print(", ".join(f"{key} {value}" for key, value in origin.items() if key != "command"))
    screen.print(f"{len(measured)} rows appended to {store.path}")
    failed = [row for row in measured if row.get("error")]
    for row in failed:
        where = [row[key] for key in ("activation", "dtype", "variant", "pass") if key in row]
        typer.echo(f"failed: {', '.join(where)}: {row['error']}", err=True)
    if failed:
        raise typer.Exit(1)


def _table(measured: list[benchmark.Row]) -> Table:
    """One line a variant, its passes side by side; columns without any entry are left out."""
    passes = list(dict.fromkeys(row["pass"] for row in measured if "pass" in row))
    lines: dict[tuple[str, ...], dict[str, benchmark.Row]] = {}
    about = ("activation", "dtype", "elements", "variant")
    for row in measured:
        key = tuple(str(row.get(name, "")) for name in about)
        lines.setdefault(key, {})[row.get("pass", "")] = row
    titles = [*about]
    for which in passes:
        titles += [f"{which}, µs (20 to 80 %)", "× copy", "× plain", "kernels"]
    titles.append("kept beyond x")
    cells = [
        [*key, *(cell for which in passes for cell in _cells(row_of.get(which, {}))), _kept(row_of)]
        for key, row_of in lines.items()
    ]
    filled = [index for index in range(len(titles)) if any(line[index] for line in cells)]
    table = Table()
    for index in filled:
        table.add_column(titles[index], justify="left" if index < len(about) else "right")
    for number, line in enumerate(cells):
        if number and line[:3] != cells[number - 1][:3]:
            table.add_section()
        table.add_row(*(line[index] for index in filled))
    return table


def _cells(row: benchmark.Row) -> list[str]:
    if "median_us" not in row:
        return ["failed" if row else "", "", "", ""]
    time = f"{row['median_us']:.1f} ({row['p20_us']:.1f} to {row['p80_us']:.1f})"
    ratios = [row.get(name, "") for name in ("to_copy", "to_plain")]
    return [time, *(f"{r:.2f}" if r else "" for r in ratios), str(row.get("kernels", ""))]


def _kept(row_of: dict[str, benchmark.Row]) -> str:
    row = row_of.get(benchmark.BOTH, {})
    if "bytes_kept" not in row:
        return ""
    kept, elements = row["bytes_kept"], row["elements"]
    return f"{kept / elements:.3g} B/element" if kept >= elements else f"{kept} B"


# --- what arguments may be ------------------------------------------------------------------------


def _device(name: str | None) -> torch.device:
    name = name or ("cuda" if torch.cuda.is_available() else "cpu")
    if name not in ("cuda", "cpu"):
        raise typer.BadParameter(f"--device must be cuda or cpu, got {name!r}")
    if name == "cuda" and not torch.cuda.is_available():
        raise typer.BadParameter("torch sees no CUDA device; use --device cpu")
    return torch.device(name)


def _known(activation: str) -> str:
    try:
        return resolve(activation).name
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None


def _known_dtypes(names: Iterable[str], known: Iterable[str]) -> list[str]:
    for name in names:
        if name not in known:
            raise typer.BadParameter(f"--dtype must be one of {', '.join(known)}, got {name!r}")
    return list(names)


def _sizes(elements: str | None, sizes: str | None, device: torch.device) -> list[int]:
    if elements and sizes:
        raise typer.BadParameter("give --elements or --sizes, not both")
    if sizes:
        given = [f"2**{exponent}" for exponent in re.split(r"[\s,]+", sizes.strip())]
    else:
        given = [elements or ("2**28" if device.type == "cuda" else "2**20")]
    return [_count(text) for text in given]


def _count(text: str) -> int:
    match = re.fullmatch(r"(\d{1,13})(?:(?:\*\*|\^)(\d{1,2}))?", text)
    count = int(match[1]) ** int(match[2] or 1) if match else 0
    if not 0 < count < 2**40:
        raise typer.BadParameter(f"a number of elements is 4096 or 2**12, say; got {text!r}")
    return count
