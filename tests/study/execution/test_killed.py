"""A study that is killed again and again: real packs, processes of their own, SIGKILL."""

import dataclasses
import multiprocessing
import random

import pytest
import torch

from qneurons.study.execution import LocalExecutor, run_study
from qneurons.study.store import Store


def results(folder):
    """All that is recorded but the times."""
    store = Store.open(folder, readonly=True)
    return {
        id: [dataclasses.replace(epoch, seconds=0.0) for epoch in store.epochs(id)]
        for id in store.runs()
    }


def run_for_real(study, folder):
    torch.set_num_threads(1)
    store, executor = Store.open(folder, create=True), LocalExecutor(torch.device("cpu"))
    run_study(study, store, executor, precision="fp32", pack=2, checkpoint_s=0.0)


def test_killed_at_random_moments_it_ends_bit_for_bit_the_same(tmp_path, make_study):
    pytest.importorskip("sklearn")
    study = make_study(num_seeds=3, epochs=3, setting="c0.1", dropout=True)
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(
        ["qneurons.study.execution.session", "sklearn.datasets", "torch._dynamo"]
    )

    def start(folder):
        process = context.Process(target=run_for_real, args=(study, folder))
        process.start()
        return process

    undisturbed = start(tmp_path / "undisturbed")
    killed, journal = tmp_path / "killed", tmp_path / "killed" / "journal.jsonl"
    draw = random.Random(0)
    kills = 0
    while True:
        length = journal.stat().st_size if journal.exists() else 0
        process = start(killed)
        # Soon after something was saved, which is when the next is being trained or saved.
        while process.is_alive() and not (journal.exists() and journal.stat().st_size > length):
            process.join(0.01)
        process.join(draw.uniform(0.0, 0.3) if kills < 5 else 60)
        if process.exitcode is not None:
            break
        process.kill()
        process.join()
        kills += 1
    assert process.exitcode == 0
    assert kills >= 2
    undisturbed.join(60)
    assert undisturbed.exitcode == 0
    assert results(killed) == results(tmp_path / "undisturbed")
    assert {len(epochs) for epochs in results(killed).values()} == {3}
