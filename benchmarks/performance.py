"""The tables of docs/performance.md and the README's, from the last rows of `qneurons bench`.

    python benchmarks/performance.py

It reads results/activation-cuda.csv and -cpu.csv, to which bench_step.py adds whole networks.
"""

import csv
import statistics
from pathlib import Path

from pages import write_between

from qneurons.bench import BOTH, CHAIN, CHAIN_BOTH, EVALUATION

ROOT = Path(__file__).parent.parent
PAGE, README = ROOT / "docs" / "performance.md", ROOT / "README.md"
SIZES = {"cuda": 2**28, "cpu": 2**20}
COLUMNS = {  # title, variant, pass, column
    "evaluation × plain": ("qneurons", EVALUATION, "to_plain"),
    "in the mean × plain": ("mean", EVALUATION, "to_plain"),
    "limit, training × plain": ("limit", BOTH, "to_plain"),
    "q-activation, training × plain": ("qneurons", BOTH, "to_plain"),
    "kept beyond x, limit": ("limit", BOTH, "bytes_kept"),
    "kept beyond x, q-activation": ("qneurons", BOTH, "bytes_kept"),
}
SHORT = {  # variant, pass
    "training": ("qneurons", BOTH),
    "training with the limit, without noise": ("limit", BOTH),
    "evaluation": ("qneurons", EVALUATION),
}
COMPILED = {
    "limit, evaluation × plain": ("limit", CHAIN, "to_plain"),
    "one operation, evaluation × plain": ("limit, one operation", CHAIN, "to_plain"),
    "limit, training × plain": ("limit", CHAIN_BOTH, "to_plain"),
    "one operation, training × plain": ("limit, one operation", CHAIN_BOTH, "to_plain"),
}


def last_rows(device):
    """The newest row of every activation, dtype, variant and pass, at the size of the table."""
    with (ROOT / f"benchmarks/results/activation-{device}.csv").open(newline="") as file:
        return {
            (row["activation"], row["dtype"], row["variant"], row["pass"]): row
            for row in csv.DictReader(file)
            if not row["error"] and row["elements"] in ("", str(SIZES[device]))
        }


def cell(row, column):
    if row is None:
        return ""
    return f"{row[column]} B" if column == "bytes_kept" else f"{float(row[column]):.2f}"


def lines_of(rows, columns):
    """The rows of each line of a table: by activation and dtype, in the order of its columns."""
    wanted = [key[:2] for key in columns.values()]
    cases = dict.fromkeys(key[:2] for key in rows if key[2:] in wanted)
    names = list(dict.fromkeys(name for name, _ in cases))
    ordered = sorted(cases, key=lambda case: names.index(case[0]))
    return {case: [rows.get((*case, *key)) for key in wanted] for case in ordered}


def table(rows, columns=COLUMNS):
    lines = [f"| | {' | '.join(columns)} |", "| --- " + "| ---: " * len(columns) + "|"]
    for case, found in lines_of(rows, columns).items():
        cells = [cell(row, key[2]) for row, key in zip(found, columns.values(), strict=True)]
        lines.append(f"| {', '.join(case)} | {' | '.join(cells)} |")
    return "\n".join(lines)


def origin(rows, device, columns=COLUMNS):
    """What the rows of a table share, and every commit and day on which they were measured."""
    shown = [row for found in lines_of(rows, columns).values() for row in found if row]

    def each(column):
        return ", ".join(dict.fromkeys(row[column] for row in shown))

    about = each("device") + (f", {each('threads')} threads" if device == "cpu" else "")
    about += f", torch {each('torch')}; measured at {each('commit')}, "
    about += ", ".join(sorted({row["date"][:10] for row in shown}))
    return f"{SIZES[device]} elements, median, all variants in turns ({about})."


def summary(rows_of):
    """Multiples of the plain activation's time: the median of all activations, and their range."""
    places = {
        "H200, float32": ("cuda", "float32"),
        "H200, bfloat16": ("cuda", "bfloat16"),
        "CPU, float32": ("cpu", "float32"),
    }
    lines = [f"| | {' | '.join(places)} |", "| --- " + "| --- " * len(places) + "|"]
    for title, key in SHORT.items():
        cells = []
        for device, dtype in places.values():
            ratios = [
                float(row["to_plain"])
                for (_, found, *rest), row in rows_of[device].items()
                if (found, *rest) == (dtype, *key)
            ]
            middle = statistics.median(ratios)
            cells.append(f"{middle:.2f} ({min(ratios):.2f} to {max(ratios):.2f})")
        lines.append(f"| {title} | {' | '.join(cells)} |")
    return "\n".join(lines)


def networks(rows):
    """A sentence for every pass through the paper's MNIST-CNN that was measured."""
    return [
        f"{which}, {dtype}, q-ELU against ELU: {float(row['to_plain']):.2f} × ({row['commit']})."
        for (_, dtype, variant, which), row in rows.items()
        if not row["elements"] and variant == "qneurons"
    ]


def main():
    rows_of = {device: last_rows(device) for device in SIZES}
    for device, rows in rows_of.items():
        lines = "\n".join(f"- {line}" for line in networks(rows))
        write_between(PAGE, device, f"{origin(rows, device)}\n\n{table(rows)}\n\n{lines}")
    rows = rows_of["cpu"]
    write_between(PAGE, "compiled", f"{origin(rows, 'cpu', COMPILED)}\n\n{table(rows, COMPILED)}")
    write_between(README, "performance", summary(rows_of))


if __name__ == "__main__":
    main()
