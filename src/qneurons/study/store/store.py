"""The store: everything recorded of a study, in one folder that survives crashes and company."""

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch import Tensor

import qneurons as qn
from qneurons.study.errors import StudyError
from qneurons.study.files import explained, temporaries
from qneurons.study.runs import Epoch, Run
from qneurons.study.store import checkpoints, header, locks
from qneurons.study.store.journal import Journal
from qneurons.study.store.locks import Claim
from qneurons.study.store.records import Records, Row, Saved, to_epoch
from qneurons.study.store.tables import frame

if TYPE_CHECKING:
    import polars


TERMS = ("device_type", "precision", "fingerprint")  # numbers that differ in these do not compare


class Store:
    """A folder with ``store.json`` (the version of the format), ``journal.jsonl`` and its length,
    ``checkpoints/`` and ``claims/``; ``header`` makes one.

    The journal is the truth and only grows: see ``Journal`` for its lines, ``Records`` for what
    they say. Processes on one machine, or on a shared folder with working ``flock``, may use one
    store together; each claims the runs that it trains.
    """

    def __init__(self, folder: Path, *, readonly: bool) -> None:
        self.folder = folder
        self.readonly = readonly
        self._journal = Journal(folder / "journal.jsonl")
        self._checkpoints = folder / "checkpoints"
        self._records = Records()
        self._verified: set[str] = set()

    @classmethod
    def open(cls, folder: Path, *, create: bool = False, readonly: bool = False) -> "Store":
        """Reads a store, and first makes one if ``create`` says so and there is none.

        ``readonly`` writes nothing; it may read a store that others are writing.
        """
        store = cls(Path(folder), readonly=readonly)
        with explained(f"store {folder}"):
            if create and not readonly:
                header.create(store.folder)
            header.check(store.folder)
            if not readonly:
                with store._journal.locked():  # whether it can be written is known at once
                    pass
        store.refresh()
        return store

    # --- reading ----------------------------------------------------------------------------------

    def refresh(self) -> None:
        """Reads what was recorded since, by other processes too."""
        with explained(f"store {self.folder}"):
            entries = self._journal.read()
        for line, entry in entries:
            try:
                self._records.apply(line, entry)
            except (ValueError, KeyError, TypeError, IndexError) as error:
                raise StudyError(
                    f"{self._journal.path}, line {line}, is not understood ({error!r}): it was "
                    f"written by another qneurons than {qn.__version__}; use that one"
                ) from error

    def runs(self) -> dict[str, Run]:
        return dict(self._records.runs)

    def epochs(self, run_id: str) -> list[Epoch]:
        """What was recorded of a run; losses that were not finite are NaN."""
        return [to_epoch(run_id, row) for row in self._records.rows.get(run_id, ())]

    def progress(self) -> dict[str, int]:
        """The last epoch recorded of every run."""
        return {id: len(rows) for id, rows in self._records.rows.items()}

    def diverged(self) -> set[str]:
        return self._records.diverged()

    def origin(self, run_id: str) -> dict[str, Any] | None:
        """The provenance under which a run was last recorded."""
        rows = self._records.rows.get(run_id)
        return dict(self._records.provenance[rows[-1][-1]]) if rows else None

    def terms(self) -> dict[tuple[str, str], set[tuple[Any, ...]]]:
        """The ``TERMS`` under which each dataset and network was trained, where they are known."""
        terms: dict[tuple[str, str], set[tuple[Any, ...]]] = {}
        for id, run in self._records.runs.items():
            if origin := self.origin(id):
                found = tuple(origin[name] for name in TERMS if name in origin)
                if len(found) == len(TERMS):
                    terms.setdefault((run.dataset, run.network), set()).add(found)
        return terms

    def refuse_other_terms(
        self,
        runs: Iterable[Run],
        device_type: str,
        precision: str,
        fingerprints: Mapping[str, str],
    ) -> None:
        """Numbers on one dataset and network are comparable: they come from one arithmetic.

        Of ``fingerprints``, of datasets, those that are not known yet may be missing.
        """
        recorded = self.terms()
        for dataset, network in dict.fromkeys((run.dataset, run.network) for run in runs):
            for had_type, had_precision, had_data in recorded.get((dataset, network), ()):
                if (had_type, had_precision) != (device_type, precision):
                    raise StudyError(
                        f"the store has runs of {network} on {dataset} trained on {had_type} in "
                        f"{had_precision}, and this is {device_type} in {precision}; go on with "
                        f"--device {had_type} --precision {had_precision}, or begin another store"
                    )
                if had_data != (here := fingerprints.get(dataset, had_data)):
                    raise StudyError(
                        f"the store has runs trained on another copy of {dataset} (fingerprint "
                        f"{had_data}, here {here}); name the folder of the first with --data-dir, "
                        "or begin another store"
                    )

    def resumable(self) -> dict[str, int]:
        """For every run the epoch after which it can go on; 0 where no checkpoint is left."""
        return {id: self._resumable(id) for id in self._records.rows}

    def _resumable(self, run_id: str) -> int:
        return self._records.saved[run_id].epoch if self._has_checkpoint(run_id) else 0

    def checkpoint(self, run_id: str) -> tuple[int, dict[str, Tensor]] | None:
        """The tensors of a run and the epoch after which; None if they were not kept or are gone.

        A file that was changed is a ``StudyError``. Once it is deleted, its runs can be trained
        anew from their beginning; what they commit replaces what was recorded if it differs.
        """
        if not self._has_checkpoint(run_id):
            return None
        saved = self._records.saved[run_id]
        state = self._load(saved)
        return saved.epoch, {name: values[saved.index].clone() for name, values in state.items()}

    def _has_checkpoint(self, run_id: str) -> bool:
        saved = self._records.saved.get(run_id)
        return saved is not None and (self._checkpoints / saved.file).exists()

    def _load(self, saved: Saved) -> dict[str, Tensor]:
        path = self._checkpoints / saved.file
        with explained(f"store {self.folder}"):
            if saved.file not in self._verified:  # once: it holds all the runs of a pack
                checkpoints.verify(path, saved.sha256)
                self._verified.add(saved.file)
            return checkpoints.load(path)

    def frame(self) -> "polars.DataFrame":
        """Tidy rows, one for each epoch of each run; losses that were not finite are null."""
        return frame(self._records)

    # --- writing ----------------------------------------------------------------------------------

    @contextmanager
    def _writing(self) -> Iterator[None]:
        """Inside nobody else writes, and everything that others wrote is known."""
        with explained(f"store {self.folder}"), self._journal.locked():
            self.refresh()
            yield

    def claim(self, run_ids: Sequence[str]) -> Claim:
        """Takes those of the runs that no living process has, and refreshes."""
        self._refuse_readonly()
        with self._writing():
            return locks.claim(self.folder / "claims", run_ids)

    def begin(self, provenance: dict[str, Any]) -> str:
        """Records where the numbers to come are from, and returns the id for ``commit``."""
        self._refuse_readonly()
        content = json.dumps(provenance, sort_keys=True, allow_nan=False)
        id = hashlib.sha256(content.encode()).hexdigest()[:16]
        with self._writing():
            self._sweep()
            if id not in self._records.provenance:
                self._journal.append([{"kind": "provenance", "id": id, "content": provenance}])
                self.refresh()
        return id

    def commit(
        self,
        runs: Sequence[Run],
        epochs: Sequence[Epoch],
        *,
        provenance: str,
        state: dict[str, Tensor] | None,
        epoch: int,
    ) -> None:
        """Saves epochs of runs and the runs' state after ``epoch``: all of it, or an error.

        When it returns, everything is on the disk. Without ``state`` the runs cannot go on later,
        only begin anew. A diverged run has ended: later epochs of it are left out.
        """
        resumable = {run.id: self._resumable(run.id) for run in runs}
        rows = self._records.new_rows(runs, epochs, provenance, epoch=epoch, resumable=resumable)
        self._save(runs, rows, state, epoch)

    def _save(
        self,
        runs: Sequence[Run],
        rows: Mapping[str, Sequence[Row]],
        state: dict[str, Tensor] | None,
        epoch: int,
    ) -> None:
        self._refuse_readonly()
        if any(len(values) != len(runs) for values in (state or {}).values()):
            raise ValueError(f"every tensor of a state must begin with its {len(runs)} runs")
        known = {run.id: self._records.lines.get(run.id) for run in runs}
        with explained(f"store {self.folder}"), ExitStack() as stack:
            saved = None
            if state is not None:  # before the lock: it may be large
                file, sha256 = stack.enter_context(checkpoints.saving(self._checkpoints, state))
                saved = {"file": file, "sha256": sha256, "epoch": epoch}
            stack.enter_context(self._writing())
            for run in runs:
                if self._records.lines.get(run.id) != known[run.id]:
                    raise StudyError(
                        f"store {self.folder}: another process recorded run {run.id} meanwhile; "
                        "nothing recorded is lost, run the same command again"
                    )
            self._journal.append([self._records.commit_entry(runs, rows, saved)])
            self.refresh()
            self._sweep()

    def tidy(self) -> None:
        """Deletes what killed processes left; else only who claims or saves runs does that."""
        if self.readonly:
            return
        with suppress(StudyError), self._writing():  # files that stay do no harm
            self._sweep()
            locks.sweep(self.folder / "claims")

    def _sweep(self) -> None:
        """Deletes the checkpoints that no run needs any more, and what killed processes left."""
        ended = self.diverged()
        needed = {saved.file for id, saved in self._records.saved.items() if id not in ended}
        checkpoints.sweep(self._checkpoints, needed)
        # Made only by whoever holds the lock, as this process does.
        for owner in (self._journal.length_path, self.folder / "store.json"):
            for path in temporaries(owner):
                with suppress(OSError):
                    path.unlink()

    def _refuse_readonly(self) -> None:
        if self.readonly:
            raise StudyError(f"store {self.folder} was opened for reading only")
