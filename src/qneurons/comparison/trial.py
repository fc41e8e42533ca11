"""A trial: one training by the user's own function, which converts a model and reports epochs."""

import gc
import random
import time
import warnings
from collections.abc import Callable, Iterable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from qneurons.arguments import Mode
from qneurons.comparison.arms import BASE, rivals
from qneurons.conversion import (
    Alias,
    ConversionPlan,
    Selector,
    conversion_plan,
    convert,
    replace_activations,
)
from qneurons.modules import QActivation
from qneurons.scheduler import LambdaScheduler
from qneurons.study.errors import StudyError

LARGEST = 1e100  # of a metric: a comparison adds squares, which overflow from 1e154 on
# True where a file is imported for its training, which must not compare by itself.
only_imports: ContextVar[bool] = ContextVar("only_imports", default=False)


class Diverged(Exception):
    """Ends a training that reported a number that is not finite, or beyond ``LARGEST``."""


@dataclass(frozen=True)
class Measured:
    """What a trial gives: metrics and seconds epoch by epoch, and the memory it added on CUDA."""

    metrics: dict[str, list[float]]
    seconds: list[float]
    peak_bytes: int | None
    diverged: bool


@dataclass
class Trial:
    """What :func:`qneurons.compare` hands to a training.

    Attributes:
        seed (int): the seed of this trial. torch, numpy and random are seeded with it already.
        params (dict): the values of the grid for this trial, as in ``trial.params["lr"]``.
        setting (str): the setting of this trial, as in ``"c0.1"``.
    """

    setting: str
    seed: int
    params: Mapping[str, Any]
    on_epoch: Callable[[int, Mapping[str, float]], None] = field(
        default=lambda epoch, metrics: None, repr=False
    )

    def __post_init__(self) -> None:
        self._schedulers: list[LambdaScheduler] = []
        self._metrics: dict[str, list[float]] = {}
        self._seconds: list[float] = []
        self._is_converted = False
        self.torch_seed = self.seed  # when the model was converted
        self._diverged = ""  # how it has, if it has
        self._since = time.perf_counter()

    def convert(
        self,
        model: nn.Module,
        *,
        phi: float = 1e-3,
        eval_mode: Mode = "limit",
        include: Selector | Iterable[Selector] = ("*",),
        exclude: Selector | Iterable[Selector] = (),
        alias: Alias | None = None,
    ) -> nn.Module:
        """Puts the setting of this trial into a model, in place.

        Call it before the optimizer is made. The options are those of :func:`qneurons.convert`.

        Returns:
            the model, or the new module if the model is itself an activation.
        """
        try:
            plan = conversion_plan(model, include=include, exclude=exclude, alias=alias)
        except ValueError as error:
            raise StudyError(f"there is nothing to compare: {error}") from None
        if not plan.replaced:
            raise _nothing_to_compare(plan)
        if self.setting in (plain := rivals()):
            if plan.left:
                warnings.warn(f"not converted: {plan.describe_left()}", stacklevel=2)
            model = replace_activations(model, plan, lambda row: plain[self.setting]())
        elif self.setting != BASE:
            model = convert(
                model, self.setting, phi, eval_mode, include=include, exclude=exclude, alias=alias
            )
            parts = [part for part in model.modules() if isinstance(part, QActivation)]
            if any(part.schedule is not None for part in parts):
                self._schedulers.append(LambdaScheduler(model))
        self._is_converted = True
        self.torch_seed = torch.initial_seed()
        self._since = time.perf_counter()  # building and moving a model is no part of an epoch
        return model

    def report(self, **metrics: float) -> None:
        """Records and shows the metrics of an epoch, and sets λ for the next one.

        Call it once after every epoch, always with the same names. A number that is not finite, or
        beyond 1e100, ends the trial: it is recorded as diverged.
        """
        seconds = time.perf_counter() - self._since
        if not self._is_converted:
            raise StudyError(
                "the training reports before it has converted a model, so all settings would "
                "train the same",
                "call model = trial.convert(model) first",
            )
        if self._metrics and self._metrics.keys() != metrics.keys():
            raise StudyError(
                f"epoch {len(self._seconds) + 1} reports {', '.join(metrics) or 'nothing'}, and "
                f"the epochs before reported {', '.join(self._metrics)}",
                "report the same names after every epoch",
            )
        values = {name: _number(name, value) for name, value in metrics.items()}
        bad = [name for name, value in values.items() if not abs(value) <= LARGEST]
        if bad and not self._diverged:
            self._diverged = f"{bad[0]} is {values[bad[0]]}"
        if self._diverged:
            raise Diverged(self._diverged)
        for name, value in values.items():
            self._metrics.setdefault(name, []).append(value)
        self._seconds.append(seconds)
        for scheduler in self._schedulers:
            scheduler.step()
        self.on_epoch(len(self._seconds), values)
        self._since = time.perf_counter()


def _nothing_to_compare(plan: ConversionPlan) -> StudyError:
    """With remedies that every setting can use: what ``convert`` advises is for one of them."""
    if plan.excluded:
        why, remedy = "include and exclude leave no activation", "loosen them"
    elif plan.converted:
        why = f"the model has {len(plan.converted)} q-activations already"
        remedy = "give it plain activations such as nn.ReLU(), which every setting replaces"
    else:
        why = "the model has no activation module to replace"
        remedy = (
            "settings reach modules only: use one such as nn.ReLU() in the model, or name a gate "
            "in include= or a class of your own in alias="
        )
    left = f"; left: {plan.describe_left()}" if plan.left else ""
    return StudyError(f"there is nothing to compare: {why}{left}", remedy)


def run_trial(train: Callable[[Trial], object], trial: Trial) -> tuple[Measured, str]:
    """Trains, and gives what was measured, and how it diverged, if it did.

    It knows neither store nor display, so that it can run in another process.
    """
    seed_everything(trial.seed)
    if _cuda_devices():
        gc.collect()  # cycles may hold tensors of the trial before
    before = {device: torch.cuda.memory_allocated(device) for device in _cuda_devices()}
    for device in before:
        torch.cuda.reset_peak_memory_stats(device)
    try:
        train(trial)
    except Exception:
        if not trial._diverged:  # what a training raises after that is its consequence
            raise
    if not (trial._metrics or trial._diverged):
        raise StudyError(
            "the training has reported nothing",
            "call trial.report(test_accuracy=...) after every epoch",
        )
    # Without what was there before: data that are kept, workspaces of cuBLAS.
    peaks = (torch.cuda.max_memory_allocated(d) - before.get(d, 0) for d in _cuda_devices())
    peak = max(peaks, default=0)
    diverged = trial._diverged
    measured = Measured(trial._metrics, trial._seconds, peak or None, diverged=bool(diverged))
    return measured, diverged


def _cuda_devices() -> range:
    """Those that may be in use: a training on the CPU must not start CUDA."""
    return range(torch.cuda.device_count() if torch.cuda.is_initialized() else 0)


def seed_everything(seed: int) -> None:
    """Seeds the generators that a training may draw from: torch, random and numpy."""
    torch.manual_seed(seed)
    random.seed(seed)
    try:
        import numpy as np
    except ModuleNotFoundError:
        return
    np.random.seed(seed % 2**32)  # noqa: NPY002  trainings may use the old generator


def _number(name: str, value: Any) -> float:
    try:
        return float(value.detach() if isinstance(value, Tensor) else value)
    except (TypeError, ValueError, OverflowError):
        raise StudyError(
            f"{name} must be a number, got {value!r}", f"report for example {name}=0.97"
        ) from None
