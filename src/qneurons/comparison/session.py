"""Has the trials that a store lacks run, seed by seed."""

import itertools
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf, isfinite
from typing import Any

from qneurons.comparison.arms import Arm
from qneurons.comparison.executor import Done, Executor, Failed, Message, Reported
from qneurons.comparison.store import Finished, Spec, TrialStore
from qneurons.comparison.trial import Measured
from qneurons.study.errors import StudyError
from qneurons.study.execution import Ended
from qneurons.study.store import Reservation

LINE_S = 5.0  # the least time between two lines about epochs
POLL_S = 1.0  # while other processes train the remaining trials
MAX_CRASHES = 3  # of one trial
NO_EPOCHS = (
    "its number of epochs is not known, because no trial of base has finished; name it, as in a5/20"
)
Grid = list[tuple[tuple[str, Any], ...]]


def make_grid(params: Mapping[str, Iterable[Any]]) -> Grid:
    """All combinations of the values, by name; one empty combination without parameters."""
    if not (isinstance(params, Mapping) and all(isinstance(name, str) for name in params)):
        raise StudyError(
            f"params is {params!r}",
            "give a list of values for each name, as in {'lr': [0.05, 0.1]}",
        )
    axes = []
    for name, values in sorted(params.items()):  # the order in which they are given has no meaning
        single = isinstance(values, str) or not isinstance(values, Iterable)
        axis = [values] if single else list(values)
        usable = [isinstance(v, int | str) or (isinstance(v, float) and isfinite(v)) for v in axis]
        if not (axis and all(usable)):
            raise StudyError(
                f"the parameter {name!r} has the values {axis}",
                f"give a list of numbers or texts, as in {{{name!r}: [0.05, 0.1]}}",
            )
        axes.append([(name, value) for value in dict.fromkeys(axis)])
    return list(itertools.product(*axes))


def make_specs(arms: Sequence[Arm], seeds: Iterable[int], grid: Grid) -> list[Spec]:
    """All trials, seed by seed, so that what is done can always be compared in pairs."""
    return [Spec(arm.name, seed, params) for seed in seeds for params in grid for arm in arms]


@dataclass
class Session:
    """Has trials run by an executor, and keeps what became of them.

    Other processes may run the same trials on the same store: each reserves what it trains.
    """

    executor: Executor
    store: TrialStore
    arms: Mapping[str, Arm]  # by name
    code: str  # the fingerprint of the training
    say: Callable[[str], None]
    check_names: Callable[[Sequence[str]], None] = lambda names: None
    deadline: float = inf  # of time.monotonic(): no trial begins later
    failed: dict[str, str] = field(default_factory=dict)  # why, by the id of the trial
    _running: dict[str, tuple[str, Reservation]] = field(default_factory=dict)  # with its setting
    _crashes: Counter[str] = field(default_factory=Counter)
    _torch_seeds: dict[int, int] = field(default_factory=dict)  # the trial's seed by torch's
    _has_warned: bool = False
    _last_line: float = field(default_factory=time.monotonic)

    def run(self, specs: Sequence[Spec], on_seed: Callable[[], None] = lambda: None) -> None:
        """Runs what the store lacks. ``on_seed`` is called after the last trial of a seed.

        A trial that raises or crashes is lost, and the others go on. If as many have failed as may
        run at once, and none is finished, the training itself is at fault, and the session ends.
        """

        def listener(spec: Spec, message: Message) -> None:
            self._handle(spec, message)
            if isinstance(message, Ended) and spec.seed not in {s.seed for s in self._left(specs)}:
                on_seed()

        has_waited = False
        try:
            while left := self._left(specs):
                is_waiting = self._submit(left)
                if self._running:
                    self.executor.poll(listener)
                elif self._is_late():
                    break
                elif is_waiting:
                    if not has_waited:
                        self.say(f"waiting for trials that other processes train: {len(left)} left")
                    has_waited = True
                    time.sleep(POLL_S)
                    self.store.refresh()
                else:
                    for spec in self._left(specs):
                        self.failed[spec.id] = NO_EPOCHS
                        self.say(f"{spec}: left out, {self.failed[spec.id]}")
        finally:
            self.executor.close()
            for _, reservation in self._running.values():
                reservation.release()

    def _is_late(self) -> bool:
        return time.monotonic() >= self.deadline

    def _left(self, specs: Iterable[Spec]) -> list[Spec]:
        """Those that run, and those that are neither finished nor given up."""
        over = (self.store.finished.keys() | self.failed.keys()) - self._running.keys()
        return [spec for spec in specs if spec.id not in over]

    def _submit(self, left: Iterable[Spec]) -> bool:
        """Submits trials while there is room; True if other processes train some."""
        is_waiting = False
        for spec in left:
            if len(self._running) == self.executor.num_slots or self._is_late():
                break
            arm, epochs = self.arms[spec.arm], self.store.num_epochs(spec.params)
            if spec.id in self._running or (arm.unfitted is not None and epochs is None):
                continue  # base comes first
            reservation = self.store.reserve([spec.id])
            if spec.id in self.store.finished:
                reservation.release()
            elif not reservation.ids:
                is_waiting = True
            else:
                setting = arm.setting(epochs)
                self._running[spec.id] = setting, reservation
                self.executor.submit(spec, setting)
        return is_waiting

    def _handle(self, spec: Spec, message: Message) -> None:
        match message:
            case Reported(epoch, metrics):
                if epoch == 1:
                    self.check_names(list(metrics))
                if time.monotonic() - self._last_line >= LINE_S:
                    self._say(f"{spec}, epoch {epoch}: {metrics_text(metrics)}")
            case Done(measured, diverged, origin, read, torch_seed):
                self._check_seed(spec, torch_seed)
                if not measured.diverged:
                    self._check_params(spec, read)
                if measured.metrics:  # again: others may have finished since its first epoch
                    self.check_names(list(measured.metrics))
                setting, _ = self._running[spec.id]
                provenance = self.store.begin(origin)
                self.store.add(Finished(spec, setting, measured, self.code, provenance))
                self._say_result(spec, measured, diverged)
            case Failed(why, traceback):
                self.say(traceback)
                self._give_up(spec, why)
            case Ended():
                self._running.pop(spec.id)[1].release()
                if message.error is not None:
                    raise message.error
                if how := message.lost or "its worker ran out of memory" * message.out_of_memory:
                    self._crashes[spec.id] += 1
                    if self._crashes[spec.id] < MAX_CRASHES:
                        self.say(f"{spec}: {how}; it begins again")
                    else:
                        self._give_up(spec, f"{how}, {MAX_CRASHES} times")

    def _check_seed(self, spec: Spec, torch_seed: int) -> None:
        """Warns once if trials of two seeds began with the same seed of torch."""
        other = self._torch_seeds.setdefault(torch_seed, spec.seed)
        if other != spec.seed and not self._has_warned:
            self._has_warned = True
            self.say(
                f"warning: the training seeds torch itself, with {torch_seed} for the seeds "
                f"{other} and {spec.seed}, so they begin with the same weights; use trial.seed, or "
                "leave it to compare"
            )

    def _check_params(self, spec: Spec, read: Collection[str]) -> None:
        """Raises if the first trial that has a parameter has not read it: it changes nothing."""
        finished = [t.spec for t in self.store.finished.values() if not t.measured.diverged]
        known = {name for other in finished for name, _ in other.params}
        unread = sorted({name for name, _ in spec.params} - {*read} - known)
        if unread:
            others = ", ".join(sorted(map(repr, read))) or "none"
            raise StudyError(
                f"the training does not read the parameter {unread[0]!r}, so that all of its "
                f"values train the same; it reads {others}",
                f"read trial.params[{unread[0]!r}] in the training, or correct the name in params "
                "(--param)",
            )

    def _give_up(self, spec: Spec, why: str) -> None:
        self.failed[spec.id] = why
        if not self.store.finished and len(self.failed) >= self.executor.num_slots:
            raise StudyError(
                f"failed ({why}), and no trial has finished yet",
                "correct the training, and run the same command again",
            )
        self.say(f"{spec}: failed ({why}); the other trials go on")

    def _say_result(self, spec: Spec, measured: Measured, diverged: str) -> None:
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
