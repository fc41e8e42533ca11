"""Microseconds per run and step of packed training, beside the naive loop.

    python benchmarks/bench_training.py [--networks mnist-mlp] [--precisions tf32 bf16] [--pack 50]
    python benchmarks/bench_training.py --docs    # puts the last rows into docs/study.md

The time of a step is divided by the number of runs in its pack; evaluation is left out. The naive
loop is the paper's snippet in an ordinary module, eager, one run at a time. On the CPU the pack is
also compared with the same runs one at a time. Images are random, because only time is measured.
Rows are appended to results/training-cuda.csv (or -cpu), with versions and device.
"""

import argparse
import csv
import dataclasses
import shlex
import sys
from pathlib import Path

import torch
import torch.nn.functional as F
from pages import write_between

from qneurons import bench
from qneurons.activations import resolve
from qneurons.measuring import measure as measure_calls
from qneurons.provenance import ORIGIN, provenance
from qneurons.study.data import DATASETS, Dataset
from qneurons.study.networks import build
from qneurons.study.packs import Pack, computing
from qneurons.study.spec import load_study

RESULTS = Path(__file__).parent / "results"
RUNS = {"mnist-mlp": 100, "mnist-cnn": 50, "cifar-cnn": 50}  # in a pack on CUDA; 10 on the CPU
VARIANTS = NAIVE, PACKED, ALONE = "naive loop", "packed", "one run at a time"
COLUMNS = (
    *("network", "activation", "dropout", "precision", "variant", "runs", "us_per_run_and_step"),
    *("p20_us", "p80_us", "samples", "to_naive", *ORIGIN),
)


def random_data(shape, num=4096):
    generator = torch.Generator().manual_seed(0)
    images = torch.randint(256, (num, *shape), dtype=torch.uint8, generator=generator)
    labels = torch.randint(10, (num,), generator=generator)
    return Dataset("random", images, labels, images[:512], labels[:512], "0" * 16)


def naive_step(run, data, device):
    """A step as the paper's code would do it in torch."""
    row, images = resolve(run.activation), data.x_train[: run.batch_size]
    model = build(run.network, images.shape[1:], row, dropout=run.dropout).to(device)
    snippet = bench.paper_snippet(bench.plain(row))
    for module in model:
        if hasattr(module, "activation"):
            module.forward = snippet
    optimizer = torch.optim.SGD(model.parameters(), lr=run.learning_rate)
    x, y = images.to(device) / 255, data.y_train[: run.batch_size].to(device)

    def step():
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        optimizer.step()

    return step


def packed_step(run, num_runs, data, device, precision):
    runs = [
        dataclasses.replace(run, setting=f"c{0.02 * (1 + i // 10):g}", seed=i % 10)
        for i in range(num_runs)
    ]
    pack = Pack(runs, data, device=device, precision=precision)
    pack._begin(1)

    def step():
        pack.step.zero_()
        pack._train(pack.batch_size)

    return step


def measure(run, num_runs, device, precision, seconds):
    data = random_data(DATASETS[run.dataset].shape)
    with computing(precision, device):
        calls = {
            NAIVE: naive_step(run, data, device),
            PACKED: packed_step(run, num_runs, data, device, precision),
        }
        if device.type == "cpu":
            calls[ALONE] = packed_step(run, 1, data, device, precision)
        timings = measure_calls(calls, device, seconds=seconds)
    for variant, time in timings.items():
        if "error" in time:
            raise SystemExit(f"{run.network}, {variant}: {time['error']}")
    for variant, time in timings.items():
        num = num_runs if variant == PACKED else 1
        yield {
            **{name: getattr(run, name) for name in ("network", "activation", "dropout")},
            **{"precision": precision, "variant": variant, "runs": num},
            "us_per_run_and_step": time["median_us"] / num,
            **{name: time[name] / num for name in ("p20_us", "p80_us")},
            "samples": time["samples"],
            "to_naive": time["median_us"] / num / timings[NAIVE]["median_us"],
        }


def write_docs():
    """The newest rows of every network, precision and variant, as the table of docs/study.md."""
    lines = ["| | precision | naive loop | one run at a time | packed | runs in a pack | |"]
    lines += ["| --- | --- | ---: | ---: | ---: | ---: | --- |"]
    for path in sorted(RESULTS.glob("training-*.csv")):
        with path.open(newline="") as file:
            found = {
                (row["network"], row["precision"], row["variant"]): row
                for row in csv.DictReader(file)
                if row["dropout"] == "False" and row["activation"] == "elu"
            }
        for network, precision in dict.fromkeys(key[:2] for key in found):
            of = {variant: found.get((network, precision, variant)) for variant in VARIANTS}
            times = [f"{float(r['us_per_run_and_step']):.1f}" if r else "" for r in of.values()]
            row = of[PACKED]
            where = f"{row['device']}, torch {row['torch']}, {row['date'][:10]}, {row['commit']}"
            cells = [network, precision, times[0], times[2], times[1], row["runs"], where]
            lines.append(f"| {' | '.join(cells)} |")
    page = RESULTS.parent.parent / "docs" / "study.md"
    write_between(page, "training", "\n".join(lines))


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--networks", nargs="+", default=list(RUNS), choices=RUNS)
    parser.add_argument("--precisions", nargs="+")
    parser.add_argument("--activation", default="elu")
    parser.add_argument("--dropout", action="store_true")
    parser.add_argument("--pack", type=int)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--seconds", type=float, default=2.0, help="of measuring, for one network")
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--docs", action="store_true", help="measure nothing, write the table")
    options = parser.parse_args()
    if options.docs:
        write_docs()
        return
    device = torch.device(options.device)
    on_cuda = device.type == "cuda"
    origin = provenance(device, shlex.join(["python", *sys.argv]))
    path = options.out / f"training-{device.type}.csv"
    for network in options.networks:
        run = dataclasses.replace(
            load_study(f"paper-{network}").runs[0],
            activation=options.activation,
            dropout=options.dropout,
        )
        num_runs = options.pack or (RUNS[network] if on_cuda else 10)
        for precision in options.precisions or (["tf32", "bf16"] if on_cuda else ["fp32"]):
            rows = list(measure(run, num_runs, device, precision, options.seconds))
            for row in rows:
                time = f"{row['us_per_run_and_step']:9.1f} µs per run and step"
                print(f"{network:9} {precision}  {row['variant']:17} {row['runs']:3} runs {time}")
            bench.append_rows(path, COLUMNS, (row | origin for row in rows))
    print(f"rows appended to {path}")


if __name__ == "__main__":
    main()
