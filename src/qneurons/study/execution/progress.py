"""Counts how far a study is, how fast it trains and how long it will take."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean

from qneurons.study.runs import Epoch, Run, Study, packable


@dataclass(frozen=True)
class Notice:
    """A line of text for the user."""

    text: str


@dataclass(frozen=True)
class Progress:
    """How far a study is. Epochs are summed over all runs; a diverged run counts as done."""

    runs_done: int
    runs: int
    epochs_done: int
    epochs: int
    pack: tuple[Run, ...] = ()  # being trained now
    pack_epoch: int = 0
    packs: int = 1  # being trained at the same time
    rate: float | None = None  # epochs of a run per second, in this process
    seconds_left: float | None = None
    # The latest test accuracies: of each activation of the pack, by setting, as means over seeds.
    # There are none if the runs of the pack have different protocols.
    accuracies: Mapping[str, Mapping[str, float]] = field(default_factory=dict)


Event = Notice | Progress


class EpochCounts:
    """Counts the epochs of a study's runs and, for each kind of pack, the time they took."""

    def __init__(self, study: Study) -> None:
        self._epochs = study.epochs
        self._packable = {run.id: packable(run) for run in study.runs}
        self._runs = study.runs
        self._kinds = {run.id: run.kind for run in study.runs}
        self._done = dict.fromkeys(self._packable, 0)
        self._accuracies: dict[str, float] = {}
        self._seconds: defaultdict[tuple[object, ...], float] = defaultdict(float)
        self._trained: Counter[tuple[object, ...]] = Counter()

    def update(
        self, progress: Mapping[str, int], diverged: set[str], accuracies: Mapping[str, float]
    ) -> None:
        """Takes over the counts of the store, to which other processes contribute too."""
        self._accuracies.update(accuracies)
        for run in self._done:
            self._done[run] = self._epochs if run in diverged else progress.get(run, 0)

    def add(self, records: Sequence[Epoch], seconds: float) -> None:
        """Counts one epoch of a pack."""
        for record in records:
            self._done[record.run] = self._epochs if record.diverged else record.epoch
            if record.diverged:
                self._accuracies.pop(record.run, None)
            else:
                self._accuracies[record.run] = record.test_accuracy
        if records:
            kind = self._packable[records[0].run]
            self._seconds[kind] += seconds
            self._trained[kind] += len(records)

    def expected_s(self, runs: Sequence[Run]) -> float | None:
        """The expected time of an epoch of these runs; None if no such pack was trained yet."""
        kind = packable(runs[0])
        count = self._trained[kind]
        return self._seconds[kind] / count * len(runs) if count else None

    def progress(
        self, pack: tuple[Run, ...] = (), pack_epoch: int = 0, *, packs: int = 1
    ) -> Progress:
        done = {run: min(epochs, self._epochs) for run, epochs in self._done.items()}
        seconds, count = sum(self._seconds.values()), sum(self._trained.values())
        left = None
        if count:
            costs = {kind: self._seconds[kind] / num for kind, num in self._trained.items()}
            left = sum(
                (self._epochs - epochs) * costs.get(self._packable[run], seconds / count)
                for run, epochs in done.items()
            )
        return Progress(
            runs_done=sum(epochs == self._epochs for epochs in done.values()),
            runs=len(done),
            epochs_done=sum(done.values()),
            epochs=self._epochs * len(done),
            pack=pack,
            pack_epoch=pack_epoch,
            packs=packs,
            rate=packs * count / seconds if seconds else None,
            seconds_left=None if left is None else left / packs,
            accuracies=self._pack_accuracies(pack),
        )

    def _pack_accuracies(self, pack: Sequence[Run]) -> dict[str, dict[str, float]]:
        kinds = {self._kinds[run.id] for run in pack}
        if len(kinds) > 1:  # means over learning rates would say little
            return {}
        alike = [run for run in self._runs if self._kinds[run.id] in kinds]
        names = dict.fromkeys(run.activation for run in pack)
        return {
            name: setting_means([r for r in alike if r.activation == name], self._accuracies)
            for name in names
        }


def setting_means(runs: Iterable[Run], values: Mapping[str, float]) -> dict[str, float]:
    """The mean value of each setting over the runs that have one."""
    found: defaultdict[str, list[float]] = defaultdict(list)
    for run in runs:
        if run.id in values:
            found[run.setting].append(values[run.id])
    return {setting: fmean(numbers) for setting, numbers in found.items()}
