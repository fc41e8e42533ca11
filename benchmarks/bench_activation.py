"""Time and memory of a q-activation by size: a table of docs/performance.md.

    python benchmarks/bench_activation.py [--activation elu] [--sizes 12 14 16 18 20 22 24]

`qneurons bench` measures everything else. Rows are appended to results/activation-cpu.csv (or
-cuda). With --page the table goes into docs/performance.md.
"""

import argparse
import shlex
import sys
from pathlib import Path

import torch
from pages import write_between

from qneurons import bench
from qneurons.provenance import provenance

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "benchmarks" / "results"


def table(rows):
    """Nanoseconds and bytes per element, forward + backward, one line per size."""
    rows = [row for row in rows if row.get("pass") == bench.BOTH and "median_us" in row]
    names = list(dict.fromkeys(row["variant"] for row in rows))
    ratios, kept = ("plain", "snippet"), ("snippet", "qneurons")
    titles = ["elements", *names]
    titles += [f"qneurons / {name}" for name in ratios] + [f"bytes kept, {name}" for name in kept]
    lines = [f"| {' | '.join(titles)} |", "| ---: " * len(titles) + "|"]
    for size in dict.fromkeys(row["elements"] for row in rows):
        of = {row["variant"]: row for row in rows if row["elements"] == size}
        time = {name: row["median_us"] * 1e3 / size for name, row in of.items()}
        cells = [f"2^{size.bit_length() - 1}", *(f"{time[name]:.1f}" for name in names)]
        cells += [f"{time['qneurons'] / time[name]:.2f}" for name in ratios]
        cells += [f"{of[name]['bytes_kept'] / size:.0f}" for name in kept]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--activation", default="elu")
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--dtype", default="float32", choices=bench.DTYPES)
    parser.add_argument("--sizes", type=int, nargs="+", default=[12, 14, 16, 18, 20, 22, 24])
    parser.add_argument("--seconds", type=float, default=6.0, help="a size, in all")
    parser.add_argument("--page", action="store_true", help="put it into docs/performance.md")
    options = parser.parse_args()

    device = torch.device(options.device)
    path = bench.results_file(RESULTS, device)
    origin = provenance(device, shlex.join(["python", *sys.argv]))
    rows = []
    for size in options.sizes:
        case = bench.ActivationCase(options.activation, options.dtype, 2**size, compiled=True)
        print(case, flush=True)
        new = bench.run(case, device, seconds=options.seconds)
        bench.append_rows(path, bench.COLUMNS, (row | origin for row in new))
        rows += new
    failed = [f"{row.get('variant', 'all')}: {row['error']}" for row in rows if "error" in row]
    if failed:
        raise SystemExit("\n".join(failed))

    text = (
        f"Nanoseconds an element, forward + backward, {options.activation}, {options.dtype}, "
        f"median ({origin['device']}, {origin['threads']} threads, torch {origin['torch']}, commit "
        f"{origin['commit']}, {origin['date'][:10]}). Bytes kept for backward are an element's, "
        f"beyond x.\n\n{table(rows)}\n"
    )
    print("\n" + text)
    if options.page:
        write_between(ROOT / "docs" / "performance.md", "sizes", text)


if __name__ == "__main__":
    main()
