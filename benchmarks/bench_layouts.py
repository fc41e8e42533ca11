"""Time of a q-activation in channels_last, beside the plain activation: a table of the docs.

    python benchmarks/bench_layouts.py [--activation elu] [--device cuda] [--page]

Rows are appended to results/layouts-cpu.csv (or -cuda). With --page the table goes into
docs/performance.md.
"""

import argparse
import shlex
import sys
from pathlib import Path

import torch
from pages import write_between

import qneurons as qn
from qneurons import bench
from qneurons.activations import resolve
from qneurons.measuring import measure
from qneurons.provenance import ORIGIN, provenance

ROOT = Path(__file__).parent.parent
SHAPES = ((256, 16, 15, 15), (64, 32, 32, 32), (16, 64, 56, 56), (8, 64, 112, 112))
LAYOUTS = {"contiguous": torch.contiguous_format, "channels_last": torch.channels_last}
COLUMNS = (
    *("activation", "shape", "layout", "variant"),
    *("median_us", "p20_us", "p80_us", "samples"),
    *ORIGIN,
)


def measure_shape(shape, activation, device, seconds):
    """Forward and backward of every variant in every layout, in turns."""
    variants = {
        "plain": bench.plain(resolve(activation)),
        "limit": qn.QLimit(activation),
        "qneurons": qn.QActivation(activation).to(device),
    }
    calls = {}
    for layout, memory_format in LAYOUTS.items():
        x, grad = torch.randn(2, *shape, device=device)
        x = x.contiguous(memory_format=memory_format).requires_grad_()
        grad = grad.contiguous(memory_format=memory_format)
        for variant, function in variants.items():
            calls[layout, variant] = lambda f=function, x=x, grad=grad: torch.autograd.grad(
                f(x), x, grad
            )
    about = {"activation": activation, "shape": "×".join(map(str, shape))}
    return [
        about | {"layout": layout, "variant": variant} | times
        for (layout, variant), times in measure(calls, device, seconds=seconds).items()
    ]


def table(rows):
    """The q-activation and the limit as multiples of the plain activation in the same layout."""
    names = [f"{variant}, {layout}" for variant in ("qneurons", "limit") for layout in LAYOUTS]
    lines = [f"| images | {' | '.join(names)} |", "| --- " + "| ---: " * len(names) + "|"]
    for shape in dict.fromkeys(row["shape"] for row in rows):
        time = {
            (row["variant"], row["layout"]): row["median_us"]
            for row in rows
            if row["shape"] == shape
        }
        ratios = (
            time[variant, layout] / time["plain", layout]
            for variant in ("qneurons", "limit")
            for layout in LAYOUTS
        )
        lines.append(f"| {shape} | {' | '.join(f'{ratio:.2f}' for ratio in ratios)} |")
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--activation", default="elu")
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--seconds", type=float, default=6.0, help="a shape, in all")
    parser.add_argument("--page", action="store_true", help="put it into docs/performance.md")
    options = parser.parse_args()

    device = torch.device(options.device)
    origin = provenance(device, shlex.join(["python", *sys.argv]))
    rows = [
        row | origin
        for shape in SHAPES
        for row in measure_shape(shape, options.activation, device, options.seconds)
    ]
    name = f"layouts-{device.type}.csv"
    bench.append_rows(ROOT / "benchmarks" / "results" / name, COLUMNS, rows)
    text = (
        f"Forward + backward as multiples of the plain activation's in the same layout, "
        f"{options.activation}, float32, median ({origin['device']}, {origin['threads']} threads, "
        f"torch {origin['torch']}, commit {origin['commit']}, {origin['date'][:10]}).\n\n"
        f"{table(rows)}\n"
    )
    print(text)
    if options.page:
        write_between(ROOT / "docs" / "performance.md", f"layouts-{device.type}", text)


if __name__ == "__main__":
    main()
