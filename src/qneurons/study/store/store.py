"""The store: the results of a study in one folder, safe from crashes and concurrent writers."""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from qneurons.study.errors import StudyError
from qneurons.study.files import explained
from qneurons.study.runs import Epoch, Run
from qneurons.study.store import checkpoints, layout
from qneurons.study.store.ledger import Ledger
from qneurons.study.store.plans import Plan, join_plans, read_plan, write_plan
from qneurons.study.store.records import ACCURACY, DIVERGED, ORIGIN, Records, Row, to_epoch
from qneurons.study.store.tables import frame

if TYPE_CHECKING:
    import polars


CONDITIONS = ("device_type", "precision", "fingerprint")  # results compare only if these are equal


class Store(Ledger[Records]):
    """A folder with a journal and checkpoints; see ``layout`` for its files."""

    header = layout.HEADER
    inner_folders = (layout.CHECKPOINTS, layout.RESERVATIONS)

    def __init__(self, folder: Path, *, readonly: bool) -> None:
        super().__init__(folder, readonly=readonly)
        self._checkpoints, self._plan = folder / layout.CHECKPOINTS, folder / layout.PLAN
        self._verified: set[str] = set()

    def _nothing_recorded(self) -> Records:
        return Records()

    # --- reading ----------------------------------------------------------------------------------

    def runs(self) -> dict[str, Run]:
        return dict(self.records.runs)

    def epochs(self, run_id: str) -> list[Epoch]:
        """The recorded epochs of a run. Losses that were not finite are NaN."""
        return [to_epoch(run_id, row) for row in self.records.rows.get(run_id, ())]

    def progress(self) -> dict[str, int]:
        """The last recorded epoch of every run."""
        return {id: len(rows) for id, rows in self.records.rows.items()}

    def diverged(self) -> set[str]:
        return self.records.diverged()

    def accuracies(self) -> dict[str, float]:
        """The last recorded test accuracy of every run that has not diverged."""
        last = {id: rows[-1] for id, rows in self.records.rows.items() if rows}
        return {id: row[ACCURACY] for id, row in last.items() if not row[DIVERGED]}

    def plan(self) -> dict[Run, int]:
        """Everything that studies have wanted of this store; empty if it is older than plans."""
        with explained(f"store {self.folder}"):
            return read_plan(self._plan)

    def origin(self, run_id: str) -> dict[str, Any] | None:
        """The provenance of the last recorded epoch of a run."""
        rows = self.records.rows.get(run_id)
        return dict(self.records.provenance[rows[-1][ORIGIN]]) if rows else None

    def conditions(self) -> dict[tuple[str, str], set[tuple[Any, ...]]]:
        """The ``CONDITIONS`` under which each dataset and network was trained, where recorded."""
        found: dict[tuple[str, str], set[tuple[Any, ...]]] = {}
        for id, run in self.records.runs.items():
            origin = self.origin(id) or {}
            if all(name in origin for name in CONDITIONS):
                values = tuple(origin[name] for name in CONDITIONS)
                found.setdefault((run.dataset, run.network), set()).add(values)
        return found

    def check_conditions(
        self, runs: Iterable[Run], device_type: str, precision: str, fingerprints: Mapping[str, str]
    ) -> None:
        """Raises if results of these runs would not be comparable with recorded ones.

        ``fingerprints`` are those of the datasets; datasets that are not loaded yet may be missing.
        """
        recorded = self.conditions()
        for dataset, network in dict.fromkeys((run.dataset, run.network) for run in runs):
            for had_type, had_precision, had_data in recorded.get((dataset, network), ()):
                if (had_type, had_precision) != (device_type, precision):
                    raise StudyError(
                        f"the store has runs of {network} on {dataset} trained on {had_type} in "
                        f"{had_precision}, and this is {device_type} in {precision}",
                        f"give --device {had_type} --precision {had_precision}, or another --store",
                    )
                if had_data != (here := fingerprints.get(dataset, had_data)):
                    raise StudyError(
                        f"the store has runs trained on another copy of {dataset} (fingerprint "
                        f"{had_data}, here {here})",
                        "give the folder of that copy with --data-dir, or another --store",
                    )

    def resumable(self) -> dict[str, int]:
        """For every run the epoch after which training can resume; 0 without a checkpoint."""
        return {id: self._resumable(id) for id in self.records.rows}

    def _resumable(self, run_id: str) -> int:
        saved = self.records.saved.get(run_id)
        return saved.epoch if saved and (self._checkpoints / saved.file).exists() else 0

    def checkpoint(self, run_id: str) -> tuple[int, dict[str, Tensor]] | None:
        """A run's last saved epoch and its tensors; None if they were not kept or are gone."""
        epoch = self._resumable(run_id)
        if not epoch:
            return None
        return epoch, {name: values[0] for name, values in self.states([run_id]).items()}

    def states(self, run_ids: Sequence[str]) -> dict[str, Tensor]:
        """The stacked tensors of resumable runs.

        A damaged file is a ``StudyError``. If the user deletes the file, its runs start again from
        their beginning; new results replace the recorded ones where they differ.
        """
        found = [self.records.saved[id] for id in run_ids]
        files: dict[str, dict[str, Tensor]] = {}
        with explained(f"store {self.folder}"):
            for file, sha256 in {(saved.file, saved.sha256) for saved in found}:
                if file not in self._verified:  # once: it holds all the runs of a pack
                    checkpoints.verify(self._checkpoints / file, sha256)
                    self._verified.add(file)
                files[file] = checkpoints.load(self._checkpoints / file)
        return {
            name: torch.stack([files[saved.file][name][saved.index] for saved in found])
            for name in files[found[0].file]
        }

    def frame(self) -> "polars.DataFrame":
        """One row for each epoch of each run. What was not finite or not evaluated is null."""
        return frame(self.records)

    # --- writing ----------------------------------------------------------------------------------

    def add_plan(self, wanted: Plan) -> None:
        """Records what a study wants, beside what others have wanted before."""
        with self._writing():
            known = read_plan(self._plan)
            if (joined := join_plans(known, wanted)) != known:
                write_plan(self._plan, joined)

    def commit(
        self,
        runs: Sequence[Run],
        epochs: Sequence[Epoch],
        *,
        provenance: str,
        state: dict[str, Tensor] | None,
        epoch: int,
    ) -> None:
        """Saves epochs of runs, and the runs' state after ``epoch``; after an error, nothing.

        When it returns, everything is on the disk. Without ``state`` the runs can only be trained
        again from their beginning. Epochs after a divergence are left out.
        """
        resumable = {run.id: self._resumable(run.id) for run in runs}
        rows = self.records.new_rows(runs, epochs, provenance, epoch=epoch, resumable=resumable)
        self.append(runs, rows, state, epoch)

    def append(
        self,
        runs: Sequence[Run],
        rows: Mapping[str, Sequence[Row]],
        state: dict[str, Tensor] | None,
        epoch: int,
    ) -> None:
        """``commit`` of rows that are known to follow the recorded ones."""
        self._refuse_readonly()
        if any(len(values) != len(runs) for values in (state or {}).values()):
            raise ValueError(f"every tensor of a state must begin with its {len(runs)} runs")
        known = {run.id: self.records.lines.get(run.id) for run in runs}
        with explained(f"store {self.folder}"), ExitStack() as stack:
            saved = None
            if state is not None:  # before the lock: it may be large
                file, sha256 = stack.enter_context(checkpoints.saving(self._checkpoints, state))
                saved = {"file": file, "sha256": sha256, "epoch": epoch}
            stack.enter_context(self._writing())
            for id, line in known.items():
                if self.records.lines.get(id) != line:
                    raise StudyError(
                        f"store {self.folder}: another process has just recorded run {id}",
                        "nothing recorded is lost, run the same command again",
                    )
            self._journal.append(self.records.commit_entry(runs, rows, saved))
            self.refresh()
            self._sweep()

    def _sweep(self) -> None:
        """Deletes also the checkpoints that no run needs."""
        ended = self.diverged()
        needed = {saved.file for id, saved in self.records.saved.items() if id not in ended}
        checkpoints.sweep(self._checkpoints, needed)
        super()._sweep()
