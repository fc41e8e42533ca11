"""Time and memory of a q-activation beside the plain activation and the paper's snippet.

    python benchmarks/bench_activation.py [--activation elu] [--sizes 12 14 16 18 20 22 24]

All variants of a size are measured in turns in one run, forward + backward. Raw rows go to
benchmarks/results/activation-cpu.csv, the table to activation-cpu.md beside it and, with --readme,
into the README. The first call of a compiled variant and two calls of every other are not counted.
"""

import argparse
import csv
import datetime
import platform
import re
import statistics
import subprocess
import sys
import time
from pathlib import Path

import torch

import qneurons as qn

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "benchmarks" / "results"


def snippet(f, lam=0.02, eps=1e-3):
    """The paper's three lines, in torch."""

    def qactivate(x):
        q = torch.randn(x.shape)
        q = (2 * (q >= 0) - 1) * (lam * torch.abs(q) + eps)
        return (f(x * (1 + q)) - f(x)) / q

    return qactivate


def variants(name):
    row = qn.resolve(name)
    plain = next(function for function in row.functions if callable(function))
    return {
        "plain": plain,
        "snippet": snippet(plain),
        "snippet, compiled": torch.compile(snippet(plain), dynamic=False),
        "qneurons": qn.QActivation(name),
    }


def forward_backward(function, x, gradient):
    x.grad = None
    function(x).backward(gradient)


def bytes_kept(function, x):
    """What autograd keeps between forward and backward, x included, each storage once."""
    storages = {}

    def pack(tensor):
        storages[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        result = function(x)
    kept = sum(storages.values())
    del result
    return kept


def measure(functions, x, *, seconds):
    """Samples of seconds a call, the functions in turns; a sample lasts 2 ms or more."""
    gradient = torch.ones_like(x)
    repeats = {}
    for name, function in functions.items():
        for _ in range(2):
            forward_backward(function, x, gradient)
        start = time.perf_counter()
        forward_backward(function, x, gradient)
        repeats[name] = max(1, int(0.002 / (time.perf_counter() - start)))
    samples = {name: [] for name in functions}
    end = time.perf_counter() + seconds
    while time.perf_counter() < end or min(map(len, samples.values())) < 7:
        for name, function in functions.items():
            start = time.perf_counter()
            for _ in range(repeats[name]):
                forward_backward(function, x, gradient)
            samples[name].append((time.perf_counter() - start) / repeats[name])
    return samples


def cpu_name():
    try:
        match = re.search(r"model name\s*:\s*(.+)", Path("/proc/cpuinfo").read_text())
    except OSError:
        match = None
    return match[1] if match else platform.processor()


def provenance():
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True
    ).stdout.strip()
    return {
        "device": f"{cpu_name()}, {torch.get_num_threads()} threads",
        "torch": torch.__version__,
        "python": platform.python_version(),
        "qneurons": qn.__version__,
        "commit": commit or "unknown",
        "date": datetime.date.today().isoformat(),
        "command": " ".join(["python", *sys.argv]),
    }


def table(rows):
    names = list(dict.fromkeys(row["variant"] for row in rows))
    lines = [
        "| elements | "
        + " | ".join(names)
        + " | qneurons / snippet | bytes kept, snippet | qneurons |",
        "| ---: " * (len(names) + 4) + "|",
    ]
    for size in dict.fromkeys(row["elements"] for row in rows):
        of = {row["variant"]: row for row in rows if row["elements"] == size}
        times = [f"{of[name]['median_ns']:.1f}" for name in names]
        ratio = of["qneurons"]["median_ns"] / of["snippet"]["median_ns"]
        kept = [f"{of[name]['bytes_kept'] / size:.0f}" for name in ("snippet", "qneurons")]
        exponent = size.bit_length() - 1
        lines.append(f"| 2^{exponent} | {' | '.join([*times, f'{ratio:.2f}', *kept])} |")
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--activation", default="elu")
    parser.add_argument("--sizes", type=int, nargs="+", default=[12, 14, 16, 18, 20, 22, 24])
    parser.add_argument("--seconds", type=float, default=6.0, help="a size, in all")
    parser.add_argument("--readme", action="store_true", help="put the table into the README")
    options = parser.parse_args()

    rows, origin = [], provenance()
    for size in options.sizes:
        torch.compiler.reset()
        x = torch.randn(2**size, requires_grad=True)
        functions = variants(options.activation)
        samples = measure(functions, x, seconds=options.seconds)
        for name, seconds in samples.items():
            p20, median, p80 = (
                statistics.quantiles(seconds, n=10, method="inclusive")[k] * 1e9 / x.numel()
                for k in (1, 4, 7)
            )
            compiled = "compiled" in name  # its graph is not seen by the hooks of eager autograd
            rows.append(
                {
                    "activation": options.activation,
                    "variant": name,
                    "dtype": "float32",
                    "elements": x.numel(),
                    "median_ns": median,
                    "p20_ns": p20,
                    "p80_ns": p80,
                    "samples": len(seconds),
                    "bytes_kept": "" if compiled else bytes_kept(functions[name], x),
                    **origin,
                }
            )
            print(f"2^{size} {name:18s} {median:8.2f} ns  ({p20:.2f} to {p80:.2f})", flush=True)

    RESULTS.mkdir(parents=True, exist_ok=True)
    with (RESULTS / "activation-cpu.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, fieldnames=rows[0])
        writer.writeheader()
        writer.writerows(rows)
    text = (
        f"Nanoseconds an element, forward + backward, {options.activation}, float32, median "
        f"({origin['device']}, torch {origin['torch']}, commit {origin['commit']}, "
        f"{origin['date']}). Bytes kept for backward are an element's, x included.\n\n"
        f"{table(rows)}\n"
    )
    (RESULTS / "activation-cpu.md").write_text(text)
    print("\n" + text)
    if options.readme:
        readme = ROOT / "README.md"
        begin, end = "<!-- benchmark -->\n", "<!-- /benchmark -->"
        before, _, rest = readme.read_text().partition(begin)
        readme.write_text(before + begin + text + end + rest.partition(end)[2])


if __name__ == "__main__":
    main()
