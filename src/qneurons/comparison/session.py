"""Runs the trials that a store lacks, seed by seed, in this process."""

import itertools
import time
import traceback
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import isfinite
from typing import Any

from qneurons.comparison.arms import Arm
from qneurons.comparison.store import Finished, Spec, TrialStore
from qneurons.comparison.trial import Trial, run_trial
from qneurons.study.errors import StudyError

LINE_S = 5.0  # the least time between two lines about epochs
POLL_S = 1.0  # while other processes train the remaining trials
Grid = list[tuple[tuple[str, Any], ...]]


def make_grid(params: Mapping[str, Iterable[Any]]) -> Grid:
    """All combinations of the values, by name; one empty combination without parameters."""
    axes = []
    for name, values in sorted(params.items()):  # the order in which they are given has no meaning
        single = isinstance(values, str) or not isinstance(values, Iterable)
        axis = [values] if single else list(values)
        usable = [isinstance(v, int | str) or (isinstance(v, float) and isfinite(v)) for v in axis]
        if not (axis and all(usable)):
            raise StudyError(
                f"the parameter {name!r} has the values {axis}; give a list of numbers or texts, "
                f"as in {{{name!r}: [0.05, 0.1]}}"
            )
        axes.append([(name, value) for value in dict.fromkeys(axis)])
    return list(itertools.product(*axes))


def plan(arms: Sequence[Arm], seeds: Iterable[int], grid: Grid) -> list[Spec]:
    """All trials, seed by seed, so that what is done can always be compared in pairs."""
    return [Spec(arm.name, seed, params) for seed in seeds for params in grid for arm in arms]


@dataclass
class Session:
    """Runs trials, and keeps what became of them.

    Other processes may run the same trials on the same store: each reserves what it trains. An
    executor for several GPUs or a cluster takes the place of ``_run``.
    """

    train: Callable[[Trial], object]
    store: TrialStore
    arms: Mapping[str, Arm]  # by name
    code: str  # the fingerprint of the training
    provenance: str
    check_names: Callable[[Sequence[str]], None]
    say: Callable[[str], None]
    failed: dict[str, str] = field(default_factory=dict)  # why, by the id of the trial
    _last_line: float = field(default_factory=time.monotonic)

    def run(self, specs: Sequence[Spec], on_seed: Callable[[], None]) -> None:
        """Runs what the store lacks. ``on_seed`` is called after the last trial of a seed.

        A trial that raises is lost, and the others go on. If it is the first one of all, the
        training itself is at fault, and the session ends.
        """
        has_waited = False
        while left := self._left(specs):
            was_run = is_waiting = False
            for spec in left:
                arm = self.arms[spec.arm]
                epochs = self.store.num_epochs(spec.params)
                if arm.unfitted is not None and epochs is None:
                    continue  # base comes first
                with self.store.reserve([spec.id]) as reservation:
                    if spec.id in self.store.finished:
                        continue
                    if not reservation.ids:
                        is_waiting = True
                        continue
                    self._run(spec, arm.setting(epochs))
                    was_run = True
                if not any(other.seed == spec.seed for other in self._left(specs)):
                    on_seed()
            if is_waiting and not was_run:
                if not has_waited:
                    self.say(f"waiting for trials that other processes train: {len(left)} left")
                has_waited = True
                time.sleep(POLL_S)
                self.store.refresh()
            elif not was_run:
                for spec in self._left(specs):
                    self.failed[spec.id] = "without a trial of base its epochs are not known"
                    self.say(f"{spec}: left out, {self.failed[spec.id]}")

    def _left(self, specs: Iterable[Spec]) -> list[Spec]:
        return [s for s in specs if s.id not in self.store.finished and s.id not in self.failed]

    def _run(self, spec: Spec, setting: str) -> None:
        def on_epoch(epoch: int, metrics: Mapping[str, float]) -> None:
            if time.monotonic() - self._last_line >= LINE_S:
                self._say(f"{spec}, epoch {epoch}: {metrics_text(metrics)}")

        trial = Trial(setting, spec.seed, dict(spec.params), self.check_names, on_epoch)
        try:
            measured, diverged = run_trial(self.train, trial)
        except StudyError as error:
            raise StudyError(f"{spec}: {error}") from error
        except Exception as error:
            self.say(traceback.format_exc().rstrip())
            why = " ".join(f"{type(error).__name__}: {error}".split())
            if not self.store.finished:
                raise StudyError(
                    f"the first trial ({spec}) has failed with {why}; correct the training, and "
                    "run the same command again"
                ) from error
            self.failed[spec.id] = why
            self.say(f"{spec}: failed, see above; the other trials go on")
            return
        self.store.add(Finished(spec, setting, measured, self.code, self.provenance))
        if diverged:
            epoch = len(measured.seconds) + 1
            self.say(
                f"{spec}: diverged in epoch {epoch}, {diverged}; it counts against its setting. "
                "A smaller learning rate may help"
            )
        else:
            ends = metrics_text({name: values[-1] for name, values in measured.metrics.items()})
            self._say(f"{spec}: {ends}, {sum(measured.seconds):.3g} s")

    def _say(self, text: str) -> None:
        self._last_line = time.monotonic()
        self.say(text)


def metrics_text(metrics: Mapping[str, float]) -> str:
    return ", ".join(f"{name} {value:.5g}" for name, value in metrics.items())
