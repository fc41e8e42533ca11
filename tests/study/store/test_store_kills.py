"""A store whose process is killed, at every call of the system and at random moments."""

import json
import os
import random
import signal
import time
from collections import Counter

import pytest

from qneurons.study.store import Store
from tests.study import pretend
from tests.study.store.test_store import IDS, RUNS, assert_holds, fail_at, files, new, save

KILLS = int(os.environ.get("QNEURONS_TEST_KILLS", "40"))


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    """Unlike a power cut, a kill loses nothing that was written and not synced."""
    monkeypatch.setattr(os, "fsync", lambda fd: None)


def test_a_kill_at_any_call_leaves_the_commit_whole_or_undone(tmp_path):
    outcomes = []
    while not outcomes or outcomes[-1] is not None:
        number = len(outcomes) + 1
        folder = tmp_path / str(number)
        save(*new(folder), 1, 1)

        def work(folder=folder, number=number):
            store = Store.open(folder)
            with pytest.MonkeyPatch.context() as patch:
                fail_at(patch, number, pretend.die)
                with store.reserve(IDS):
                    save(store, store.begin(pretend.ORIGIN), 2, 2)

        killed = pretend.ended(pretend.forked(work)) == -signal.SIGKILL
        saved = Store.open(folder, readonly=True).progress()[IDS[0]]
        store = Store.open(folder)
        assert_holds(store, saved)
        outcomes.append(saved if killed else None)
        with store.reserve(IDS) as reserved:
            assert list(reserved.ids) == IDS
            save(store, store.begin(pretend.ORIGIN), saved + 1, saved + 1)
        assert_holds(Store.open(folder), saved + 1)
        assert len(files(folder)) == 1
    before, after = outcomes.count(1), outcomes.count(2)
    assert before > 8
    assert after > 2
    assert outcomes == [1] * before + [2] * after + [None]


def test_a_kill_at_any_call_while_a_store_is_made(tmp_path):
    number, code = 0, -signal.SIGKILL
    while code:
        number += 1
        folder = tmp_path / str(number)

        def work(folder=folder, number=number):
            with pytest.MonkeyPatch.context() as patch:
                fail_at(patch, number, pretend.die)
                save(*new(folder), 1, 1)

        code = pretend.ended(pretend.forked(work))
        assert code in (0, -signal.SIGKILL)
        store, origin = new(folder)
        if not store.progress():
            save(store, origin, 1, 1)
        assert_holds(Store.open(folder), 1)
        assert not list(folder.glob("*.tmp"))
    assert number > 15


def test_kills_at_random_moments_lose_nothing_that_was_reported(tmp_path):
    packs = [RUNS, pretend.runs(2, seed=100)]
    chance = random.Random(5)
    reported = {run.id: 0 for pack in packs for run in pack}
    commit_s = 0.01

    def work(pipe):
        store = Store.open(tmp_path, create=True)
        origin = store.begin(pretend.ORIGIN)
        os.write(pipe, b"began\n")
        with store.reserve(list(reported)) as reserved:
            assert len(reserved.ids) == len(reported)
            for pack in packs:
                if done := store.resumable().get(pack[0].id, 0):
                    assert_holds(store, done, pack)
            while True:
                for pack in packs:
                    done = store.resumable().get(pack[0].id, 0)
                    save(store, origin, done + 1, done + 1, pack)
                    os.write(pipe, f"{pack[0].id} {done + 1}\n".encode())

    for _ in range(KILLS):
        reading, writing = os.pipe()
        child = pretend.forked(lambda pipe=writing: work(pipe))
        os.close(writing)
        with os.fdopen(reading) as lines:
            news, times = [], []
            for _ in range(chance.randrange(6)):
                news.append(lines.readline())
                times.append(time.monotonic())
            if len(times) > 2:
                commit_s = times[-1] - times[-2]
            time.sleep(chance.uniform(0, 1.5 * commit_s))
            os.kill(child, signal.SIGKILL)
            assert pretend.ended(child) == -signal.SIGKILL
            news += list(lines)
        for id, epoch in (line.split() for line in news[1:]):
            (pack,) = [pack for pack in packs if pack[0].id == id]
            reported |= {run.id: int(epoch) for run in pack}
        if not (tmp_path / "store.json").exists():
            continue
        store = Store.open(tmp_path, readonly=True)
        for pack in packs:
            saved = store.progress().get(pack[0].id, 0)
            assert reported[pack[0].id] <= saved <= reported[pack[0].id] + 1
            if saved:
                assert_holds(store, saved, pack)
            reported |= {run.id: saved for run in pack}
    assert min(reported.values()) > KILLS / 4
    store, _ = new(tmp_path)  # and sweeps
    assert len(files(tmp_path)) == 2
    counts = Counter()
    for line in (tmp_path / "journal.jsonl").read_text().splitlines():
        entry = json.loads(line)
        if entry["kind"] == "commit":
            epochs = entry["epochs"]
            places = zip(epochs["run"], epochs["epoch"], strict=True)
            counts.update((entry["runs"][index], epoch) for index, epoch in places)
    assert set(counts.values()) == {1}
    assert sum(counts.values()) == sum(reported.values())
