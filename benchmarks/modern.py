"""Trains the networks of examples/ with every activation, each setting at its own learning rate.

    python benchmarks/modern.py cost cifar --store STORE      # time and memory: alone on the device
    python benchmarks/modern.py search cifar --store STORE    # every setting at every rate
    python benchmarks/modern.py final cifar --store STORE     # every setting at its best rate
    python benchmarks/modern.py common cifar --store STORE    # and all at the middle rate

and the same with the other tasks; then publish_modern.py. Finished trials are in the store, and the
same command goes on (with ``--keep`` if the code of the training has changed since). ``--seconds
300`` begins no trial after 300 seconds; with 0 it only says how many are left. Several processes
may run any stage but ``cost`` at once: they share the trials. digits needs scikit-learn too, the
others torch and numpy alone. cifar-small, gpt-small and gpt-long are for a CPU.
"""

import argparse
import dataclasses
import functools
import math
import shlex
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import torch

from qneurons.comparison.arms import BASE, Arm
from qneurons.comparison.executor import LocalExecutor, Training
from qneurons.comparison.fingerprint import fingerprint
from qneurons.comparison.session import Session
from qneurons.comparison.store import Finished, Spec, TrialStore
from qneurons.comparison.trial import Measured
from qneurons.study.errors import StudyError

sys.path.append(str(Path(__file__).parents[1] / "examples"))
import cifar_resnet
import gpt
import tabular

STAGE_BEFORE = {"cost": None, "search": "cost", "final": "search", "common": "final"}
LAM0 = 5  # annealed; the study gained more from 5 than from 1
RIVALS = ("rrelu", "relu2")  # of ReLU
ALONE, BUSY = "alone on the device", "on one core of a machine that had other work too"

Cell = tuple[str, str]  # activation and setting


@dataclasses.dataclass(frozen=True)
class Task:
    """A training of examples/, and what is compared in it."""

    title: str
    train: Training
    load: Callable[[torch.device], object]  # the data, which all trials of a process share
    activations: tuple[str, ...]
    epochs: int
    rates: tuple[float, ...]
    # Not those of the comparison, so that rates are not fitted to its luck.
    search_seeds: Sequence[int]
    final_seeds: Sequence[int]
    validation: str  # the metric that chooses a rate
    metric: str  # the metric that is compared
    higher: bool  # True if higher is better
    size: str = "full"
    only: tuple[str, ...] = ()  # settings that are trained beside base, if not all
    timed: str = ALONE  # how the stage cost was run

    @property
    def middle_rate(self) -> float:
        return statistics.median_low(self.rates)

    @property
    def annealed(self) -> str:
        return f"a{LAM0}/{self.epochs}"

    def settings(self, activation: str) -> list[str]:
        """The limit of ReLU is ReLU itself. So is c0.1, because q < 0 takes ten sigmas."""
        own = [self.annealed, *RIVALS] if activation == "relu" else ["limit", "c0.1", self.annealed]
        return [BASE, *(setting for setting in own if setting in (self.only or own))]

    @property
    def cells(self) -> list[Cell]:
        """Base first, so that a short call shows all activations."""
        cells = [(f, setting) for f in self.activations for setting in self.settings(f)]
        return sorted(cells, key=lambda cell: cell[1] != BASE)


SMALL_GPT = Task(
    "A small GPT, trained on a CPU",
    gpt.train,
    gpt.load,
    ("relu", "gelu", "silu"),
    gpt.SIZES["small"].periods,
    (0.005, 0.01, 0.02, 0.04),
    (1000,),
    range(10),
    "val_loss",
    "test_loss",
    higher=False,
    size="small",
    timed=BUSY,
)

TASKS = {
    "cifar": Task(
        "A ResNet on CIFAR-10",
        cifar_resnet.train,
        cifar_resnet.load,
        tuple(cifar_resnet.ACTIVATIONS),
        cifar_resnet.SIZES["full"].epochs,
        (0.75, 1.5, 3.0),
        (1000, 1001),
        range(10),
        "val_accuracy",
        "test_accuracy",
        higher=True,
    ),
    "cifar-small": Task(
        "A small ResNet, trained on a CPU",
        cifar_resnet.train,
        cifar_resnet.load,
        ("relu", "gelu", "silu"),
        cifar_resnet.SIZES["small"].epochs,
        (0.75, 1.5, 3.0, 6.0, 12.0),
        (1000,),
        range(10),
        "val_accuracy",
        "test_accuracy",
        higher=True,
        size="small",
        timed=BUSY,
    ),
    "gpt": Task(
        "A GPT on Python's standard library",
        gpt.train,
        gpt.load,
        tuple(gpt.ACTIVATIONS),
        gpt.SIZES["full"].periods,
        (0.001, 0.002, 0.004),
        (1000,),
        range(10),
        "val_loss",
        "test_loss",
        higher=False,
    ),
    "gpt-small": SMALL_GPT,
    "gpt-long": dataclasses.replace(
        SMALL_GPT,
        title="The small GPT, trained three times as long",
        epochs=gpt.SIZES["long"].periods,
        rates=(0.0025, 0.005, 0.01, 0.02),
        final_seeds=range(8),
        size="long",
        only=("limit", "relu2"),
    ),
    "digits": Task(
        "A residual MLP on scikit-learn's digits",
        tabular.train,
        tabular.load,
        tuple(tabular.ACTIVATIONS),
        tabular.SIZES["full"].epochs,
        (0.0003, 0.001, 0.003, 0.01),
        range(1000, 1005),
        range(40),  # a test of 359 rows needs many
        "val_accuracy",
        "test_accuracy",
        higher=True,
        timed=BUSY,
    ),
}


def make_spec(task: Task, cell: Cell, rate: float, seed: int) -> Spec:
    activation, setting = cell
    size = () if task.size == "full" else (("size", task.size),)
    return Spec(setting, seed, (("activation", activation), ("lr", rate), *size))


def searched(
    task: Task, cell: Cell, rate: float, finished: Mapping[str, Finished]
) -> list[Measured]:
    """The finished trials of the search at a rate."""
    specs = (make_spec(task, cell, rate, seed) for seed in task.search_seeds)
    return [finished[spec.id].measured for spec in specs if spec.id in finished]


def best_rate(
    task: Task, cell: Cell, finished: Mapping[str, Finished]
) -> tuple[tuple[int, float], float]:
    """The rate with the best mean of the validation metric, after its quality: larger is better.

    A rate at which fewer trials diverge is better, whatever the mean.
    """

    def quality(rate: float) -> tuple[int, float]:
        ends = [
            trial.metrics[task.validation][-1]
            for trial in searched(task, cell, rate, finished)
            if not trial.diverged
        ]
        mean = statistics.fmean(ends) if ends else math.nan
        return len(ends), mean if task.higher else -mean

    return max((quality(rate), rate) for rate in task.rates)


def plan(task: Task, stage: str, finished: Mapping[str, Finished]) -> list[Spec]:
    """The trials of a stage, seed by seed. Those of ``cost`` are the first of the search."""
    stages: dict[str, tuple[Sequence[int], Callable[[Cell], Sequence[float]]]] = {
        "cost": (task.search_seeds[:1], lambda cell: [task.middle_rate]),
        "search": (task.search_seeds, lambda cell: task.rates),
        "final": (task.final_seeds, lambda cell: [best_rate(task, cell, finished)[1]]),
        "common": (task.final_seeds, lambda cell: [task.middle_rate]),
    }
    seeds, rates_of = stages[stage]
    rates = {cell: rates_of(cell) for cell in task.cells}
    return [
        make_spec(task, cell, rate, seed)
        for seed in seeds
        for cell in task.cells
        for rate in rates[cell]
    ]


def missing(task: Task, stage: str, finished: Mapping[str, Finished]) -> list[Spec]:
    """The trials of a stage that are not finished; exits if those of the stage before are not."""
    if (before := STAGE_BEFORE[stage]) and (left := missing(task, before, finished)):
        raise SystemExit(f"{before} lacks {len(left)} trials, as {left[0]}; finish it first")
    return [spec for spec in plan(task, stage, finished) if spec.id not in finished]


def describe_left(task: Task, left: Sequence[Spec], finished: Mapping[str, Finished]) -> str:
    """How many trials are left, and how long they take by the median of the stage ``cost``."""
    alone = [finished[spec.id] for spec in plan(task, "cost", finished) if spec.id in finished]
    text = f"trials left: {len(left)}"
    if not (left and alone):
        return text
    each_s = statistics.median(sum(trial.measured.seconds) for trial in alone)
    return f"{text}, about {len(left) * each_s:.0f} s (alone on the device {each_s:.1f} s each)"


def train_stage(stage: str, name: str, folder: Path, seconds: float, keep: bool = False) -> int:
    """Trains what the store lacks while there is time; returns the number of failures."""
    deadline, task = time.monotonic() + seconds, TASKS[name]
    if stage == "cost" and torch.cuda.is_available():  # or the first trial would count the data
        task.load(torch.device("cuda"))
    store, code = TrialStore.open(folder / name / "store", create=True), fingerprint(task.train)
    store.begin_training(task.train.__qualname__, code, keep=keep)
    say = functools.partial(print, flush=True)
    left = missing(task, stage, store.finished)
    say(f"{stage} of {name}, {describe_left(task, left, store.finished)}")
    executor = LocalExecutor(task.train, shlex.join(sys.argv))
    arms = {spec.arm: Arm(spec.arm) for spec in left}
    session = Session(executor, store, arms, code, say, deadline=deadline)
    session.run(left)
    left = missing(task, stage, store.finished)
    say(f"{stage} of {name}, {describe_left(task, left, store.finished)}")
    return len(session.failed)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("stage", choices=STAGE_BEFORE)
    parser.add_argument("task", choices=TASKS)
    parser.add_argument("--store", type=Path, required=True)
    parser.add_argument("--seconds", type=float, default=math.inf)
    parser.add_argument("--keep", action="store_true", help="also trials of changed code count")
    options = parser.parse_args()
    given = options.stage, options.task, options.store, options.seconds, options.keep
    try:
        num_failed = train_stage(*given)
    except StudyError as error:
        raise SystemExit(f"error: {error}") from None
    raise SystemExit(num_failed > 0)


if __name__ == "__main__":
    main()
