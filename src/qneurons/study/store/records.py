"""The content of a journal: runs, their epochs, and where their checkpoints are."""

import fnmatch
import math
import typing
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from qneurons.study.files import RANDOM_NAME
from qneurons.study.runs import Epoch, Run
from qneurons.study.store.journal import Entry

# The values of COLUMNS for one epoch of a run. None stands for NaN and infinity, which JSON lacks,
# so also for what was not evaluated.
# Not a NamedTuple, with which opening a store takes a quarter longer.
Row = tuple[Any, ...]

_TYPES = typing.get_type_hints(Epoch)
RESULTS = tuple(name for name in _TYPES if name not in ("run", "seconds"))
COLUMNS = (*RESULTS, "seconds", "provenance")
EPOCH, ACCURACY, DIVERGED, ORIGIN = map(
    COLUMNS.index, ("epoch", "test_accuracy", "diverged", "provenance")
)


def to_row(record: Epoch, provenance: str) -> Row:
    values = [_TYPES[name](getattr(record, name)) for name in COLUMNS[:-1]]
    finite = (None if isinstance(x, float) and not math.isfinite(x) else x for x in values)
    return (*finite, provenance)


def to_epoch(run_id: str, row: Row) -> Epoch:
    values: list[Any] = [math.nan if value is None else value for value in row]
    return Epoch(run_id, **dict(zip(COLUMNS[:-1], values, strict=False)))


def differing(one: Row, other: Row) -> list[str]:
    """The names of results that differ. What only one has was not evaluated for the other."""
    triples = zip(RESULTS, one, other, strict=False)
    return [name for name, x, y in triples if x != y and x is not None and y is not None]


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
    beginning. An epoch with the same results as before then adds only what was not evaluated. The
    first one that differs replaces the old epoch and all later ones.
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
                self.provenance[entry["id"]] = {**entry["content"]}
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
        rows = zip(*(columns.get(name, missing) for name in COLUMNS), strict=True)
        for index, row in zip(columns["run"], rows, strict=True):
            past, epoch = self.rows[ids[index]], row[EPOCH]
            if not 1 <= epoch <= len(past) + 1:
                raise ValueError(f"epoch {epoch} after {len(past)}")
            if epoch > len(past) or differing(past[epoch - 1], row):
                past[epoch - 1 :] = [row]
            else:
                pairs = zip(past[epoch - 1], row, strict=True)
                past[epoch - 1] = tuple(new if old is None else old for old, new in pairs)
        saved = entry["checkpoint"]
        if saved is not None and not fnmatch.fnmatchcase(saved["file"], f"{RANDOM_NAME}.pt"):
            raise ValueError(f"{saved['file']!r} is not the name of a checkpoint")
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
            first = new[0][EPOCH] if new else done + 1
            reached = first - 1 + len(new)
            if first not in (done + 1, resumable.get(id, 0) + 1):
                raise ValueError(f"run {id}: epoch {first} cannot follow epoch {done}")
            if [row[EPOCH] for row in new] != list(range(first, reached + 1)):
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
        provenance = list(dict.fromkeys(row[ORIGIN] for _, row in flat))
        columns: dict[str, list[Any]] = {"run": [index for index, _ in flat]}
        columns |= {name: [row[place] for _, row in flat] for place, name in enumerate(COLUMNS)}
        columns["provenance"] = [provenance.index(id) for id in columns["provenance"]]
        return {
            "kind": "commit",
            "provenance": provenance,
            "runs": [run.id for run in runs],
            "new": {run.id: run.content() for run in runs if run.id not in self.runs},
            "epochs": columns,
            "checkpoint": checkpoint,
        }
