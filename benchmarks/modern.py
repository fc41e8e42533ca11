"""Trains the networks of examples/ with every activation, each setting at its own learning rate.

    python benchmarks/modern.py cost cifar --store STORE      # time and memory: alone on the GPU
    python benchmarks/modern.py search cifar --store STORE    # every setting at three rates
    python benchmarks/modern.py final cifar --store STORE     # every setting at its best rate

and the same with gpt; then publish_modern.py. Finished trials are in the store, and the same
command goes on. It begins no trial that would end after ``--seconds``. Several processes may run it
at once: they share the trials. It needs torch and numpy alone.
"""

import argparse
import math
import shlex
import statistics
import sys
import time
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import torch

from qneurons.comparison.arms import BASE
from qneurons.comparison.fingerprint import fingerprint
from qneurons.comparison.store import Finished, Spec, TrialStore
from qneurons.comparison.trial import Trial, run_trial
from qneurons.provenance import provenance

sys.path.append(str(Path(__file__).parents[1] / "examples"))
import cifar_resnet
import gpt

# The seeds of the search are not those of the comparison, so rates are not fitted to its luck.
SEEDS = {"cost": (2000,), "search": (1000, 1001), "final": tuple(range(10))}
LAM0 = 5  # annealed; the study gained more from 5 than from 1
RIVALS = ("rrelu", "relu2")  # of ReLU

Cell = tuple[str, str]  # activation and setting


@dataclass(frozen=True)
class Task:
    """A training of examples/, and what is compared in it."""

    title: str
    train: Callable[[Trial], object]
    activations: tuple[str, ...]
    epochs: int
    rates: tuple[float, ...]
    validation: str  # the metric that chooses a rate
    metric: str  # the metric that is compared
    higher: bool  # True if higher is better

    @property
    def annealed(self) -> str:
        return f"a{LAM0}/{self.epochs}"

    def settings(self, activation: str) -> list[str]:
        """The limit of ReLU is ReLU itself. So is c0.1, because q < 0 takes ten sigmas."""
        if activation == "relu":
            return [BASE, self.annealed, *RIVALS]
        return [BASE, "limit", "c0.1", self.annealed]

    @property
    def cells(self) -> list[Cell]:
        """Base first, so that a short call shows all activations."""
        cells = [(f, setting) for f in self.activations for setting in self.settings(f)]
        return sorted(cells, key=lambda cell: cell[1] != BASE)


TASKS = {
    "cifar": Task(
        "A ResNet on CIFAR-10",
        cifar_resnet.train,
        tuple(cifar_resnet.ACTIVATIONS),
        cifar_resnet.SIZES["full"].epochs,
        (0.5, 1.0, 2.0),
        "val_accuracy",
        "test_accuracy",
        higher=True,
    ),
    "gpt": Task(
        "A GPT on Python's standard library",
        gpt.train,
        tuple(gpt.ACTIVATIONS),
        gpt.SIZES["full"].periods,
        (0.001, 0.002, 0.004),
        "val_loss",
        "test_loss",
        higher=False,
    ),
}


def make_spec(cell: Cell, rate: float, seed: int) -> Spec:
    activation, setting = cell
    return Spec(setting, seed, (("activation", activation), ("lr", rate)))


def best_rate(
    task: Task, cell: Cell, finished: Mapping[str, Finished]
) -> tuple[tuple[int, float], float]:
    """The rate with the best mean of the validation metric, after its quality: larger is better.

    A rate at which fewer trials diverge is better, whatever the mean.
    """

    def quality(rate: float) -> tuple[int, float]:
        specs = [make_spec(cell, rate, seed) for seed in SEEDS["search"]]
        if missing := [spec for spec in specs if spec.id not in finished]:
            raise SystemExit(f"the search lacks {len(missing)} trials, as {missing[0]}; finish it")
        trials = [finished[spec.id].measured for spec in specs]
        ends = [trial.metrics[task.validation][-1] for trial in trials if not trial.diverged]
        mean = statistics.fmean(ends) if ends else math.nan
        return len(ends), mean if task.higher else -mean

    return max((quality(rate), rate) for rate in task.rates)


def plan(task: Task, stage: str, finished: Mapping[str, Finished]) -> list[Spec]:
    """The trials of a stage, seed by seed."""
    rates: dict[Cell, tuple[float, ...]] = dict.fromkeys(task.cells, task.rates)
    if stage == "cost":
        rates = dict.fromkeys(task.cells, (statistics.median(task.rates),))
    elif stage == "final":
        rates = {cell: (best_rate(task, cell, finished)[1],) for cell in task.cells}
    return [
        make_spec(cell, rate, seed)
        for seed in SEEDS[stage]
        for cell in task.cells
        for rate in rates[cell]
    ]


def train_stage(stage: str, name: str, folder: Path, seconds: float) -> int:
    """Trains what the store lacks while there is time; returns the number of failures."""
    begin, task = time.monotonic(), TASKS[name]
    store = TrialStore.open(folder / name / "store", create=True)
    code = fingerprint(task.train)
    store.begin_training(task.train.__qualname__, code, keep=False)
    specs = plan(task, stage, store.finished)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    content = provenance(device, shlex.join(sys.argv))
    origin = store.begin({key: value for key, value in content.items() if key != "date"})
    took: list[float] = []
    num_failed = 0
    for spec in specs:
        since = time.monotonic()
        if since - begin + max(took[-3:], default=0) > seconds:
            break
        with store.reserve([spec.id]) as reservation:  # which also refreshes the store
            if spec.id in store.finished or not reservation.ids:
                continue
            try:
                measured, why = run_trial(task.train, Trial(spec.arm, spec.seed, dict(spec.params)))
            except Exception:
                traceback.print_exc()
                num_failed += 1
                continue
            store.add(Finished(spec, spec.arm, measured, code, origin))
        took.append(time.monotonic() - since)
        ends = why or ", ".join(f"{key} {x[-1]:.4f}" for key, x in measured.metrics.items())
        peak_mib = (measured.peak_bytes or 0) / 2**20
        print(f"{spec}: {ends}, {took[-1]:.2f} s, {peak_mib:.0f} MiB", flush=True)
    num_done = sum(spec.id in store.finished for spec in specs)
    median = f", {statistics.median(took):.2f} s each in the median" if took else ""
    print(f"{stage} of {name}: {num_done} of {len(specs)} trials are done{median}", flush=True)
    return num_failed


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("stage", choices=SEEDS)
    parser.add_argument("task", choices=TASKS)
    parser.add_argument("--store", type=Path, required=True)
    parser.add_argument("--seconds", type=float, default=math.inf)
    options = parser.parse_args()
    if train_stage(options.stage, options.task, options.store, options.seconds):
        raise SystemExit(1)


if __name__ == "__main__":
    main()
