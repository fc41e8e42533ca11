"""Runs a study: trains what is missing, saves it, stops cleanly, shares a store with others."""

import time
from collections import Counter, deque
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import torch
from torch import Tensor

from qneurons.study.data import Dataset, load_dataset
from qneurons.study.errors import StudyError
from qneurons.study.execution.executor import (
    Began,
    Ended,
    Executor,
    Halt,
    Outcome,
    Saving,
    Task,
    Terms,
    Told,
    Trained,
    never,
)
from qneurons.study.execution.local_executor import LocalExecutor
from qneurons.study.execution.plan import Job, pending, plan
from qneurons.study.execution.progress import Event, Notice, Tally
from qneurons.study.packs.pack import Pack
from qneurons.study.runs import Run, Study, packable
from qneurons.study.store import Reservation, Store

POLL_S = 1.0  # while other processes train what is left
LOSSES = 5  # of a pack in a row, without anything saved, are too many


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
    executor: Executor | None = None,
    pack_class: type[Pack] = Pack,
) -> Outcome:
    """Trains what a store lacks of a study; what it has is not done again.

    Several processes may do so on one store: each takes packs that no other has taken, and all
    return when the study is finished.

    Args:
        device: where a pack is trained, on whichever machine the executor chooses.
        pack: how many runs train together; without it as many as fit.
        time_limit: in seconds from now.
        command: recorded beside the results.
        checkpoint_s: how many seconds apart a pack is saved, at least.
        keep_state: keeps the weights of finished runs too, so that more epochs can follow.
        download_bar: whether a download draws a progress bar.
        on_event: hears how far the study is.
        should_stop: asked between steps; when it says yes, everything is saved and training ends.
        executor: trains the packs; without it this process does, one after another.
    """
    terms = Terms(device, precision, study.epochs, keep_state, checkpoint_s, pack_class)
    executor = executor or LocalExecutor(device)
    halt = Halt(should_stop, time_limit)
    session = _Session(study, store, terms, executor, halt, pack, command, on_event, Tally(study))
    while jobs := session.plan():
        session.load(jobs, data_dir, download_bar)
        took = session.train(jobs)
        if halt():
            break
        if not took:
            session.wait()
    if halt.outcome is None or not session.plan():  # stopped, but just at its end
        store.tidy()
        return Outcome.FINISHED
    if halt.outcome is Outcome.TIME_LIMIT and not session.saved:
        on_event(Notice("no epoch was finished in time: give a longer --time-limit, or --pack 1"))
    return halt.outcome


@dataclass
class _Flight:
    """A pack that is being trained, or waits for it."""

    claim: Reservation
    origin: str | None = None  # known once it has begun
    unsaved: int = 0  # epochs of a run


@dataclass
class _Session:
    """What one process knows while it runs a study."""

    study: Study
    store: Store
    terms: Terms
    executor: Executor
    halt: Halt
    pack: int | None
    command: str
    on_event: Callable[[Event], None]
    tally: Tally
    saved: int = 0
    waiting: bool = False
    queue: deque[Job] = field(default_factory=deque)
    flights: dict[Task, _Flight] = field(default_factory=dict)
    losses: Counter[str] = field(default_factory=Counter)  # of a run, since it was last saved
    datasets: dict[str, Dataset] = field(default_factory=dict)
    sizes: dict[tuple[object, ...], int] = field(default_factory=dict)  # of packs, by kind
    left: int = 0  # runs, when it was last planned
    began: str = ""  # when the first pack did

    # --- before training ---

    def plan(self) -> list[Job]:
        self.store.refresh()
        todo = self.look()
        self.left = len(todo)
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
        fingerprints = {name: data.fingerprint for name, data in self.datasets.items()}
        here = self.terms.device.type, self.terms.precision
        self.store.check_conditions(self.study.runs, *here, fingerprints)

    def load(self, jobs: list[Job], data_dir: Path | None, download_bar: bool) -> None:
        """Reads the datasets at the start, where a missing one costs no training."""
        for name in dict.fromkeys(job.runs[0].dataset for job in jobs):
            if name not in self.datasets:
                self.datasets[name] = load_dataset(name, data_dir, progress=download_bar)
                self.refuse_other_terms()

    def pack_size(self, run: Run) -> int:
        """Chosen once, when nothing is on the device yet, and halved where that was too much."""
        if (key := packable(run)) not in self.sizes:
            self.sizes[key] = self.pack or self.executor.pack_size(run, self.left)
        return self.sizes[key]

    # --- training ---

    def train(self, jobs: list[Job]) -> bool:
        """Has those runs of the jobs trained that nobody else has; whether there were any."""
        self.queue, took = deque(jobs), False
        try:
            with closing(self.executor.train(self.take, self.terms, self.halt)) as all_told:
                for task, told in all_told:
                    took = True
                    self.heed(task, told)
            if unsaved := sum(flight.unsaved for flight in self.flights.values()):
                self.on_event(Notice(f"{unsaved} epochs of runs were not saved yet and are lost"))
        finally:
            for flight in self.flights.values():
                flight.claim.release()
            self.flights.clear()
        return took

    def take(self) -> Task | None:
        """The next pack of which nobody else has all the runs."""
        while self.queue and not self.halt():
            job = self.queue.popleft()
            if len(job.runs) > self.pack_size(job.runs[0]):  # halved since it was planned
                self.plan_again(job.runs)
                continue
            claim = self.store.reserve([run.id for run in job.runs])
            todo = self.look()  # others may have trained them since they were planned
            mine = tuple(
                run for run in job.runs if run.id in claim.ids and todo.get(run.id) == job.epoch
            )
            if not mine:
                claim.release()
                continue
            self.waiting = False
            self.tell(mine, job.epoch)
            job = Job(mine, job.epoch)
            dataset = self.datasets[mine[0].dataset]
            task = Task(job, dataset, partial(self.state, job), self.tally.expected_s(mine))
            self.flights[task] = _Flight(claim)
            return task
        return None

    def heed(self, task: Task, told: Told) -> None:
        flight, runs = self.flights[task], task.job.runs
        match told:
            case Began(provenance):
                self.began = self.began or provenance["date"]
                about = {
                    **provenance,
                    "command": self.command,
                    "date": self.began,  # one entry for all that is trained alike
                    "device_type": self.terms.device.type,
                    "precision": self.terms.precision,
                    "dataset": runs[0].dataset,
                    "fingerprint": task.dataset.fingerprint,
                }
                flight.origin = self.store.begin(about)
            case Trained(epoch, records, seconds):
                flight.unsaved += len(records)
                self.tally.add(records, seconds)
                lost = {record.run for record in records if record.diverged}
                for run in runs:
                    if run.id in lost:
                        self.on_event(Notice(f"diverged in epoch {epoch}: {_name(run)}"))
                self.tell(runs, epoch)
            case Saving():
                assert flight.origin is not None
                self.store.commit(
                    told.runs,
                    told.records,
                    provenance=flight.origin,
                    state=told.state,
                    epoch=told.epoch,
                )
                flight.unsaved = 0
                self.saved += len(told.records)
                for run in told.runs:
                    self.losses[run.id] = 0
            case Ended():
                del self.flights[task]
                flight.claim.release()
                if told.out_of_memory:
                    self.halve(runs)
                    self.plan_again(runs)
                elif told.lost:
                    self.count_loss(runs, told.lost, flight.unsaved)
                    self.plan_again(runs)

    def plan_again(self, runs: Sequence[Run]) -> None:
        """From where the store has them, before everything else."""
        todo = self.look()
        left = [run for run in runs if run.id in todo]
        self.queue.extendleft(reversed(plan(left, todo, self.pack_size)))

    def count_loss(self, runs: Sequence[Run], how: str, unsaved: int) -> None:
        self.losses.update(run.id for run in runs)
        if max(self.losses[run.id] for run in runs) == LOSSES:
            raise StudyError(
                f"a pack of {len(runs)} runs was lost {LOSSES} times in a row before anything of "
                f"it was saved ({_name(runs[0])}), the last time because {how}; everything saved "
                "before is kept; see the logs of its worker, or try a smaller --pack"
            )
        self.on_event(
            Notice(
                f"{how}: {len(runs)} runs are trained again from where they were saved last"
                + (f" ({unsaved} epochs are lost)" if unsaved else "")
            )
        )

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
        size = len(runs) // 2
        if size < self.pack_size(runs[0]):  # else one that was trained beside it said so already
            self.sizes[packable(runs[0])] = size
            self.on_event(
                Notice(f"out of memory with {len(runs)} runs in a pack: going on with {size}")
            )

    def wait(self) -> None:
        if not self.waiting:
            self.waiting = True
            self.on_event(Notice("all that is left is being trained by other processes: waiting"))
        time.sleep(POLL_S)

    def tell(self, pack: tuple[Run, ...] = (), epoch: int = 0) -> None:
        at_once = sum(flight.origin is not None for flight in self.flights.values())
        self.on_event(self.tally.progress(pack, epoch, at_once=max(1, at_once)))


def _name(run: Run) -> str:
    dropout = ", dropout" if run.dropout else ""
    return (
        f"{run.network} on {run.dataset}{dropout}, {run.activation}, {run.setting}, seed {run.seed}"
    )
