"""Several processes on one store."""

import dataclasses
import threading

import pytest

from qneurons.study.execution import Outcome, session
from qneurons.study.store import Store


def test_processes_that_share_a_store_share_the_work(bench, make_study, fake_pack, monkeypatch):
    monkeypatch.setattr(session, "POLL_S", 0.01)
    study = make_study(num_seeds=24, epochs=2)
    Store.open(bench.folder, create=True)
    barrier = threading.Barrier(3, timeout=20)
    pack_class = fake_pack(on_step=lambda pack: pack.epoch or _meet(barrier))
    outcomes = []
    threads = [
        threading.Thread(target=lambda: outcomes.append(bench.run(study, pack_class)))
        for _ in range(3)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert outcomes == [Outcome.FINISHED] * 3
    trained = sorted(seed for seeds, _ in pack_class.built for seed in seeds)
    assert trained == list(range(24))
    assert Store.open(bench.folder).progress() == {run.id: 2 for run in study.runs}


def _meet(barrier):
    """Waits for the others the first time, so that all are at work at once."""
    try:
        barrier.wait()
    except threading.BrokenBarrierError:
        return
    barrier.abort()


def test_what_others_train_is_waited_for(bench, make_study, fake_pack, monkeypatch):
    study = make_study(num_seeds=2, epochs=2)
    other = Store.open(bench.folder, create=True)
    held = other.reserve([run.id for run in study.runs])
    naps = []

    def sleep(seconds):
        naps.append(seconds)
        if len(naps) == 3:
            held.release()  # it was killed, say

    monkeypatch.setattr(session.time, "sleep", sleep)
    assert bench.run(study, fake_pack()) is Outcome.FINISHED
    assert naps == [session.POLL_S] * 3
    (notice,) = bench.notices
    assert "other processes" in notice


def test_nobody_waits_for_what_others_have_finished(bench, make_study, fake_pack, monkeypatch):
    study = make_study(num_seeds=4, epochs=1)
    rest = dataclasses.replace(study, runs=study.runs[2:])
    others = []

    def on_step(pack):  # while the first pack is trained, another process trains the second
        if not others:
            others.append(bench.at(bench.folder))
            assert others[0].run(rest, fake_pack(), pack=2) is Outcome.FINISHED

    monkeypatch.setattr(session.time, "sleep", lambda seconds: pytest.fail("it waits"))
    assert bench.run(study, fake_pack(on_step=on_step), pack=2) is Outcome.FINISHED
    assert bench.notices == []


def test_waiting_ends_when_a_stop_is_asked_for(bench, make_study, fake_pack, monkeypatch):
    study = make_study(num_seeds=2)
    other = Store.open(bench.folder, create=True)
    monkeypatch.setattr(session.time, "sleep", lambda seconds: None)
    with other.reserve([run.id for run in study.runs]):
        assert bench.run(study, fake_pack(), stop_after=9) is Outcome.INTERRUPTED
