"""Runs a study: trains what is missing, saves it, stops cleanly, shares a store with others."""

import time
from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from torch import Tensor

from qneurons.study.data import Dataset, load_dataset
from qneurons.study.errors import StudyError
from qneurons.study.execution.executor import (
    Ended,
    Executor,
    Message,
    Outcome,
    SaveRequest,
    Started,
    Task,
    Trained,
    TrainingOptions,
)
from qneurons.study.execution.jobs import Job, make_jobs, pending
from qneurons.study.execution.progress import EpochCounts, Event, Notice
from qneurons.study.packs import Pack
from qneurons.study.runs import Run, Study, counted, packable
from qneurons.study.store import Reservation, Store

POLL_S = 1.0  # while other processes train the remaining runs
MAX_LOSSES = 5  # of a pack in a row, with nothing saved in between


def run_study(
    study: Study,
    store: Store,
    executor: Executor,
    *,
    precision: str,
    data_dir: Path | None = None,
    pack: int | None = None,
    command: str = "",
    checkpoint_s: float = 30.0,
    keep_state: bool = False,
    download_bar: bool = False,
    on_event: Callable[[Event], None] = lambda event: None,
    pack_class: type[Pack] = Pack,
) -> Outcome:
    """Trains what the store lacks of a study, until the executor's ``halt`` says stop.

    Several processes may do so on one store: each trains packs that no other process has reserved,
    and all return when the study is finished.

    Args:
        data_dir: where datasets are, or are downloaded to.
        pack: how many runs train together; by default as many as fit.
        command: recorded with the results.
        checkpoint_s: a pack is saved this often, in seconds, or less often.
        keep_state: keeps the weights of finished runs too, so that more epochs can follow.
        pack_class: replaces ``Pack`` in tests.
    """
    options = TrainingOptions(precision, study.epochs, keep_state, checkpoint_s, pack_class)
    load = partial(load_dataset, data_dir=data_dir, progress=download_bar)
    session = _Session(study, store, executor, options, load, pack, command, on_event)
    halt = executor.halt
    try:
        while session.submitted or not halt():
            is_idle = not (session.submitted or session.queue)
            if is_idle and not session.fill_queue():
                break
            while executor.has_room and (task := session.next_task()):
                executor.submit(task)
            if session.submitted:
                for task, message in executor.poll():
                    session.handle(task, message)
            elif is_idle and not halt():  # other processes have reserved all that is left
                session.wait()
    finally:
        for submission in session.submitted.values():
            submission.reservation.release()
        executor.cancel(session.submitted)
    if session.num_lost:
        session.notify(f"{counted(session.num_lost, 'epoch')} lost: not saved in time")
    if halt.outcome is None or not session.fill_queue():  # it may have been stopped just at its end
        store.tidy()
        return Outcome.FINISHED
    if halt.outcome is Outcome.TIME_LIMIT and not session.any_saved:
        session.notify("no epoch was finished in time: give a longer --time-limit, or --pack 1")
    return halt.outcome


@dataclass
class _Submission:
    """What the session keeps for a submitted task."""

    reservation: Reservation
    provenance_id: str | None = None  # known once it has started
    num_unsaved: int = 0  # epochs, summed over runs


@dataclass
class _Session:
    """What this process knows about the study that it runs."""

    study: Study
    store: Store
    executor: Executor
    options: TrainingOptions
    load_dataset: Callable[[str], Dataset]
    pack: int | None
    command: str
    on_event: Callable[[Event], None]
    queue: deque[Job] = field(default_factory=deque)
    submitted: dict[Task, _Submission] = field(default_factory=dict)
    losses: Counter[str] = field(default_factory=Counter)  # of each run, since it was last saved
    datasets: dict[str, Dataset] = field(default_factory=dict)
    sizes: dict[tuple[object, ...], int] = field(default_factory=dict)  # of packs, by kind
    num_pending: int = 0  # runs, when the queue was last filled
    num_lost: int = 0  # epochs that a stop cost, summed over runs
    any_saved: bool = False
    is_waiting: bool = False
    is_plan_recorded: bool = False
    date: str = ""  # when the first pack started

    def __post_init__(self) -> None:
        self.counts = EpochCounts(self.study)

    def fill_queue(self) -> bool:
        """Queues the runs that are left; False if there are none.

        Datasets are loaded before any training, so that a missing one is noticed at once.
        """
        self.store.refresh()
        todo = self.pending()
        runs = [run for run in self.study.runs if run.id in todo]
        self.num_pending = len(runs)
        self.report_progress()
        if runs:
            self.check_conditions()
        for name in dict.fromkeys(run.dataset for run in runs):
            if name not in self.datasets:
                self.datasets[name] = self.load_dataset(name)
                self.check_conditions()
        if not self.is_plan_recorded:
            self.store.add_plan(dict.fromkeys(self.study.runs, self.study.epochs))
            self.is_plan_recorded = True
        self.queue = deque(make_jobs(runs, todo, self.pack_size))
        return bool(runs)

    def pending(self) -> dict[str, int]:
        """The unfinished runs by now, each with the epoch from which it can continue."""
        progress, diverged = self.store.progress(), self.store.diverged()
        resumable = self.store.resumable()
        todo = {run.id: resumable.get(run.id, 0) for run in pending(self.study, progress, diverged)}
        self.counts.update(progress | todo, diverged, self.store.accuracies())
        return todo

    def check_conditions(self) -> None:
        fingerprints = {name: data.fingerprint for name, data in self.datasets.items()}
        here = self.executor.device.type, self.options.precision
        self.store.check_conditions(self.study.runs, *here, fingerprints)

    def pack_size(self, run: Run) -> int:
        """Chosen once, while nothing is on the device, and halved if that was too large."""
        if (kind := packable(run)) not in self.sizes:
            self.sizes[kind] = self.pack or self.executor.pack_size(run, self.num_pending)
        return self.sizes[kind]

    def next_task(self) -> Task | None:
        """The next pack that has runs which no other process has reserved."""
        while self.queue and not self.executor.halt():
            job = self.queue.popleft()
            if len(job.runs) > self.pack_size(job.runs[0]):  # halved since it was planned
                self.plan_again(job.runs)
                continue
            reservation = self.store.reserve([run.id for run in job.runs])
            todo = self.pending()  # others may have trained them since they were planned
            runs = tuple(
                run
                for run in job.runs
                if run.id in reservation.ids and todo.get(run.id) == job.epoch
            )
            if not runs:
                reservation.release()
                continue
            self.is_waiting = False
            self.report_progress(runs, job.epoch)
            job, dataset = Job(runs, job.epoch), self.datasets[runs[0].dataset]
            load_state, expected_s = partial(self.load_state, job), self.counts.expected_s(runs)
            task = Task(job, dataset, self.options, load_state, expected_s)
            self.submitted[task] = _Submission(reservation)
            return task
        return None

    def load_state(self, job: Job) -> dict[str, Tensor] | None:
        if job.epoch == 0:
            if num := sum(run.id in self.store.runs() for run in job.runs):
                self.notify(f"{counted(num, 'run')} from scratch: the weights were not kept")
            return None
        return self.store.states([run.id for run in job.runs])

    def handle(self, task: Task, message: Message) -> None:
        submission, runs = self.submitted[task], task.job.runs
        match message:
            case Started(provenance):
                self.date = self.date or provenance["date"]
                about = {
                    "command": self.command,
                    "date": self.date,  # so that equal provenances are recorded once
                    "device_type": self.executor.device.type,
                    "precision": self.options.precision,
                    "dataset": runs[0].dataset,
                    "fingerprint": task.dataset.fingerprint,
                }
                submission.provenance_id = self.store.begin(provenance | about)
            case Trained(epoch, records, seconds):
                submission.num_unsaved += len(records)
                self.counts.add(records, seconds)
                diverged = {record.run for record in records if record.diverged}
                for run in runs:
                    if run.id in diverged:
                        self.notify(f"diverged in epoch {epoch}: {_name(run)}")
                self.report_progress(runs, epoch)
            case SaveRequest():
                assert submission.provenance_id is not None
                self.store.commit(
                    message.runs,
                    message.records,
                    provenance=submission.provenance_id,
                    state=message.state,
                    epoch=message.epoch,
                )
                submission.num_unsaved = 0
                self.any_saved = True
                for run in message.runs:
                    self.losses[run.id] = 0
            case Ended():
                if message.error is not None:
                    raise message.error
                del self.submitted[task]
                submission.reservation.release()
                if message.out_of_memory:
                    self.halve(runs)
                    self.plan_again(runs)
                elif message.lost:
                    self.count_loss(runs, message.lost, submission.num_unsaved)
                    self.plan_again(runs)
                else:
                    self.num_lost += submission.num_unsaved

    def plan_again(self, runs: Sequence[Run]) -> None:
        """Puts runs back at the front of the queue. They continue from what the store has."""
        todo = self.pending()
        left = [run for run in runs if run.id in todo]
        self.queue.extendleft(reversed(make_jobs(left, todo, self.pack_size)))

    def halve(self, runs: Sequence[Run]) -> None:
        if len(runs) == 1:
            raise StudyError(
                f"not even one run fits into the memory of {self.executor.device}: "
                f"{_name(runs[0])}",
                "free some memory, or use another --device",
            )
        size = len(runs) // 2
        if size < self.pack_size(runs[0]):  # else another pack of this size was out of memory too
            self.sizes[packable(runs[0])] = size
            self.notify(
                f"out of memory with {counted(len(runs), 'run')} in a pack: continuing with {size}"
            )

    def count_loss(self, runs: Sequence[Run], how: str, num_unsaved: int) -> None:
        self.losses.update(run.id for run in runs)
        if max(self.losses[run.id] for run in runs) == MAX_LOSSES:
            raise StudyError(
                f"a pack of {counted(len(runs), 'run')} was lost {MAX_LOSSES} times in a row "
                f"before anything of it was saved ({_name(runs[0])}), the last time because {how}; "
                "everything saved before is kept",
                "see the logs of its worker, or try a smaller --pack",
            )
        lost = f" ({counted(num_unsaved, 'epoch')} lost)" if num_unsaved else ""
        self.notify(f"{how}: {counted(len(runs), 'run')} back at the last checkpoint{lost}")

    def wait(self) -> None:
        if not self.is_waiting:
            self.is_waiting = True
            self.notify("other processes are training all that is left: waiting")
        time.sleep(POLL_S)

    def notify(self, text: str) -> None:
        self.on_event(Notice(text))

    def report_progress(self, pack: tuple[Run, ...] = (), epoch: int = 0) -> None:
        started = sum(s.provenance_id is not None for s in self.submitted.values())
        self.on_event(self.counts.progress(pack, epoch, packs=max(1, started)))


def _name(run: Run) -> str:
    return f"{run.kind}, {run.activation}, {run.setting}, seed {run.seed}"
