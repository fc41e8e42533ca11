"""The content of a journal: runs, their epochs, and where their checkpoints are."""

import dataclasses
import math
import typing
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from qneurons.study.runs import Epoch, Run
from qneurons.study.store.journal import Entry


class Row(NamedTuple):
    """An epoch of a run in the journal. None stands for NaN and infinity, which JSON lacks."""

    epoch: int
    lam: float
    train_loss: float | None
    test_loss: float | None
    test_accuracy: float | None
    test_loss_limit: float | None
    test_accuracy_limit: float | None
    test_loss_mean: float | None
    test_accuracy_mean: float | None
    diverged: bool
    train_loss_limit: float | None
    seconds: float
    provenance: str


RESULTS = Row._fields[:-2]  # what is equal where a run was trained twice under the same conditions
_TYPES = typing.get_type_hints(Epoch)


def to_row(record: Epoch, provenance: str) -> Row:
    values = [_TYPES[name](getattr(record, name)) for name in Row._fields[:-1]]
    finite = (None if isinstance(x, float) and not math.isfinite(x) else x for x in values)
    return Row._make([*finite, provenance])


def to_epoch(run_id: str, row: Row) -> Epoch:
    values: dict[str, Any] = {
        name: math.nan if x is None else x for name, x in row._asdict().items()
    }
    del values["provenance"]
    return Epoch(run_id, **values)


def same_results(one: Row, other: Row) -> bool:
    return one[: len(RESULTS)] == other[: len(RESULTS)]


@dataclass(frozen=True)
class Saved:
    """Where the state of a run is: in which file, at which index, after which epoch."""

    file: str
    sha256: str
    index: int
    epoch: int


class Records:
    """All entries of a journal so far. An entry is one of

    - ``provenance``: its ``id`` and ``content``;
    - ``commit``: the ids of its ``runs``, the content of those that are ``new``, their ``epochs``
      by column (``run`` and ``provenance`` are indices into the entry's lists), and the
      ``checkpoint`` after those epochs (file, sha256, epoch; its tensors hold the runs in the
      entry's order) or null.

    The epochs of a run are consecutive. A run without checkpoint is trained again from its
    beginning. An epoch with the same results as before then changes nothing. The first one that
    differs replaces the old epoch and all later ones.
    """

    def __init__(self) -> None:
        self.provenance: dict[str, dict[str, Any]] = {}
        self.runs: dict[str, Run] = {}
        self.rows: dict[str, list[Row]] = {}
        self.saved: dict[str, Saved] = {}
        self.lines: dict[str, int] = {}  # of the last entry with a run

    def apply(self, line: int, entry: Entry) -> None:
        """Adds an entry; raises ValueError, KeyError, TypeError or IndexError for a bad one."""
        match entry["kind"]:
            case "provenance":
                self.provenance[entry["id"]] = entry["content"]
            case "commit":
                self._apply_commit(line, entry)
            case kind:
                raise ValueError(f"kind {kind!r}")

    def _apply_commit(self, line: int, entry: Entry) -> None:
        for id, content in entry["new"].items():
            run = Run(**content)
            if run.id != id:
                raise ValueError(f"run {id} has the id {run.id} here")
            self.runs[id], self.rows[id] = run, []
        ids, columns = entry["runs"], dict(entry["epochs"])
        columns["provenance"] = [entry["provenance"][index] for index in columns["provenance"]]
        missing = [None] * len(columns["run"])  # for a column that is younger than the entry
        rows = zip(*(columns.get(name, missing) for name in Row._fields), strict=True)
        for index, row in zip(columns["run"], map(Row._make, rows), strict=True):
            past = self.rows[ids[index]]
            if not 1 <= row.epoch <= len(past) + 1:
                raise ValueError(f"epoch {row.epoch} after {len(past)}")
            if row.epoch > len(past) or not same_results(past[row.epoch - 1], row):
                past[row.epoch - 1 :] = [row]
        saved = entry["checkpoint"]
        for index, id in enumerate(ids):
            self.lines[id] = line
            self.saved.pop(id, None)
            if saved is not None:
                self.saved[id] = Saved(saved["file"], saved["sha256"], index, saved["epoch"])

    def diverged(self) -> set[str]:
        return {id for id, rows in self.rows.items() if rows and rows[-1].diverged}

    def new_rows(
        self,
        runs: Sequence[Run],
        epochs: Sequence[Epoch],
        provenance: str,
        *,
        epoch: int,
        resumable: Mapping[str, int],
    ) -> dict[str, list[Row]]:
        """The rows to commit for the runs, each of which is then at ``epoch`` or has diverged.

        Epochs after a divergence are left out. The others must follow the last recorded epoch, or
        the one from which the run is ``resumable``.
        """
        if provenance not in self.provenance:
            raise ValueError(f"provenance {provenance!r} is unknown; call begin() first")
        ended = self.diverged()
        rows: dict[str, list[Row]] = {run.id: [] for run in runs}
        for record in epochs:
            if record.run not in ended:
                rows[record.run].append(to_row(record, provenance))
                if record.diverged:
                    ended.add(record.run)
        for id, new in rows.items():
            done = len(self.rows.get(id, ()))
            first = new[0].epoch if new else done + 1
            reached = first - 1 + len(new)
            if first not in (done + 1, resumable.get(id, 0) + 1):
                raise ValueError(f"run {id}: epoch {first} cannot follow epoch {done}")
            if [row.epoch for row in new] != list(range(first, reached + 1)):
                raise ValueError(f"run {id}: its epochs are not consecutive")
            if reached != epoch and id not in ended:
                raise ValueError(f"run {id} is at epoch {reached}, and its state at epoch {epoch}")
        return rows

    def commit_entry(
        self,
        runs: Sequence[Run],
        rows: Mapping[str, Sequence[Row]],
        checkpoint: dict[str, Any] | None,
    ) -> Entry:
        flat = [(index, row) for index, run in enumerate(runs) for row in rows[run.id]]
        provenance = list(dict.fromkeys(row.provenance for _, row in flat))
        columns: dict[str, list[Any]] = {"run": [index for index, _ in flat]}
        columns |= {name: [getattr(row, name) for _, row in flat] for name in Row._fields}
        columns["provenance"] = [provenance.index(id) for id in columns["provenance"]]
        return {
            "kind": "commit",
            "provenance": provenance,
            "runs": [run.id for run in runs],
            "new": {run.id: dataclasses.asdict(run) for run in runs if run.id not in self.runs},
            "epochs": columns,
            "checkpoint": checkpoint,
        }
