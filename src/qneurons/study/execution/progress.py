"""Counts how far a study is, how fast it trains and how long it will take."""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

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


Event = Notice | Progress


class EpochCounts:
    """Counts the epochs of a study's runs and, for each kind of pack, the time they took."""

    def __init__(self, study: Study) -> None:
        self._epochs = study.epochs
        self._kinds = {run.id: packable(run) for run in study.runs}
        self._done = dict.fromkeys(self._kinds, 0)
        self._seconds: defaultdict[tuple[object, ...], float] = defaultdict(float)
        self._trained: Counter[tuple[object, ...]] = Counter()

    def update(self, progress: Mapping[str, int], diverged: set[str]) -> None:
        """Takes over the counts of the store, to which other processes contribute too."""
        for run in self._done:
            self._done[run] = self._epochs if run in diverged else progress.get(run, 0)

    def add(self, records: Sequence[Epoch], seconds: float) -> None:
        """Counts one epoch of a pack."""
        for record in records:
            self._done[record.run] = self._epochs if record.diverged else record.epoch
        if records:
            kind = self._kinds[records[0].run]
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
                (self._epochs - epochs) * costs.get(self._kinds[run], seconds / count)
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
        )
