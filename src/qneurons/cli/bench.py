"""``qneurons bench``: measures q-activations on this machine."""

import math
import re
import shlex
import sys
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.box import SIMPLE_HEAD
from rich.table import Table

from qneurons.cli.terminal import Debug, console, one_line_errors
from qneurons.study.errors import StudyError, unknown
from qneurons.study.files import explained
from qneurons.study.runs import counted


def bench(
    activations: Annotated[
        list[str] | None,
        typer.Argument(metavar="ACTIVATION", help="By name; without any, all of them."),
    ] = None,
    device: Annotated[
        str | None, typer.Option(metavar="NAME", help="cuda or cpu; else cuda where there is one.")
    ] = None,
    dtype: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="float32, bfloat16, float16 or float64; may be repeated. Else float32, and for "
            "elu bfloat16 too.",
        ),
    ] = None,
    every: Annotated[bool, typer.Option("--all", help="Every dtype.")] = False,
    elements: Annotated[
        str | None,
        typer.Option(metavar="N", help="Such as 2**28; else 2**28 on cuda and 2**20 on cpu."),
    ] = None,
    sizes: Annotated[
        str | None, typer.Option(metavar="LIST", help="Several sizes, as exponents of 2: 12,14,16.")
    ] = None,
    compiled: Annotated[
        bool | None,
        typer.Option(
            "--compiled/--no-compiled",
            help="Measure under torch.compile too, alone and between others; else only for elu.",
        ),
    ] = None,
    seconds: Annotated[
        float,
        typer.Option(min=0.0, metavar="N", help="For one activation in one dtype and size."),
    ] = 1.0,
    out: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="For the CSV file; else benchmarks/results, or here."),
    ] = None,
    wide: Annotated[bool, typer.Option("--wide", help="Show the spread of the times too.")] = False,
    debug: Debug = False,
) -> None:
    """Measure q-activations beside plain ones and the paper's code.

    The snippet is the paper's own code. All variants of an activation, dtype and size are measured
    in turns in one run. Forward is measured as in training, with a graph that is then dropped. What
    is kept for backward is counted beyond x, for each element or in all. Rows are appended to
    activation-cuda.csv or activation-cpu.csv.
    """
    with one_line_errors(debug):
        if device not in (None, "cuda", "cpu"):
            raise StudyError(f"--device is {device!r}", "give cuda or cpu")
        if every and dtype:
            raise StudyError("--all means every dtype", "leave out --dtype")
        if elements and sizes:
            raise StudyError(
                "--elements and --sizes contradict each other", "leave out one of them"
            )
        given = [f"2**{e}" for e in re.split(r"[\s,]+", sizes.strip())] if sizes else [elements]
        counts = [_count(text) for text in given if text]

        import torch

        from qneurons import bench as benchmark
        from qneurons.activations import rows
        from qneurons.provenance import provenance
        from qneurons.study.spec import activation_name

        has_cuda = torch.cuda.is_available()
        if device == "cuda" and not has_cuda:
            raise StudyError("torch finds no CUDA device", "use --device cpu")
        place = torch.device(device or ("cuda" if has_cuda else "cpu"))
        for name in dtype or ():
            if name not in benchmark.DTYPES:
                raise unknown("dtype", name, benchmark.DTYPES)
        folder = Path("benchmarks/results")
        names = [activation_name(name) for name in activations or []]
        with explained("cannot write the results"):
            path = benchmark.results_file(out or (folder if folder.is_dir() else Path()), place)
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
        screen, aside = console(), console(stderr=True)
        failed, num_rows = [], 0
        for number, case in enumerate(cases, start=1):
            title = f"{case.activation} in {case.dtype}, {case.elements:,} elements"
            aside.print(f"measuring {number} of {len(cases)}: {title}")
            measured = benchmark.run(case, place, seconds=seconds)
            # At once, so that a run that is stopped keeps what it has measured.
            benchmark.append_rows(path, benchmark.COLUMNS, (row | origin for row in measured))
            screen.print(_table(title, measured, wide))
            num_rows += len(measured)
            for row in measured:
                if "error" in row:
                    variant = [row[key] for key in ("variant", "pass") if key in row]
                    failed.append(f"failed: {', '.join([title, *variant])}: {row['error']}")
        about = (f"{key} {value}" for key, value in origin.items() if value and key != "command")
        screen.print(", ".join(about))
        screen.print(f"{counted(num_rows, 'row')} appended to {path}")
        for text in failed:
            aside.print(text)
        if failed:
            raise typer.Exit(1)


def _count(text: str) -> int:
    match = re.fullmatch(r"(\d{1,13})(?:(?:\*\*|\^)(\d{1,2}))?", text)
    count = int(match[1]) ** int(match[2] or 1) if match else 0
    if not 0 < count < 2**40:
        raise StudyError(f"cannot read the number of elements {text!r}", "write 4096 or 2**12")
    return count


def _table(title: str, measured: list[dict[str, Any]], wide: bool) -> Table:
    """A section for each pass, with a line for each variant; empty columns are left out."""
    sections: dict[str, list[dict[str, str]]] = {}
    for row in measured:
        line = {"variant": str(row.get("variant", "")), "µs": "failed"}
        if "median_us" in row:
            line["µs"] = _digits(row["median_us"])
            line["20 to 80 %"] = f"{_digits(row['p20_us'])} to {_digits(row['p80_us'])}" * wide
        for name, key in {"× copy": "to_copy", "× plain": "to_plain"}.items():
            line[name] = _digits(row[key]) if row.get(key) else ""
        line["kernels"] = str(row.get("kernels", ""))
        if "bytes_kept" in row:
            kept, num = row["bytes_kept"], row["elements"]
            line["kept"] = f"{kept / num:.3g} B each" if kept >= num else f"{kept} B"
        sections.setdefault(row.get("pass", ""), []).append(line)
    lines = [line for section in sections.values() for line in section]
    names = dict.fromkeys(name for line in lines for name in line if line[name])
    table = Table(
        title=title,
        title_justify="left",
        title_style="bold",
        box=SIMPLE_HEAD,
        show_edge=False,
        padding=(0, 1, 0, 0),
    )
    for name in names:
        table.add_column(name, justify="left" if name == "variant" else "right")
    for which, section in sections.items():
        table.add_row(which, style="bold")
        for line in section:
            table.add_row(*(line.get(name, "") for name in names))
        table.add_section()
    return table


def _digits(number: float) -> str:
    """Three digits, without an exponent."""
    rounded = float(f"{number:.3g}")
    return f"{rounded:,.{max(0, 2 - math.floor(math.log10(rounded)))}f}"
