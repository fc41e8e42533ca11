"""Packs in this process."""

import torch

from qneurons.study.execution.executor import (
    Began,
    Ended,
    Halt,
    Saving,
    Task,
    Terms,
    Trained,
    never,
)
from qneurons.study.execution.local_executor import LocalExecutor
from qneurons.study.execution.plan import Job

CPU = torch.device("cpu")


def test_packs_are_trained_here_one_after_another(make_study, fake_pack, monkeypatch):
    monkeypatch.setattr("qneurons.provenance.commit", lambda: "0123456")  # git takes its time
    study = make_study(num_seeds=2, epochs=2)
    tasks = [Task(Job((run,), 0), None, lambda: None) for run in study.runs]
    waiting = iter(tasks)
    terms = Terms(CPU, "fp32", 2, pack_class=fake_pack())
    told = list(LocalExecutor(CPU).train(lambda: next(waiting, None), terms, Halt(never, None)))
    kinds = [Began, Trained, Trained, Saving, Ended]
    assert [(task, type(part)) for task, part in told] == [
        (task, kind) for task in tasks for kind in kinds
    ]
    assert told[0][1].provenance["torch"] == torch.__version__
