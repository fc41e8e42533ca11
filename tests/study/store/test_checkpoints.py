"""Checkpoint files: whole or not at all, verified, swept when nobody needs them."""

import errno
import os
import signal

import pytest
import torch

from qneurons.study.errors import StudyError
from qneurons.study.store import checkpoints
from tests.study import pretend

STATE = pretend.state(pretend.runs(3), 5)


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def save(folder, state=STATE):
    with checkpoints.saving(folder, state) as (name, sha256):
        return name, sha256


def test_tensors_return_as_they_were(tmp_path):
    state = {
        **STATE,
        "half": torch.tensor([[1.5], [-0.0], [float("nan")]], dtype=torch.bfloat16),
        "empty": torch.zeros(3, 0),
    }
    name, sha256 = save(tmp_path / "new", state)
    checkpoints.verify(tmp_path / "new" / name, sha256)
    loaded = checkpoints.load(tmp_path / "new" / name)
    assert loaded.keys() == state.keys()
    for key, values in state.items():
        assert loaded[key].dtype == values.dtype
        assert torch.equal(loaded[key].nan_to_num(7.0), values.nan_to_num(7.0))


def test_every_changed_byte_is_found(tmp_path):
    name, sha256 = save(tmp_path)
    path = tmp_path / name
    whole = path.read_bytes()
    for place in range(0, len(whole), 97):
        damaged = bytearray(whole)
        damaged[place] ^= 1
        path.write_bytes(damaged)
        with pytest.raises(StudyError, match=r"restore it from a copy, or delete it"):
            checkpoints.verify(path, sha256)
    path.write_bytes(whole[:-1])
    with pytest.raises(StudyError, match=name):
        checkpoints.verify(path, sha256)


@pytest.mark.parametrize("room", [0, 100, 1500])
def test_a_full_disk_leaves_no_file(tmp_path, monkeypatch, room):
    write = os.write

    def filling(fd, data):
        nonlocal room
        if room == 0:
            raise OSError(errno.ENOSPC, "full")
        count = write(fd, data[:room])
        room -= count
        return count

    monkeypatch.setattr(os, "write", filling)
    with pytest.raises(OSError, match="full"):
        save(tmp_path)
    assert names(tmp_path) == []


def test_a_file_has_its_name_only_when_it_is_synced(tmp_path, monkeypatch):
    seen = []
    fsync = os.fsync

    def noting(fd):
        seen.append([name.rpartition(".")[2] for name in names(tmp_path)])
        fsync(fd)

    monkeypatch.setattr(os, "fsync", noting)
    save(tmp_path)
    assert seen == [["tmp"], ["pt"]]  # the file, and after its renaming the folder


def test_sweeping_spares_what_is_needed_and_what_is_being_saved(tmp_path):
    needed, _ = save(tmp_path)
    old, _ = save(tmp_path)
    mine = ["best-model.pt", "notes.txt", "scratch.tmp"]
    for name in mine:
        (tmp_path / name).touch()
    with checkpoints.saving(tmp_path, STATE) as (unrecorded, _):
        checkpoints.sweep(tmp_path, {needed})
        assert names(tmp_path) == sorted([needed, unrecorded, *mine])
        assert old not in names(tmp_path)
    checkpoints.sweep(tmp_path, {needed})
    assert names(tmp_path) == sorted([needed, *mine])


def test_what_a_killed_process_left_is_swept(tmp_path, monkeypatch):
    def killed(fd):
        os.kill(os.getpid(), signal.SIGKILL)

    def work():
        os.fsync = killed
        save(tmp_path)

    assert pretend.ended(pretend.forked(work)) == -signal.SIGKILL
    assert [name.rpartition(".")[2] for name in names(tmp_path)] == ["tmp"]
    checkpoints.sweep(tmp_path, set())
    assert names(tmp_path) == []


def test_what_cannot_be_swept_stays(tmp_path, monkeypatch):
    name, _ = save(tmp_path)

    def refuse(path):
        raise PermissionError(errno.EACCES, "no")

    with monkeypatch.context() as patch:
        patch.setattr(os, "unlink", refuse)
        checkpoints.sweep(tmp_path, set())
    assert names(tmp_path) == [name]
