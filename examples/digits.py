"""A small real study: plain ELU, its limit f'(x)x, and q-ELU on scikit-learn's digits.

    python examples/digits.py [--seeds 5] [--epochs 30] [--output digits-study]

The same seed gives every setting the same initial weights and the same order of the data, so that
settings are compared in pairs. Writes a table, a figure and a page; takes about a minute.
"""

import argparse
import math
import statistics
import time
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import torch
import torch.nn.functional as F
from rich.console import Console
from rich.progress import track
from rich.table import Table
from sklearn.datasets import load_digits
from torch import Tensor, nn

import qneurons as qn

BASE, LIMIT = "base", "limit"
SETTINGS = (BASE, LIMIT, "c0.02", "c0.1", "a1", "a5")
TRAINING_IMAGES = 1200


class Limit(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return qn.q_limit(x, "elu")


def network(setting: str) -> nn.Module:
    model = nn.Sequential(
        nn.Linear(64, 128), nn.ELU(), nn.Linear(128, 128), nn.ELU(), nn.Linear(128, 10)
    )
    if setting == LIMIT:
        model[1], model[3] = Limit(), Limit()
    elif setting != BASE:
        qn.convert(model)
    return model


def train(setting: str, seed: int, epochs: int, data: tuple[Tensor, ...]) -> list[float]:
    """Test accuracy after every epoch."""
    x, y, x_test, y_test = data
    torch.manual_seed(seed)
    model = network(setting)
    order = torch.Generator().manual_seed(seed)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    scheduler = None if setting in (BASE, LIMIT) else qn.LambdaScheduler(model, setting)
    accuracies = []
    for _ in range(epochs):
        model.train()
        for batch in torch.randperm(len(x), generator=order).split(32):
            optimizer.zero_grad()
            F.cross_entropy(model(x[batch]), y[batch]).backward()
            optimizer.step()
        if scheduler is not None:
            scheduler.step()
        model.eval()
        with torch.no_grad():
            accuracies.append((model(x_test).argmax(1) == y_test).double().mean().item())
    return accuracies


def interval(values: list[float]) -> str:
    error = statistics.stdev(values) / math.sqrt(len(values)) if len(values) > 1 else math.nan
    return f"{100 * statistics.mean(values):.2f} ± {100 * error:.2f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--epochs", type=int, default=30)
    parser.add_argument("--output", type=Path, default=Path("digits-study"))
    options = parser.parse_args()
    if options.seeds < 2:
        parser.error(f"--seeds must be 2 or more, for an error of the mean; got {options.seeds}")
    start = time.perf_counter()

    digits = load_digits()
    images = torch.tensor(digits.data, dtype=torch.float32) / 16
    labels = torch.tensor(digits.target)
    shuffled = torch.randperm(len(images), generator=torch.Generator().manual_seed(0))
    train_set, test_set = shuffled[:TRAINING_IMAGES], shuffled[TRAINING_IMAGES:]
    data = (images[train_set], labels[train_set], images[test_set], labels[test_set])

    runs = [(setting, seed) for seed in range(options.seeds) for setting in SETTINGS]
    curves = {run: train(*run, options.epochs, data) for run in track(runs, "training")}
    final = {s: [curves[s, seed][-1] for seed in range(options.seeds)] for s in SETTINGS}
    lines = [
        (
            s,
            interval(final[s]),
            interval([a - b for a, b in zip(final[s], final[BASE], strict=True)]),
        )
        for s in SETTINGS
    ]

    heads = ("setting", "test accuracy, %", "less that of base, paired")
    table = Table(*heads, title=f"ELU on digits, {options.seeds} seeds, mean ± standard error")
    for line in lines:
        table.add_row(*line)
    Console().print(table)

    figure, ax = plt.subplots(figsize=(6.4, 4), layout="constrained")
    epochs = range(1, options.epochs + 1)
    for setting in SETTINGS:
        runs_of_setting = torch.tensor([curves[setting, seed] for seed in range(options.seeds)])
        ax.plot(epochs, 100 * runs_of_setting.mean(0), label=setting)
    ax.set(xlabel="epoch", ylabel="test accuracy, %", ylim=(85, 100))
    ax.legend()
    options.output.mkdir(parents=True, exist_ok=True)
    figure.savefig(options.output / "curves.png", dpi=120)
    rows = "\n".join(f"| {' | '.join(line)} |" for line in (heads, ["---"] * 3, *lines))
    page = options.output / "page.md"
    page.write_text(
        f"# ELU on digits\n\n{options.seeds} seeds, {options.epochs} epochs, mean ± standard "
        f"error; `base` is f itself, `limit` is f'(x)x, `c` a constant λ, `a` an annealed one "
        f"(qneurons {qn.__version__}, torch {torch.__version__}).\n\n{rows}\n\n![](curves.png)\n"
    )
    print(f"{time.perf_counter() - start:.0f} s; the page is {page}, with curves.png beside it")


if __name__ == "__main__":
    main()
