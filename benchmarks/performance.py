"""The tables of docs/performance.md by activation, from the last rows of `qneurons bench`.

    python benchmarks/performance.py

It reads results/activation-cuda.csv and -cpu.csv, to which bench_step.py adds whole networks.
"""

import csv
from pathlib import Path

from pages import write_between

from qneurons.bench import BOTH, EVALUATION

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "performance.md"
SIZES = {"cuda": 2**28, "cpu": 2**20}
COLUMNS = {  # title, variant, pass, column
    "evaluation × plain": ("qneurons", EVALUATION, "to_plain"),
    "in the mean × plain": ("mean", EVALUATION, "to_plain"),
    "limit, training × plain": ("limit", BOTH, "to_plain"),
    "q-activation, training × plain": ("qneurons", BOTH, "to_plain"),
    "kept beyond x, limit": ("limit", BOTH, "bytes_kept"),
    "kept beyond x, q-activation": ("qneurons", BOTH, "bytes_kept"),
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


def table(rows):
    lines = [f"| | {' | '.join(COLUMNS)} |", "| --- " + "| ---: " * len(COLUMNS) + "|"]
    cases = dict.fromkeys(key[:2] for key, row in rows.items() if row["elements"])
    names = list(dict.fromkeys(name for name, _ in cases))
    for name, dtype in sorted(cases, key=lambda case: names.index(case[0])):
        cells = [
            cell(rows.get((name, dtype, variant, which)), column)
            for variant, which, column in COLUMNS.values()
        ]
        lines.append(f"| {name}, {dtype} | {' | '.join(cells)} |")
    return "\n".join(lines)


def spread(rows, variant, which):
    """The smallest and the largest multiple of the plain activation's time."""
    ratios = [
        float(row["to_plain"])
        for (_, _, *key), row in rows.items()
        if key == [variant, which] and row["elements"]
    ]
    return min(ratios), max(ratios)


def networks(rows):
    """A sentence for every pass through the paper's MNIST-CNN that was measured."""
    return [
        f"{which}, {dtype}, q-ELU against ELU: {float(row['to_plain']):.2f} × ({row['commit']})."
        for (_, dtype, variant, which), row in rows.items()
        if not row["elements"] and variant == "qneurons"
    ]


def main():
    for device, size in SIZES.items():
        rows = last_rows(device)
        row = [row for row in rows.values() if row["elements"]][-1]
        about = [row["device"], f"{row['threads']} threads"] if device == "cpu" else [row["device"]]
        about += [f"torch {row['torch']}", f"commit {row['commit']}", row["date"][:10]]
        lines = [f"{size} elements, median, all variants in turns ({', '.join(about)}).", ""]
        lines += [table(rows), "", *(f"- {line}" for line in networks(rows))]
        write_between(PAGE, device, "\n".join(lines))


if __name__ == "__main__":
    main()
