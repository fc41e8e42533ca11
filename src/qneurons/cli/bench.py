"""``qneurons bench``: measures q-activations on this machine."""

import re
import shlex
import sys
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from qneurons.cli.terminal import console
from qneurons.study.errors import StudyError
from qneurons.study.files import explained


def bench(
    activations: Annotated[
        list[str] | None, typer.Argument(help="Activations by name; without any, all of them.")
    ] = None,
    device: Annotated[
        str | None, typer.Option(help="cuda or cpu; without it, cuda where there is one.")
    ] = None,
    dtype: Annotated[
        list[str] | None,
        typer.Option(
            help="float32, bfloat16, float16 or float64; may be repeated. Without it float32, and "
            "for elu bfloat16 too."
        ),
    ] = None,
    every: Annotated[bool, typer.Option("--all", help="Every dtype.")] = False,
    elements: Annotated[
        str | None, typer.Option(help="Such as 2**28; else 2**28 on cuda and 2**20 on cpu.")
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
    if device not in (None, "cuda", "cpu"):
        raise typer.BadParameter(f"--device must be cuda or cpu, got {device!r}")
    if every and dtype:
        raise typer.BadParameter("--all means every dtype; leave out --dtype")
    if elements and sizes:
        raise typer.BadParameter("give --elements or --sizes, not both")
    given = [f"2**{e}" for e in re.split(r"[\s,]+", sizes.strip())] if sizes else [elements]
    counts = [_count(text) for text in given if text]

    import torch

    from qneurons import bench as benchmark
    from qneurons.activations import resolve, rows
    from qneurons.provenance import provenance

    has_cuda = torch.cuda.is_available()
    if device == "cuda" and not has_cuda:
        raise typer.BadParameter("torch sees no CUDA device; use --device cpu")
    place = torch.device(device or ("cuda" if has_cuda else "cpu"))
    for name in dtype or ():
        if name not in benchmark.DTYPES:
            known = ", ".join(benchmark.DTYPES)
            raise typer.BadParameter(f"--dtype must be one of {known}, got {name!r}")
    folder = Path("benchmarks/results")
    try:
        names = [resolve(name).name for name in activations or []]
        with explained("cannot write the results"):
            path = benchmark.results_file(out or (folder if folder.is_dir() else Path()), place)
    except (ValueError, StudyError) as error:
        raise typer.BadParameter(str(error)) from None
    usual = {"elu": ["float32", "bfloat16"]}
    cases = [
        benchmark.ActivationCase(
            name, kind, size, compiled=name == "elu" if compiled is None else compiled
        )
        for name in names or [row.name for row in rows()]
        for kind in dtype or (benchmark.DTYPES if every else usual.get(name, ["float32"]))
        for size in counts or [2**28 if place.type == "cuda" else 2**20]
    ]

    origin = provenance(place, shlex.join(["qneurons", *sys.argv[1:]]))
    measured = []
    for number, case in enumerate(cases, start=1):
        typer.echo(f"{number}/{len(cases)} {case}", err=True)
        new = benchmark.run(case, place, seconds=seconds)
        # At once, so that a run that is stopped keeps what it has measured.
        benchmark.append_rows(path, benchmark.COLUMNS, (row | origin for row in new))
        measured += new
    screen = console()
    screen.print(_table(measured))
    screen.print(", ".join(f"{key} {value}" for key, value in origin.items() if key != "command"))
    screen.print(f"{len(measured)} rows appended to {path}")
    failed = [row for row in measured if "error" in row]
    for row in failed:
        where = [row[key] for key in ("activation", "dtype", "variant", "pass") if key in row]
        typer.echo(f"failed: {', '.join(where)}: {row['error']}", err=True)
    if failed:
        raise typer.Exit(1)


def _count(text: str) -> int:
    match = re.fullmatch(r"(\d{1,13})(?:(?:\*\*|\^)(\d{1,2}))?", text)
    count = int(match[1]) ** int(match[2] or 1) if match else 0
    if not 0 < count < 2**40:
        raise typer.BadParameter(f"the number of elements must be like 4096 or 2**12; got {text!r}")
    return count


def _table(measured: list[dict[str, Any]]) -> Table:
    """One line per variant, with its passes side by side; empty columns are left out."""
    about = ("activation", "dtype", "elements", "variant")
    lines: dict[tuple[str, ...], dict[str, str]] = {}
    for row in measured:
        key = tuple(str(row.get(name, "")) for name in about)
        line = lines.setdefault(key, dict(zip(about, key, strict=True)))
        which, time = row.get("pass", "time"), "failed"
        if "median_us" in row:
            time = f"{row['median_us']:.1f} ({row['p20_us']:.1f} to {row['p80_us']:.1f})"
        line[f"{which}, µs (20 to 80 %)"] = time
        for title, name in {"× copy": "to_copy", "× plain": "to_plain"}.items():
            line[f"{title}\n{which}"] = f"{row[name]:.2f}" if row.get(name) else ""
        line[f"kernels\n{which}"] = str(row.get("kernels", ""))
        if "bytes_kept" in row:
            kept, num = row["bytes_kept"], row["elements"]
            line["kept beyond x"] = f"{kept / num:.3g} B/element" if kept >= num else f"{kept} B"
    table = Table()
    names = dict.fromkeys(name for line in lines.values() for name in line)
    columns = [name for name in names if any(line.get(name) for line in lines.values())]
    for name in columns:
        table.add_column(name.partition("\n")[0], justify="left" if name in about else "right")
    before: tuple[str, ...] = ()
    for key, line in lines.items():
        if before and key[:3] != before[:3]:
            table.add_section()
        table.add_row(*(line.get(name, "") for name in columns))
        before = key
    return table
