"""What `qneurons.compare` costs beside the bare training loop.

    python benchmarks/compare_overhead.py

A small training is compared in 4 settings, with 20 epochs. All CPU time of all processes outside of
its epochs is overhead: reports, planning, the store, statistics, the page, and the start of worker
processes. One seed costs what is paid once, and further seeds cost what every epoch pays. The
overhead of an epoch does not depend on its length, so that epochs may be short here. CPU time,
unlike time on the clock, is the same on a busy machine. The table goes to
results/compare-overhead.md and, between its markers, into docs/compare.md.
"""

import platform
import resource
import tempfile
import time
from pathlib import Path

import torch
from pages import write_between
from torch import nn

import qneurons as qn
from qneurons.comparison.store import TrialStore

ROOT = Path(__file__).parent.parent
SETTINGS = ["base", "limit", "c0.1", "a1"]
SEEDS, EPOCHS, EPOCH_S = 21, 20, 5.0
X, Y = torch.randn(256, 64), torch.randint(10, (256,))


class Bare:
    """A trial that does nothing but keep a list: the loop as it was before compare."""

    def __init__(self):
        self.epochs = []

    def convert(self, model):
        return model

    def report(self, epoch_s, **metrics):
        self.epochs.append(epoch_s)


def train(trial):
    layers = (nn.Linear(64, 64), nn.Tanh()) * 4
    model = trial.convert(nn.Sequential(*layers, nn.Linear(64, 10)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(EPOCHS):
        start = time.process_time()
        for x, y in zip(X.split(32), Y.split(32), strict=True):
            loss = nn.functional.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        trial.report(epoch_s=time.process_time() - start, test_accuracy=0.9, train_loss=loss)


def cpu_time():
    """Seconds of this process and of those that it has waited for."""
    usages = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


def measure(processes, num_seeds):
    """Seconds of overhead, and the fastest epoch of base."""
    with tempfile.TemporaryDirectory() as folder:
        start = cpu_time()
        options = {"processes": processes, "say": lambda text: None}
        qn.compare(train, SETTINGS, num_seeds, folder, **options)
        total = cpu_time() - start
        trials = TrialStore.open(Path(folder) / "store", readonly=True).finished.values()
    epochs = {trial.spec: trial.measured.metrics["epoch_s"] for trial in trials}
    fastest = min(min(epochs[spec]) for spec in epochs if spec.arm == "base")
    return total - sum(map(sum, epochs.values())), fastest


def main():
    torch.set_num_threads(1)
    bare = [Bare() for _ in range(SEEDS)]
    for trial in bare:
        train(trial)
    fastest = min(min(trial.epochs) for trial in bare)
    measure(0, 1)  # imports everything
    lines = [
        f"A comparison of {len(SETTINGS)} settings over {EPOCHS} epochs, in CPU time (torch "
        f"{torch.__version__}, {platform.machine()}, qneurons {qn.__version__}, `python "
        "benchmarks/compare_overhead.py`). Once: mostly the page and, with workers, their start. "
        "A trial also waits once for the disk.",
        "",
        "| trials run | overhead once | overhead per epoch | of an epoch of 5 s | fastest epoch |",
        "| --- | ---: | ---: | ---: | ---: |",
        f"| in a bare loop | – | – | – | {1e3 * fastest:.2f} ms |",
    ]
    for name, processes in {"in this process": 0, "in two worker processes": 2}.items():
        once, _ = measure(processes, 1)
        total, fastest = measure(processes, SEEDS)
        epoch_s = (total - once) / (len(SETTINGS) * (SEEDS - 1) * EPOCHS)
        lines.append(
            f"| {name} | {once:.1f} s | {1e3 * epoch_s:.1f} ms | {100 * epoch_s / EPOCH_S:.2f} % | "
            f"{1e3 * fastest:.2f} ms |"
        )
    text = "\n".join(lines)
    print(text)
    (ROOT / "benchmarks" / "results" / "compare-overhead.md").write_text(text + "\n")
    write_between(ROOT / "docs" / "compare.md", "overhead", text)


if __name__ == "__main__":
    main()
