"""The store: what it keeps through restarts, concurrent writers, full disks and damage."""

import dataclasses
import errno
import json
import math
import os
import re
import resource
import shutil
from pathlib import Path

import pytest
import torch

from qneurons.study.errors import StudyError
from qneurons.study.store import Store, checkpoints
from qneurons.study.store.journal import Journal
from tests.study import pretend

GOLDEN = Path(__file__).parent / "golden" / "store-1"
RUNS = pretend.runs(3)
IDS = [run.id for run in RUNS]


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    """Syncing matters to power cuts, which are not tested here."""
    monkeypatch.setattr(os, "fsync", lambda fd: None)


def new(folder):
    store = Store.open(folder, create=True)
    return store, store.begin(pretend.ORIGIN)


def save(store, origin, first, last, runs=RUNS, *, keep=True):
    state = pretend.state(runs, last) if keep else None
    epochs = pretend.epochs(runs, first, last)
    store.commit(runs, epochs, provenance=origin, state=state, epoch=last)


def assert_holds(store, last, runs=RUNS, *, older=0):
    """That all runs have their epochs to the last, and the state after it.

    The first ``older`` epochs were recorded before there was a training loss in the limit.
    """
    for run in runs:
        epochs = store.epochs(run.id)
        assert [math.isnan(e.train_loss_limit) for e in epochs] == [
            number <= older for number in range(1, last + 1)
        ]
        wanted = pretend.epochs([run], 1, last)
        filled = [
            dataclasses.replace(e, train_loss_limit=w.train_loss_limit) if e.epoch <= older else e
            for e, w in zip(epochs, wanted, strict=True)
        ]
        assert filled == wanted
        assert store.resumable()[run.id] == last
        epoch, state = store.checkpoint(run.id)
        assert epoch == last
        wanted = pretend.state([run], last)
        assert state.keys() == wanted.keys()
        assert all(torch.equal(state[name], wanted[name][0]) for name in wanted)


def files(folder):
    return sorted(path.name for path in (folder / "checkpoints").iterdir())


# --- what is kept ---------------------------------------------------------------------------------


def test_what_is_committed_is_there_now_and_after_reopening(tmp_path):
    store, origin = new(tmp_path)
    save(store, origin, 1, 1)
    save(store, origin, 2, 4)
    for each in (store, Store.open(tmp_path), Store.open(tmp_path, readonly=True)):
        assert_holds(each, 4)
        assert each.runs() == dict(zip(IDS, RUNS, strict=True))
        assert each.progress() == dict.fromkeys(IDS, 4)
        assert each.origin(IDS[0]) == pretend.ORIGIN
        assert each.diverged() == set()


def test_a_new_store_is_empty(tmp_path):
    store, _ = new(tmp_path)
    assert (store.runs(), store.progress(), store.diverged(), store.resumable()) == (
        {},
        {},
        set(),
        {},
    )
    assert store.epochs(IDS[0]) == []
    assert store.checkpoint(IDS[0]) is None
    assert store.origin(IDS[0]) is None


def test_a_provenance_is_written_once(tmp_path):
    store, origin = new(tmp_path)
    assert store.begin(dict(reversed(pretend.ORIGIN.items()))) == origin
    assert store.begin({**pretend.ORIGIN, "command": "another"}) != origin
    assert len((tmp_path / "journal.jsonl").read_text().splitlines()) == 2


def test_the_origin_is_that_of_the_last_epoch(tmp_path):
    store, origin = new(tmp_path)
    save(store, origin, 1, 1)
    save(store, store.begin({"device": "another"}), 2, 2)
    assert Store.open(tmp_path).origin(IDS[0]) == {"device": "another"}


def test_packs_may_be_divided_and_old_checkpoints_go_when_nobody_needs_them(tmp_path):
    store, origin = new(tmp_path)
    save(store, origin, 1, 1)
    (first,) = files(tmp_path)
    save(store, origin, 2, 2, RUNS[:1])
    assert first in files(tmp_path)
    save(store, origin, 2, 2, RUNS[1:])
    assert len(files(tmp_path)) == 2
    assert first not in files(tmp_path)
    assert_holds(Store.open(tmp_path), 2)
    save(store, origin, 3, 3, keep=False)
    assert files(tmp_path) == []
    assert store.checkpoint(IDS[0]) is None
    assert store.progress() == dict.fromkeys(IDS, 3)


def test_states_of_several_files_are_stacked_in_the_order_asked_for(tmp_path):
    store, origin = new(tmp_path)
    save(store, origin, 1, 2, RUNS[:2])
    save(store, origin, 1, 2, RUNS[2:])
    order = [RUNS[1], RUNS[2], RUNS[0]]
    found, wanted = store.states([run.id for run in order]), pretend.state(order, 2)
    assert found.keys() == wanted.keys()
    for name, values in wanted.items():
        assert torch.equal(found[name], values)
        assert found[name].dtype == values.dtype


def test_a_diverged_run_ends_and_keeps_no_file_alive(tmp_path):
    store, origin = new(tmp_path)
    nan = float("nan")
    lost = pretend.epoch(RUNS[0], 1, train_loss=nan, test_loss=nan, diverged=True)
    epochs = [lost, *pretend.epochs(RUNS[1:], 1, 1)]
    store.commit(RUNS, epochs, provenance=origin, state=pretend.state(RUNS, 1), epoch=1)
    assert store.diverged() == {IDS[0]}
    save(store, origin, 2, 2)  # a runner may carry it along
    store = Store.open(tmp_path)
    assert store.progress() == {IDS[0]: 1, IDS[1]: 2, IDS[2]: 2}
    assert repr(store.epochs(IDS[0])) == repr([lost])
    save(store, origin, 3, 3, RUNS[1:], keep=False)
    assert files(tmp_path) == []


def test_a_state_must_have_all_runs_and_the_epoch_must_fit(tmp_path):
    store, origin = new(tmp_path)
    epochs = pretend.epochs(RUNS, 1, 1)
    state = pretend.state(RUNS[:2], 1)
    with pytest.raises(ValueError, match=r"tensor.* 3 runs"):
        store.commit(RUNS, epochs, provenance=origin, state=state, epoch=1)
    with pytest.raises(ValueError, match=r"at epoch 1.*state at epoch 2"):
        store.commit(RUNS, epochs, provenance=origin, state=None, epoch=2)
    assert store.progress() == {}


def test_the_table(tmp_path):
    pytest.importorskip("polars")
    store, origin = new(tmp_path)
    save(store, origin, 1, 2)
    table = store.frame()
    assert table.height == 6
    assert table["precision"].unique().to_list() == ["fp32"]
    assert table["test_loss"].to_list() == [
        each.test_loss for run in RUNS for each in pretend.epochs([run], 1, 2)
    ]


def golden(folder):
    """Makes the golden store anew: ``python -c 'import test_store as t; t.golden(t.GOLDEN)'``.

    Only for a new format: the one that lies there shows that old stores are still read.
    """
    store, origin = new(folder)
    save(store, origin, 1, 2)
    nan = float("nan")
    other = pretend.runs(1, seed=7)
    lost = pretend.epoch(other[0], 1, train_loss=nan, test_loss=nan, diverged=True)
    again = store.begin({**pretend.ORIGIN, "device": "another device"})
    store.commit(other, [lost], provenance=again, state=None, epoch=1)
    save(store, again, 3, 3)


def test_a_golden_store_of_format_1_is_read_and_goes_on(tmp_path):
    assert_holds(Store.open(GOLDEN, readonly=True), 3, older=3)
    shutil.copytree(GOLDEN, tmp_path, dirs_exist_ok=True)  # git keeps no empty folders
    store = Store.open(tmp_path)
    assert_holds(store, 3, older=3)
    (lost,) = pretend.runs(1, seed=7)
    assert store.diverged() == {lost.id}
    assert store.origin(IDS[0])["device"] == "another device"
    with store.reserve(IDS) as reserved:
        save(store, store.begin(pretend.ORIGIN), 4, 4)
    assert list(reserved.ids) == IDS
    assert_holds(Store.open(tmp_path), 4, older=3)


# --- concurrent writers ---------------------------------------------------------------------------


def test_two_stores_on_one_folder_see_each_others_records(tmp_path):
    one, origin = new(tmp_path)
    two = Store.open(tmp_path)
    save(one, origin, 1, 1, RUNS[:1])
    save(two, origin, 1, 1, RUNS[1:])
    assert two.progress() == dict.fromkeys(IDS, 1)
    assert set(one.progress()) == {IDS[0]}
    one.refresh()
    assert one.progress() == dict.fromkeys(IDS, 1)


def test_a_run_that_another_process_recorded_meanwhile_is_not_overwritten(tmp_path):
    one, origin = new(tmp_path)
    two = Store.open(tmp_path)
    save(one, origin, 1, 2, keep=False)
    with pytest.raises(StudyError, match=rf"another process.* run {IDS[0]}"):
        save(two, origin, 1, 1)
    assert Store.open(tmp_path).progress() == dict.fromkeys(IDS, 2)


def test_reserving_refreshes(tmp_path):
    one, origin = new(tmp_path)
    two = Store.open(tmp_path)
    with one.reserve(IDS[:2]):
        save(one, origin, 1, 1, RUNS[:2])
        with two.reserve(IDS) as reserved:
            assert list(reserved.ids) == IDS[2:]
            assert two.progress() == dict.fromkeys(IDS[:2], 1)


def test_processes_append_at_once_while_others_read(tmp_path):
    new(tmp_path)
    packs = [pretend.runs(3, seed=100 * number) for number in range(3)]

    def work(pack):
        store = Store.open(tmp_path)
        origin = store.begin({**pretend.ORIGIN, "seed": pack[0].seed})
        for epoch in range(1, 16):
            save(store, origin, epoch, epoch, pack)

    children = [pretend.forked(lambda pack=pack: work(pack)) for pack in packs]
    reader = Store.open(tmp_path, readonly=True)
    reached, codes = {}, []
    while len(codes) < len(children):
        ended, status = os.waitpid(children[len(codes)], os.WNOHANG)
        codes += [os.waitstatus_to_exitcode(status)] if ended else []
        reader.refresh()
        before, reached = reached, reader.progress()
        assert all(reached[id] >= epoch for id, epoch in before.items())
        for pack in packs:
            assert len({reached.get(run.id, 0) for run in pack}) == 1  # a commit is seen whole
            for run in pack:
                assert reader.epochs(run.id) == pretend.epochs([run], 1, reached.get(run.id, 0))
    assert codes == [0, 0, 0]
    for pack in packs:
        assert_holds(Store.open(tmp_path), 15, pack)
    assert len(files(tmp_path)) == 3


# --- errors of the file system --------------------------------------------------------------------

CALLS = ("write", "fsync", "replace", "ftruncate", "unlink", "open", "mkdir")


def fail_at(patch, number, failure):
    """Lets that call of the system fail, a write when half is done; returns their count."""
    count = [0]
    for name in CALLS:
        plain = getattr(os, name)

        def call(*arguments, name=name, plain=plain, **options):
            count[0] += 1
            if count[0] == number:
                if name == "write":
                    plain(arguments[0], arguments[1][: len(arguments[1]) // 2])
                failure()
            return plain(*arguments, **options)

        patch.setattr(os, name, call)
    return count


def full():
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_a_disk_that_is_full_at_any_moment_loses_nothing(tmp_path, monkeypatch):
    failed = number = 0
    while True:
        number += 1
        store, origin = new(tmp_path / str(number))
        save(store, origin, 1, 1)
        with monkeypatch.context() as patch:
            count = fail_at(patch, number, full)
            try:
                save(store, origin, 2, 2)
                saved = 2
            except StudyError as error:
                assert "No space left on device; free some space" in str(error)  # noqa: PT017
                saved = 1
                failed += 1
        for each in (Store.open(store.folder), store):
            assert_holds(each, saved)
        save(store, origin, saved + 1, saved + 1)
        assert_holds(Store.open(store.folder), saved + 1)
        assert len(files(store.folder)) == 1
        if count[0] < number:
            break
    assert number > 8
    assert failed > 4


@pytest.mark.parametrize("what", ["journal", "checkpoint"])
def test_a_file_size_limit_loses_nothing(tmp_path, what):
    store, origin = new(tmp_path)
    save(store, origin, 1, 1)
    large = {"weight": torch.zeros(3, 10_000)} if what == "checkpoint" else None
    last = 2 if what == "checkpoint" else 50
    epochs = pretend.epochs(RUNS, 2, last)
    size = max(path.stat().st_size for path in tmp_path.rglob("*") if path.is_file())
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size + 1000, before[1]))
    try:
        with pytest.raises(StudyError, match=r"File too large; free some space"):
            store.commit(RUNS, epochs, provenance=origin, state=large, epoch=last)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert_holds(store, 1)
    assert_holds(Store.open(tmp_path), 1)
    save(store, origin, 2, 2)
    assert_holds(Store.open(tmp_path), 2)


def test_a_store_that_cannot_be_written_can_be_read(guarded):
    with pytest.raises(StudyError, match=r"Permission denied .*; make it writable"):
        Store.open(guarded)
    with pytest.raises(StudyError, match="make it writable"):
        Store.open(guarded, create=True)
    with pytest.raises(StudyError, match="make it writable"):
        Store.open(guarded / "new", create=True)
    store = Store.open(guarded, readonly=True)
    assert_holds(store, 1)
    for write in (
        lambda: store.begin(pretend.ORIGIN),
        lambda: store.reserve(IDS),
        lambda: save(store, next(iter(store.records.provenance)), 2, 2),
    ):
        with pytest.raises(StudyError, match="opened for reading only"):
            write()


def test_a_folder_that_becomes_readonly_loses_nothing(tmp_path, monkeypatch):
    store, origin = new(tmp_path)
    save(store, origin, 1, 1)

    def refuse(*arguments, **options):
        raise OSError(errno.EROFS, os.strerror(errno.EROFS), str(arguments[0]))

    with monkeypatch.context() as patch:
        patch.setattr(os, "open", refuse)
        with pytest.raises(StudyError, match=r"Read-only file system .*; make it writable"):
            save(store, origin, 2, 2)
        with pytest.raises(StudyError, match="make it writable"):
            store.reserve(IDS)
    assert_holds(Store.open(tmp_path), 1)


def test_what_is_no_store_of_this_format_is_refused(tmp_path):
    with pytest.raises(StudyError, match="does not exist"):
        Store.open(tmp_path / "nowhere")
    (tmp_path / "file").touch()
    for create in (False, True):
        with pytest.raises(StudyError, match=r"give the (path of a folder|folder of a store)"):
            Store.open(tmp_path / "file", create=create)
    with pytest.raises(StudyError, match="is not a store"):
        Store.open(tmp_path)
    with pytest.raises(StudyError, match="not empty"):
        Store.open(tmp_path, create=True)
    new(tmp_path / "s")
    (tmp_path / "s" / "journal.jsonl").unlink()
    for readonly in (False, True):
        with pytest.raises(StudyError, match=r"No such file .*journal.jsonl.*restore"):
            Store.open(tmp_path / "s", readonly=readonly)
    header = tmp_path / "s" / "store.json"
    header.write_text(json.dumps({**json.loads(header.read_text()), "version": 2}))
    with pytest.raises(StudyError, match="format 2"):
        Store.open(tmp_path / "s", create=True)


# --- damage ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("epoch", [1, 2, 3])
def test_a_changed_journal_is_an_error_whose_advice_keeps_all_records_before(tmp_path, epoch):
    store, origin = new(tmp_path)
    for number in (1, 2, 3):
        save(store, origin, number, number)
    path = tmp_path / "journal.jsonl"
    path.write_bytes(path.read_bytes().replace(b'"epoch":%d}' % epoch, b'"epoch":9}'))
    with pytest.raises(StudyError, match=rf"journal.jsonl, line {epoch + 1},") as caught:
        Store.open(tmp_path)
    kept = int(re.search(r"keep only the (\d+) lines before it and delete", str(caught.value))[1])
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:kept]))
    (tmp_path / "journal.length").unlink()
    store = Store.open(tmp_path)
    assert store.progress() == (dict.fromkeys(IDS, epoch - 1) if epoch > 1 else {})
    for run in RUNS:
        assert store.epochs(run.id) == pretend.epochs([run], 1, epoch - 1)
    save(store, origin, 1, 4)  # their checkpoints were replaced: they start again
    assert_holds(Store.open(tmp_path), 4)


def test_an_entry_of_another_kind_is_an_error_that_names_the_line(tmp_path):
    store, _ = new(tmp_path)
    journal = Journal(store.folder / "journal.jsonl")
    with journal.locked():
        journal.read()
        journal.append({"kind": "music"})
    with pytest.raises(StudyError, match=r"line 2,.*music"):
        Store.open(tmp_path)


def test_a_damaged_checkpoint_is_an_error_and_its_runs_can_begin_anew(tmp_path):
    store, origin = new(tmp_path)
    others = pretend.runs(2, seed=50)
    save(store, origin, 1, 3, others)
    kept = files(tmp_path)
    save(store, origin, 1, 3)
    (name,) = set(files(tmp_path)) - set(kept)
    path = tmp_path / "checkpoints" / name
    damaged = bytearray(path.read_bytes())
    damaged[len(damaged) // 2] ^= 4
    path.write_bytes(damaged)

    store = Store.open(tmp_path)
    with pytest.raises(StudyError, match=rf"{name} was changed.* delete it"):
        store.checkpoint(IDS[0])
    assert_holds(store, 3, others)
    path.unlink()
    assert store.checkpoint(IDS[0]) is None
    assert store.progress()[IDS[0]] == 3
    assert store.resumable()[IDS[0]] == 0

    save(store, origin, 1, 1)  # as before: nothing recorded is lost
    store = Store.open(tmp_path)
    assert store.progress()[IDS[0]] == 3
    assert store.resumable()[IDS[0]] == 1
    changed = [pretend.epoch(run, 2, test_loss=0.7) for run in RUNS]
    state = pretend.state(RUNS, 2)
    store.commit(RUNS, changed, provenance=origin, state=state, epoch=2)  # another rounding
    store = Store.open(tmp_path)
    assert store.epochs(IDS[0]) == [pretend.epoch(RUNS[0], 1), changed[0]]
    assert_holds(store, 3, others)


def test_a_run_that_was_finished_without_a_checkpoint_can_be_made_longer(tmp_path):
    store, origin = new(tmp_path)
    save(store, origin, 1, 2, keep=False)
    save(store, origin, 1, 1)
    assert store.progress()[IDS[0]] == 2
    save(store, origin, 2, 5)
    assert_holds(Store.open(tmp_path), 5)


def test_a_run_with_a_checkpoint_cannot_begin_anew(tmp_path):
    store, origin = new(tmp_path)
    save(store, origin, 1, 2)
    with pytest.raises(ValueError, match="epoch 1 cannot follow epoch 2"):
        save(store, origin, 1, 1)


def test_a_checkpoint_file_is_verified_once_for_all_its_runs(tmp_path, monkeypatch):
    store, origin = new(tmp_path)
    save(store, origin, 1, 1)
    calls = []
    monkeypatch.setattr(checkpoints, "verify", lambda *arguments: calls.append(arguments))
    for id in IDS:
        store.checkpoint(id)
    assert len(calls) == 1
