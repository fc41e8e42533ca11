"""The README's table for the GPU, from the last rows of `qneurons bench` and of bench_step.py.

    python benchmarks/gpu_table.py

It reads results/activation-cuda.csv, and writes activation-cuda.md beside it and into the README.
"""

import csv
from pathlib import Path

from bench_step import STEP
from pages import write_between

from qneurons.bench import BOTH, FORWARD

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "benchmarks" / "results"


def last_rows():
    """The newest row of every activation, dtype, variant and pass."""
    with (RESULTS / "activation-cuda.csv").open(newline="") as file:
        rows = csv.DictReader(file)
        keys = ("activation", "dtype", "variant", "pass")
        return {tuple(row[key] for key in keys): row for row in rows if not row["error"]}


def table(rows):
    lines = [
        "| | × plain | × compiled snippet | × snippet | kept beyond x | kernels, forward |",
        "| --- | ---: | ---: | ---: | ---: | ---: |",
    ]
    for (name, dtype, variant, which), row in rows.items():
        if variant != "qneurons" or which != BOTH:
            continue
        time = float(row["median_us"])
        cells = [f"{float(row['to_plain']):.2f}"]
        for other in ("snippet, compiled", "snippet"):
            base = rows.get((name, dtype, other, BOTH))
            cells.append(f"{time / float(base['median_us']):.2f}" if base else "")
        cells += [f"{row['bytes_kept']} B", rows[name, dtype, variant, FORWARD]["kernels"]]
        lines.append(f"| {name}, {dtype} | {' | '.join(cells)} |")
    return "\n".join(lines)


def main():
    rows = last_rows()
    row = next(row for (*_, which), row in rows.items() if which == BOTH)
    steps = [
        f"{float(row['to_plain']):.2f} × in {dtype}"
        for (_, dtype, variant, which), row in rows.items()
        if which.startswith(STEP) and variant == "qneurons"
    ]
    text = (
        f"Forward + backward of {row['elements']} elements, median, all variants in turns "
        f"({row['device']}, torch {row['torch']}, Triton {row['triton']}, commit {row['commit']}, "
        f"{row['date'][:10]}).\n\n{table(rows)}\n\nA whole training step of the paper's MNIST-CNN "
        f"(batch 64, compiled, one CUDA graph), q-ELU against ELU: {', '.join(steps)}.\n"
    )
    (RESULTS / "activation-cuda.md").write_text(text)
    write_between(ROOT / "README.md", "gpu", text)
    print(text)


if __name__ == "__main__":
    main()
