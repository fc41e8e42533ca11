"""Runs a study: trains what is missing, saves it, stops cleanly, shares a store with others."""

import gc
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import torch
from torch import Tensor

from qneurons.provenance import provenance
from qneurons.study import StudyError
from qneurons.study.data import DATASETS, Dataset, load_dataset
from qneurons.study.executor import Halt, Outcome, Terms, never, train
from qneurons.study.planning import Job, default_pack, pending, plan
from qneurons.study.progress import Event, Notice, Tally
from qneurons.study.runs import Epoch, Run, Study, packable
from qneurons.study.store import Store
from qneurons.study.training import Pack

POLL_S = 1.0  # while other processes train what is left


def run_study(
    study: Study,
    store: Store,
    *,
    device: torch.device,
    precision: str,
    data_dir: Path | None = None,
    pack: int | None = None,
    time_limit: float | None = None,
    command: str = "",
    checkpoint_s: float = 30.0,
    keep_state: bool = False,
    download_bar: bool = False,
    on_event: Callable[[Event], None] = lambda event: None,
    should_stop: Callable[[], bool] = never,
    pack_class: type[Pack] = Pack,
) -> Outcome:
    """Trains what a store lacks of a study; what it has is not done again.

    Several processes may do so on one store: each takes packs that no other has taken, and all
    return when the study is finished.

    Args:
        pack: how many runs train together; without it as many as fit.
        time_limit: in seconds from now.
        command: recorded beside the results.
        checkpoint_s: how many seconds apart a pack is saved, at least.
        keep_state: keeps the weights of finished runs too, so that more epochs can follow.
        download_bar: whether a download draws a progress bar.
        on_event: hears how far the study is.
        should_stop: asked between steps; when it says yes, everything is saved and training ends.
    """
    session = _Session(
        study,
        store,
        Terms(device, precision, study.epochs, keep_state, checkpoint_s, pack_class),
        Halt(should_stop, time_limit),
        pack,
        on_event,
        Tally(study),
    )
    while jobs := session.plan():
        session.load(jobs, data_dir, command, download_bar)
        trained = False
        for job in jobs:
            trained = session.do(job) or trained
            if session.halt.outcome is not None:
                break
        if session.halt():
            break
        if not trained:
            session.wait()
    outcome = session.halt.outcome
    if outcome is None or not session.plan():  # stopped, but just at its end
        return Outcome.FINISHED
    if outcome is Outcome.TIME_LIMIT and not session.saved:
        on_event(Notice("no epoch was finished in time: give a longer --time-limit, or --pack 1"))
    return outcome


@dataclass
class _Session:
    """What one process knows while it runs a study."""

    study: Study
    store: Store
    terms: Terms
    halt: Halt
    pack: int | None
    on_event: Callable[[Event], None]
    tally: Tally
    saved: int = 0
    waiting: bool = False
    datasets: dict[str, tuple[Dataset, str]] = field(default_factory=dict)  # with provenance
    sizes: dict[tuple[object, ...], int] = field(default_factory=dict)  # of packs, by kind

    # --- before training ---

    def plan(self) -> list[Job]:
        self.store.refresh()
        todo = self.look()
        if todo:
            self.refuse_other_terms()
        self.tell()
        return plan([run for run in self.study.runs if run.id in todo], todo, self.pack_size)

    def look(self) -> dict[str, int]:
        """The runs that are not at their end by now, and the epoch from which each can go on."""
        progress, diverged = self.store.progress(), self.store.diverged()
        resumable = self.store.resumable()
        left = {run.id for run in pending(self.study, progress, diverged)}
        self.tally.see({**progress, **{run: resumable.get(run, 0) for run in left}}, diverged)
        return {run: resumable.get(run, 0) for run in left}

    def refuse_other_terms(self) -> None:
        """Numbers on one dataset and network are comparable: they come from one arithmetic."""
        here = self.terms.device.type, self.terms.precision
        recorded = self.store.terms()
        for dataset, network in dict.fromkeys(
            (run.dataset, run.network) for run in self.study.runs
        ):
            known, _ = self.datasets.get(dataset, (None, None))
            for *had, fingerprint in recorded.get((dataset, network), ()):
                if tuple(had) != here:
                    raise StudyError(
                        f"the store has runs of {network} on {dataset} trained on {had[0]} in "
                        f"{had[1]}, and this is {here[0]} in {here[1]}; go on with --device "
                        f"{had[0]} --precision {had[1]}, or begin another store"
                    )
                if known and fingerprint != known.fingerprint:
                    raise StudyError(
                        f"the store has runs trained on another copy of {dataset} (fingerprint "
                        f"{fingerprint}, here {known.fingerprint}); name the folder of the first "
                        "with --data-dir, or begin another store"
                    )

    def load(
        self, jobs: list[Job], data_dir: Path | None, command: str, download_bar: bool
    ) -> None:
        """Reads the datasets at the start, where a missing one costs no training."""
        for name in dict.fromkeys(job.runs[0].dataset for job in jobs):
            if name not in self.datasets:
                dataset = load_dataset(name, data_dir, progress=download_bar)
                self.datasets[name] = dataset, ""
                self.refuse_other_terms()
                device = self.terms.device
                origin = self.store.begin(
                    {
                        **provenance(device, command),
                        "device_type": device.type,
                        "precision": self.terms.precision,
                        "dataset": name,
                        "fingerprint": dataset.fingerprint,
                    }
                )
                self.datasets[name] = dataset, origin

    def pack_size(self, run: Run) -> int:
        """Chosen once, when nothing is on the device yet, and halved where that was too much."""
        if (key := packable(run)) not in self.sizes:
            shape = DATASETS[run.dataset].shape
            self.sizes[key] = self.pack or default_pack(run, shape, self.terms.device)
        return self.sizes[key]

    # --- training ---

    def do(self, job: Job) -> bool:
        """Trains those runs of a job that nobody else has; whether there were any."""
        if len(job.runs) > self.pack_size(job.runs[0]):
            return True  # halved since it was planned: it is planned anew
        with self.store.claim([run.id for run in job.runs]) as claim:
            todo = self.look()  # others may have trained them since they were planned
            mine = tuple(
                run for run in job.runs if run.id in claim.ids and todo.get(run.id) == job.epoch
            )
            if not mine or self.halt():
                return False
            self.waiting = False
            self.tell(mine, job.epoch)
            try:
                self.train(Job(mine, job.epoch))
            except (RuntimeError, MemoryError) as error:
                if not _is_out_of_memory(error):
                    raise
                self.halve(mine)
        if self.terms.device.type == "cuda":  # its memory goes back before the next pack is built
            gc.collect()
            torch.cuda.empty_cache()
        return True

    def train(self, job: Job) -> None:
        dataset, origin = self.datasets[job.runs[0].dataset]
        names = {run.id: _name(run) for run in job.runs}

        def on_epoch(epoch: int, records: list[Epoch], seconds: float) -> None:
            self.tally.add(records, seconds)
            for record in records:
                if record.diverged:
                    self.on_event(Notice(f"diverged in epoch {epoch}: {names[record.run]}"))
            self.tell(job.runs, epoch)

        savings = train(
            job,
            dataset,
            self.state(job),
            self.terms,
            halt=self.halt,
            expected_s=self.tally.expected_s(job.runs),
            on_epoch=on_epoch,
        )
        for saving in savings:
            self.store.commit(
                saving.runs,
                saving.records,
                provenance=origin,
                state=saving.state,
                epoch=saving.epoch,
            )
            self.saved += len(saving.records)

    def state(self, job: Job) -> dict[str, Tensor] | None:
        if job.epoch == 0:
            if again := sum(run.id in self.store.runs() for run in job.runs):
                self.on_event(Notice(f"{again} runs start again: no weights of theirs were kept"))
            return None
        parts = []
        for run in job.runs:
            found = self.store.checkpoint(run.id)
            assert found is not None  # it was there, and what is claimed is not swept
            parts.append(found[1])
        return {name: torch.stack([part[name] for part in parts]) for name in parts[0]}

    def halve(self, runs: Sequence[Run]) -> None:
        if len(runs) == 1:
            raise StudyError(
                f"not even one run fits into the memory of {self.terms.device}: {_name(runs[0])}; "
                "free some memory, or use another --device"
            )
        size = self.sizes[packable(runs[0])] = len(runs) // 2
        self.on_event(
            Notice(f"out of memory with {len(runs)} runs in a pack: going on with {size}")
        )

    def wait(self) -> None:
        if not self.waiting:
            self.waiting = True
            self.on_event(Notice("all that is left is being trained by other processes: waiting"))
        time.sleep(POLL_S)

    def tell(self, pack: tuple[Run, ...] = (), epoch: int = 0) -> None:
        self.on_event(self.tally.progress(pack, epoch))


def _is_out_of_memory(error: Exception) -> bool:
    # The CPU's allocator, cuBLAS and a graph in the making raise a plain RuntimeError.
    signs = ("out of memory", "not enough memory", "can't allocate memory", "STATUS_ALLOC_FAILED")
    return isinstance(error, torch.OutOfMemoryError | MemoryError) or any(
        sign in str(error) for sign in signs
    )


def _name(run: Run) -> str:
    dropout = ", dropout" if run.dropout else ""
    return (
        f"{run.network} on {run.dataset}{dropout}, {run.activation}, {run.setting}, seed {run.seed}"
    )
