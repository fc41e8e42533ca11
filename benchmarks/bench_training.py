"""Microseconds per run and step of packed training, beside the naive loop.

    python benchmarks/bench_training.py [--networks mnist-mlp] [--precisions tf32 bf16] [--pack 50]

A step's time is divided by the runs of its pack; evaluation is apart. The naive loop is the paper's
snippet in an ordinary module, eager, one run at a time. Images are random: only time is measured.
On the CPU the pack is compared with the same runs, one after the other. Rows are appended to
results/training-cuda.csv (or -cpu).
"""

import argparse
import csv
import shlex
import sys
from pathlib import Path

import torch
import torch.nn.functional as F

from qneurons import bench
from qneurons.activations import resolve
from qneurons.provenance import ORIGIN, provenance
from qneurons.study.data import Dataset
from qneurons.study.networks import build
from qneurons.study.spec import Run
from qneurons.study.training import Pack, computing

RESULTS = Path(__file__).parent / "results"
PROTOCOL = {
    "mnist-mlp": ((1, 28, 28), 64, 0.05, 100),
    "mnist-cnn": ((1, 28, 28), 64, 0.05, 50),
    "cifar-cnn": ((3, 32, 32), 32, 0.01, 50),
}
COLUMNS = (
    *("network", "activation", "dropout", "precision", "variant", "runs"),
    *("us_per_run_and_step", "p20", "p80", "samples", "to_naive", "bytes"),
    *ORIGIN,
)


def random_data(shape, num=4096):
    generator = torch.Generator().manual_seed(0)
    images = torch.randint(256, (num, *shape), dtype=torch.uint8, generator=generator)
    labels = torch.randint(10, (num,), generator=generator)
    return Dataset("random", images, labels, images[:512], labels[:512], "0" * 16)


def naive_step(network, shape, batch_size, activation, device, dropout):
    """A step as the paper's code would do it in torch."""
    row = resolve(activation)
    model = build(network, shape, row, "base", dropout=dropout).to(device)
    snippet = bench.paper_snippet(bench.plain(row))
    for module in model:
        if hasattr(module, "activation"):
            module.forward = snippet
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    x = torch.rand(batch_size, *shape, device=device)
    y = torch.randint(10, (batch_size,), device=device)

    def step():
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        optimizer.step()

    return step


def make_pack(network, runs, data, device, precision, activation, dropout):
    _, batch_size, rate, _ = PROTOCOL[network]
    of_pack = [
        Run(
            "random",
            network,
            dropout,
            activation,
            f"c{0.02 * (1 + i // 10):g}",
            i % 10,
            batch_size,
            rate,
        )
        for i in range(runs)
    ]
    before = torch.cuda.memory_reserved() if device.type == "cuda" else 0
    pack = Pack(of_pack, data, device=device, precision=precision)
    with computing(precision, device):
        pack._begin(1)
        pack._train(batch_size)
    # A CUDA graph keeps what its capture reserved.
    num_bytes = torch.cuda.memory_reserved() - before if device.type == "cuda" else ""

    def step():
        pack.step.zero_()
        pack._train(batch_size)

    return pack, step, num_bytes


def profile(pack, device, path):
    from torch.profiler import ProfilerActivity, profile

    pack.step.zero_()
    with computing(pack.precision, device):
        pack._train_eagerly(pack.batch_size)
        torch.cuda.synchronize()
        with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as profiler:
            pack.step.zero_()
            pack._train_eagerly(pack.batch_size)
            torch.cuda.synchronize()
    table = profiler.key_averages().table(
        sort_by="self_cuda_time_total", row_limit=40, max_name_column_width=90
    )
    Path(path).write_text(table)


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--networks", nargs="+", default=list(PROTOCOL), choices=PROTOCOL)
    parser.add_argument("--precisions", nargs="+")
    parser.add_argument("--activation", default="elu")
    parser.add_argument("--dropout", action="store_true")
    parser.add_argument("--pack", type=int)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--seconds", type=float, default=2.0, help="of measuring, for one line")
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--profile", action="store_true", help="write what a step's kernels cost")
    options = parser.parse_args()
    device = torch.device(options.device)
    precisions = options.precisions or (["tf32", "bf16"] if device.type == "cuda" else ["fp32"])
    origin = provenance(device, shlex.join(["python", *sys.argv]))
    rows = []
    for network in options.networks:
        shape, batch_size, _, default_runs = PROTOCOL[network]
        runs = options.pack or (default_runs if device.type == "cuda" else 10)
        data = random_data(shape)
        common = (device, options.activation, options.dropout)
        naive = naive_step(network, shape, batch_size, options.activation, device, options.dropout)
        for precision in precisions:
            pack, packed, num_bytes = make_pack(network, runs, data, device, precision, *common[1:])
            calls = {"naive loop": naive, "packed": packed}
            if device.type != "cuda":
                _, calls["one run at a time"], _ = make_pack(
                    network, 1, data, device, precision, *common[1:]
                )
            with computing(precision, device):
                bench.warm_up(calls)
                timings = bench.measure(calls, device, seconds=options.seconds)
            for variant, time in timings.items():
                of = runs if variant == "packed" else 1
                rows.append(
                    {
                        "network": network,
                        "activation": options.activation,
                        "dropout": options.dropout,
                        "precision": precision,
                        "variant": variant,
                        "runs": of,
                        "us_per_run_and_step": time["median_us"] / of,
                        "p20": time["p20_us"] / of,
                        "p80": time["p80_us"] / of,
                        "samples": time["samples"],
                        "to_naive": time["median_us"] / of / timings["naive loop"]["median_us"],
                        "bytes": num_bytes if variant == "packed" else "",
                    }
                )
                print({k: v for k, v in rows[-1].items() if k != "samples"}, flush=True)
            if options.profile and device.type == "cuda":
                profile(pack, device, options.out / f"profile-{network}-{precision}.txt")
    path = options.out / f"training-{device.type}.csv"
    new = not path.exists()
    with path.open("a", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS)
        if new:
            writer.writeheader()
        writer.writerows(row | origin for row in rows)
    print(f"{len(rows)} rows appended to {path}")


if __name__ == "__main__":
    main()
