"""Locks and reservations, between processes and inside one."""

import os
import runpy
import signal
import sys
import time

import pytest

from qneurons.study.errors import StudyError
from qneurons.study.store import locks
from tests.study import pretend


@pytest.fixture(autouse=True)
def no_file_stays_open():
    before = len(os.listdir("/dev/fd"))
    yield
    assert len(os.listdir("/dev/fd")) == before


def wait_for(path):
    deadline = time.monotonic() + 30
    while not path.exists():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def test_a_lock_keeps_others_out_until_it_is_free(tmp_path):
    path, order = tmp_path / "lock", tmp_path / "order"
    path.touch()

    def second():
        wait_for(tmp_path / "locked")
        (tmp_path / "trying").touch()
        with locks.locked(path), order.open("a") as file:
            file.write("second ")

    child = pretend.forked(second)  # before the lock, which it would inherit
    with locks.locked(path):
        (tmp_path / "locked").touch()
        wait_for(tmp_path / "trying")
        time.sleep(0.05)
        with order.open("a") as file:
            file.write("first ")
    assert pretend.ended(child) == 0
    assert order.read_text() == "first second "


def test_readers_share_a_lock(tmp_path):
    path = tmp_path / "lock"
    path.touch()
    with locks.locked(path, shared=True), locks.locked(path, shared=True):
        pass


def test_a_file_is_abandoned_when_its_process_is_dead(tmp_path):
    path = tmp_path / "file"
    fd = locks.create_locked(path)
    with locks.abandoned(path) as free:
        assert not free
    os.close(fd)
    with locks.abandoned(path) as free:
        assert free
    path.unlink()
    with locks.abandoned(path) as free:
        assert not free  # there is nothing to sweep


def test_a_reservation_whose_file_cannot_be_deleted_is_released_nevertheless(tmp_path, monkeypatch):
    reservation = locks.reserve(tmp_path, ["a"])
    with monkeypatch.context() as patch:

        def refuse(path, **options):
            raise PermissionError(13, "Permission denied", str(path))

        patch.setattr(locks.Path, "unlink", refuse)
        with pytest.raises(KeyError, match="what went wrong"), reservation:  # it is not hidden
            raise KeyError("what went wrong")
    with locks.reserve(tmp_path, ["a"]) as again:
        assert again.ids == ("a",)


def test_a_file_swept_away_before_it_was_locked_is_made_again(tmp_path, monkeypatch):
    path, flock, calls = tmp_path / "file", locks.fcntl.flock, []

    def swept(fd, operation):
        if not calls:
            path.unlink()
        calls.append(operation)
        flock(fd, operation)

    monkeypatch.setattr(locks.fcntl, "flock", swept)
    os.close(locks.create_locked(path))
    assert path.exists()
    assert len(calls) == 2


def test_reservations_exclude_each_other_inside_one_process_too(tmp_path):
    with locks.reserve(tmp_path, ["a", "b", "b"]) as first:
        assert first.ids == ("a", "b")
        with locks.reserve(tmp_path, ["b", "c"]) as second:
            assert second.ids == ("c",)
        with locks.reserve(tmp_path, ["c", "a"]) as third:
            assert third.ids == ("c",)
        with locks.reserve(tmp_path, ["a"]) as nothing:
            assert nothing.ids == ()
            assert len(list(tmp_path.iterdir())) == 1  # the first's
    with locks.reserve(tmp_path, ["a"]) as again:
        assert again.ids == ("a",)
        again.release()
        again.release()
    assert list(tmp_path.iterdir()) == []


def test_a_living_process_holds_its_reservations_and_a_killed_one_does_not(tmp_path):
    def hold():
        with locks.reserve(tmp_path / "claims", ["a", "b"]):
            (tmp_path / "reserved").touch()
            time.sleep(60)

    child = pretend.forked(hold)
    wait_for(tmp_path / "reserved")
    with locks.reserve(tmp_path / "claims", ["a", "b", "c"]) as reserved:
        assert reserved.ids == ("c",)
    os.kill(child, signal.SIGKILL)
    assert pretend.ended(child) == -signal.SIGKILL
    with locks.reserve(tmp_path / "claims", ["a", "b", "c"]) as reserved:
        assert reserved.ids == ("a", "b", "c")
        assert len(list((tmp_path / "claims").iterdir())) == 1


def test_a_reservation_that_cannot_be_written_leaves_nothing(tmp_path, monkeypatch):
    def full(fd, data):
        raise OSError(28, "full")

    with monkeypatch.context() as patch:
        patch.setattr(os, "write", full)
        with pytest.raises(OSError, match="full"):
            locks.reserve(tmp_path, ["a"])
    assert list(tmp_path.iterdir()) == []


def test_an_unreadable_reservation_of_a_running_process_is_an_error(tmp_path):
    with locks.reserve(tmp_path, ["a"]):
        next(tmp_path.iterdir()).write_bytes(b"[")
        with pytest.raises(StudyError, match="stop that process and delete"):
            locks.reserve(tmp_path, ["a"])


def test_a_system_without_file_locks_is_told_so(monkeypatch):
    monkeypatch.setitem(sys.modules, "fcntl", None)
    with pytest.raises(StudyError, match="Windows Subsystem for Linux"):
        runpy.run_path(locks.__file__)
