"""How far a study is, how fast it goes and how long it will take."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from qneurons.study.runs import Epoch, Run, Study, packable


@dataclass(frozen=True)
class Notice:
    """Something worth a line."""

    text: str


@dataclass(frozen=True)
class Progress:
    """How far a study is; epochs are counted over all runs, those of a diverged run as done."""

    runs_done: int
    runs: int
    epochs_done: int
    epochs: int
    pack: tuple[Run, ...] = ()  # what is trained just now
    pack_epoch: int = 0
    packs: int = 1  # that are trained at once
    rate: float | None = None  # epochs of a run in a second of training, by this process
    seconds_left: float | None = None


Event = Notice | Progress


class Tally:
    """Counts the epochs of a study's runs, and what an epoch costs in which kind of pack."""

    def __init__(self, study: Study) -> None:
        self._epochs = study.epochs
        self._keys = {run.id: packable(run) for run in study.runs}
        self._done = dict.fromkeys(self._keys, 0)
        self._spent: dict[tuple[object, ...], tuple[float, int]] = {}  # seconds, epochs of a run

    def see(self, progress: Mapping[str, int], diverged: set[str]) -> None:
        """Takes over what the store has, of other processes too."""
        for run in self._done:
            self._done[run] = self._epochs if run in diverged else progress.get(run, 0)

    def add(self, records: Sequence[Epoch], seconds: float) -> None:
        """Counts an epoch of a pack that took so long."""
        for record in records:
            self._done[record.run] = self._epochs if record.diverged else record.epoch
        if records:
            key = self._keys[records[0].run]
            before_s, count = self._spent.get(key, (0.0, 0))
            self._spent[key] = before_s + seconds, count + len(records)

    def expected_s(self, runs: Sequence[Run]) -> float | None:
        """What an epoch of these runs together will take; None if there was none like it."""
        seconds, count = self._spent.get(packable(runs[0]), (0.0, 0))
        return seconds / count * len(runs) if count else None

    def progress(
        self, pack: tuple[Run, ...] = (), pack_epoch: int = 0, *, at_once: int = 1
    ) -> Progress:
        """``at_once``: how many packs are trained side by side."""
        done = {run: min(epochs, self._epochs) for run, epochs in self._done.items()}
        seconds = sum(seconds for seconds, _ in self._spent.values())
        count = sum(count for _, count in self._spent.values())
        left = None
        if count:
            costs = {key: seconds / count for key, (seconds, count) in self._spent.items()}
            left = sum(
                (self._epochs - epochs) * costs.get(self._keys[run], seconds / count)
                for run, epochs in done.items()
            )
        return Progress(
            runs_done=sum(epochs == self._epochs for epochs in done.values()),
            runs=len(done),
            epochs_done=sum(done.values()),
            epochs=self._epochs * len(done),
            pack=pack,
            pack_epoch=pack_epoch,
            packs=at_once,
            rate=at_once * count / seconds if seconds else None,
            seconds_left=None if left is None else left / at_once,
        )
