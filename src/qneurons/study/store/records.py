"""What the entries of a journal say: runs, their epochs, and where their state lies."""

import dataclasses
import math
import typing
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from qneurons.study.runs import Epoch, Run
from qneurons.study.store.journal import Entry

Row = tuple[Any, ...]

_TYPES = typing.get_type_hints(Epoch)
# A row is an epoch of a run as the journal holds it, in this order; the last two are no results.
RESULTS = tuple(name for name in _TYPES if name not in ("run", "seconds"))
ROW = (*RESULTS, "seconds", "provenance")
EPOCH, DIVERGED = ROW.index("epoch"), ROW.index("diverged")


def to_row(record: Epoch, provenance: str) -> Row:
    """JSON has no NaN and no infinity: they become None."""
    row: list[Any] = []
    for name in ROW[:-1]:
        value = _TYPES[name](getattr(record, name))
        row.append(None if isinstance(value, float) and not math.isfinite(value) else value)
    return (*row, provenance)


def same_results(one: Row, other: Row) -> bool:
    return one[: len(RESULTS)] == other[: len(RESULTS)]


def to_epoch(run_id: str, row: Row) -> Epoch:
    values: list[Any] = [math.nan if value is None else value for value in row[:-1]]
    return Epoch(run=run_id, **dict(zip(ROW[:-1], values, strict=True)))


@dataclass(frozen=True)
class Saved:
    """Where the state of a run lies: in which file, at which place, after which epoch."""

    file: str
    sha256: str
    index: int
    epoch: int


class Records:
    """The sum of all entries so far. An entry is either

    - ``provenance``: its ``id`` and ``content``, or
    - ``commit``: what was saved at once: the ids of its ``runs``, the content of those that are
      ``new``, their ``epochs`` by column (``run`` and ``provenance`` are places in the entry's
      lists of them), and the ``checkpoint`` after those epochs (file, sha256, epoch; its tensors
      hold the runs in the entry's order) or null.

    A run has its epochs in turn. Where its checkpoint is lost, or was not kept, it is trained anew
    and its epochs come again: one that is as before changes nothing, the first one that differs
    takes the place of its predecessor and of all that followed it.
    """

    def __init__(self) -> None:
        self.provenance: dict[str, dict[str, Any]] = {}
        self.runs: dict[str, Run] = {}
        self.rows: dict[str, list[Row]] = {}
        self.saved: dict[str, Saved] = {}
        self.lines: dict[str, int] = {}  # of the last entry with a run

    def apply(self, line: int, entry: Entry) -> None:
        """Raises ValueError, KeyError, TypeError or IndexError for what is no entry."""
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
        columns["provenance"] = [entry["provenance"][place] for place in columns["provenance"]]
        unknown = [None] * len(columns["run"])  # of an entry that is older than the column
        rows = zip(*(columns.get(name, unknown) for name in ROW), strict=True)
        for index, row in zip(columns["run"], rows, strict=True):
            past, epoch = self.rows[ids[index]], row[EPOCH]
            if not 1 <= epoch <= len(past) + 1:
                raise ValueError(f"epoch {epoch} after {len(past)}")
            if past[epoch - 1 : epoch] and same_results(past[epoch - 1], row):
                continue
            past[epoch - 1 :] = [row]
        saved = entry["checkpoint"]
        for index, id in enumerate(ids):
            self.lines[id] = line
            self.saved.pop(id, None)
            if saved is not None:
                self.saved[id] = Saved(saved["file"], saved["sha256"], index, saved["epoch"])

    def diverged(self) -> set[str]:
        return {id for id, rows in self.rows.items() if rows and rows[-1][DIVERGED]}

    def new_rows(
        self,
        runs: Sequence[Run],
        epochs: Sequence[Epoch],
        provenance: str,
        *,
        epoch: int,
        resumable: Mapping[str, int],
    ) -> dict[str, list[Row]]:
        """What is to be recorded of the runs, which then are at ``epoch`` or have diverged.

        Epochs after the one in which a run diverged are left out. The others must follow what is
        recorded, or the epoch from which the run is ``resumable``.
        """
        if provenance not in self.provenance:
            raise ValueError(f"provenance {provenance!r} was not begun in this store")
        ended = self.diverged()
        rows: dict[str, list[Row]] = {run.id: [] for run in runs}
        for record in epochs:
            if record.run not in ended:
                rows[record.run].append(to_row(record, provenance))
                if record.diverged:
                    ended.add(record.run)
        for id, new in rows.items():
            done = len(self.rows.get(id, ()))
            first = new[0][EPOCH] if new else done + 1
            reached = first - 1 + len(new)
            if first not in (done + 1, resumable.get(id, 0) + 1):
                raise ValueError(f"run {id}: epoch {first} cannot follow epoch {done}")
            if [row[EPOCH] for row in new] != list(range(first, reached + 1)):
                raise ValueError(f"run {id}: its epochs are not in turn")
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
        places = {id: place for place, id in enumerate(dict.fromkeys(row[-1] for _, row in flat))}
        columns: dict[str, list[Any]] = {"run": [index for index, _ in flat]}
        columns |= {name: [row[place] for _, row in flat] for place, name in enumerate(ROW)}
        columns["provenance"] = [places[id] for id in columns["provenance"]]
        return {
            "kind": "commit",
            "provenance": list(places),
            "runs": [run.id for run in runs],
            "new": {run.id: dataclasses.asdict(run) for run in runs if run.id not in self.runs},
            "epochs": columns,
            "checkpoint": checkpoint,
        }
