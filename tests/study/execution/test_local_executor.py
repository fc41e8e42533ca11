"""Packs in this process."""

import pytest
import torch

from qneurons.study.execution import Halt, LocalExecutor, local_executor
from qneurons.study.execution.executor import (
    Ended,
    SaveRequest,
    Started,
    Task,
    Trained,
    TrainingOptions,
)
from qneurons.study.execution.jobs import Job
from qneurons.study.packs.memory import SHARE, bytes_per_run

CPU = torch.device("cpu")


@pytest.fixture
def tasks(make_study, fake_pack, monkeypatch):
    monkeypatch.setattr("qneurons.provenance.commit", lambda: "0123456")  # git takes its time
    study, options = (
        make_study(num_seeds=2, epochs=2),
        TrainingOptions("fp32", 2, pack_class=fake_pack()),
    )
    return [Task(Job((run,), 0), None, options, lambda: None) for run in study.runs]


def test_packs_are_trained_here_one_after_another(tasks):
    executor, seen = LocalExecutor(CPU), []
    for task in tasks:
        assert executor.has_room
        executor.submit(task)
        while not executor.has_room:
            seen += executor.poll()
    kinds = [Started, Trained, Trained, SaveRequest, Ended]
    assert [(task, type(message)) for task, message in seen] == [
        (task, kind) for task in tasks for kind in kinds
    ]
    assert seen[0][1].provenance["torch"] == torch.__version__


def test_a_halt_ends_the_pack_with_everything_saved(tasks):
    asked = []
    executor = LocalExecutor(CPU, Halt(lambda: bool(asked)))
    executor.submit(tasks[0])
    started, trained = executor.poll() + executor.poll()
    asked.append(True)
    (_, saved), ended = executor.poll() + executor.poll()
    assert (started[1].provenance["threads"], trained[1].epoch) == (torch.get_num_threads(), 1)
    assert (saved.epoch, saved.records) == (1, trained[1].records)
    assert ended == (tasks[0], Ended())


def test_a_cancelled_pack_leaves_room(tasks):
    first, second = tasks
    executor = LocalExecutor(CPU)
    executor.cancel([first])
    executor.submit(first)
    executor.poll()
    executor.cancel([second])
    assert not executor.has_room
    executor.cancel([first])
    executor.submit(second)
    assert [task for task, _ in executor.poll()] == [second]


def test_a_pack_is_as_large_as_fits_into_what_is_free(make_study, monkeypatch):
    (run,) = make_study(num_seeds=1).runs
    free = int(3.01 * bytes_per_run(run, (1, 28, 28)) / SHARE)
    monkeypatch.setattr(local_executor, "free_bytes", lambda device: {CPU: free}[device])
    assert LocalExecutor(CPU).pack_size(run, 100) == 3
