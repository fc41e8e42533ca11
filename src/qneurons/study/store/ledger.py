"""A folder with a journal: opening, reading, writing and reserving, safe from crashes."""

import abc
import hashlib
import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, ClassVar, Generic, Protocol, Self, TypeVar

import qneurons as qn
from qneurons.study.errors import StudyError
from qneurons.study.files import explained, temporaries
from qneurons.study.store import layout, locks
from qneurons.study.store.journal import Entry, Journal


class Content(Protocol):
    """What the entries of a journal add up to."""

    provenance: dict[str, dict[str, Any]]  # by id

    def apply(self, line: int, entry: Entry) -> None:
        """Adds an entry; raises ValueError, KeyError, TypeError or IndexError for a bad one."""


C = TypeVar("C", bound=Content)


class Ledger(abc.ABC, Generic[C]):
    """The journal is the truth and only grows; see :class:`Journal`.

    Several processes may use a ledger at once, on one machine or on a shared folder whose ``flock``
    works. Each reserves what it works on.
    """

    header: ClassVar[dict[str, Any]]  # what makes a folder such a ledger
    inner_folders: ClassVar[tuple[str, ...]] = (layout.RESERVATIONS,)

    def __init__(self, folder: Path, *, readonly: bool) -> None:
        self.folder = folder
        self.readonly = readonly
        self.records = self._nothing_recorded()
        self._journal = Journal(folder / layout.JOURNAL)

    @abc.abstractmethod
    def _nothing_recorded(self) -> C: ...

    @classmethod
    def open(cls, folder: Path, *, create: bool = False, readonly: bool = False) -> Self:
        """Opens a folder. ``create`` makes it first if there is none.

        ``readonly`` writes nothing, so it can read a folder while others write to it.
        """
        ledger = cls(Path(folder), readonly=readonly)
        with explained(f"store {folder}"):
            if create and not readonly:
                layout.create(ledger.folder, cls.header, cls.inner_folders)
            layout.check(ledger.folder, cls.header)
            if not readonly:
                with ledger._journal.locked():  # fails now rather than later if it is not writable
                    pass
        ledger.refresh()
        return ledger

    def refresh(self) -> None:
        """Reads what was recorded since the last refresh, also by other processes."""
        with explained(f"store {self.folder}"):
            entries = self._journal.read()
        for line, entry in entries:
            try:
                self.records.apply(line, entry)
            except (ValueError, KeyError, TypeError, IndexError) as error:
                raise StudyError(
                    f"{self._journal.path}, line {line}, is not understood ({error!r}): it was "
                    f"written by another version than qneurons {qn.__version__}",
                    "use that version",
                ) from error

    @contextmanager
    def _writing(self) -> Iterator[None]:
        """Inside the block no other process writes, and everything recorded has been read."""
        self._refuse_readonly()
        with explained(f"store {self.folder}"), self._journal.locked():
            self.refresh()
            yield

    def reserve(self, ids: Sequence[str]) -> locks.Reservation:
        """Refreshes, and reserves those of the ids that no running process has reserved."""
        with self._writing():
            return locks.reserve(self.folder / layout.RESERVATIONS, ids)

    def begin(self, provenance: dict[str, Any]) -> str:
        """Records a provenance, and returns its id."""
        content = json.dumps(provenance, sort_keys=True, allow_nan=False)
        id = hashlib.sha256(content.encode()).hexdigest()[:16]
        with self._writing():
            self._sweep()
            if id not in self.records.provenance:
                self._journal.append({"kind": "provenance", "id": id, "content": provenance})
                self.refresh()
        return id

    def tidy(self) -> None:
        """Deletes the files that killed processes left. Errors are ignored: they do no harm."""
        with suppress(StudyError), self._writing():
            self._sweep()
            self._reserved()

    def _sweep(self) -> None:
        """Deletes the temporary files of killed processes."""
        # Only the holder of the lock makes such files, and that is this process.
        others = (self.folder / name for name in (layout.HEADER_FILE, layout.PLAN))
        for path in (self._journal.length_path, *others):
            for temporary in temporaries(path):
                with suppress(OSError):
                    temporary.unlink()

    def _reserved(self) -> set[str]:
        """The ids that running processes have reserved; only while writing."""
        return locks.sweep(self.folder / layout.RESERVATIONS)

    def _refuse_readonly(self) -> None:
        if self.readonly:
            raise StudyError(f"store {self.folder} was opened for reading only")
