"""Writes that outlive a crash, and errors with a remedy."""

import errno
import os

import pytest

from qneurons.study import files
from qneurons.study.errors import StudyError


@pytest.mark.parametrize(
    ("number", "remedy"),
    [
        (errno.ENOSPC, "free some space and run the same command again"),
        (errno.EDQUOT, "free some space"),
        (errno.EFBIG, "free some space"),
        (errno.EACCES, "make it writable"),
        (errno.EROFS, "make it writable"),
        (errno.EIO, "fix that and run the same command again"),
        (errno.ENOENT, "check the path"),
        (errno.ENOTDIR, "give the path of a folder"),
    ],
)
def test_an_error_says_what_where_and_the_remedy(number, remedy):
    with pytest.raises(StudyError) as caught, files.explained("store s"):
        raise OSError(number, os.strerror(number), "s/file")
    message = str(caught.value)
    assert message.startswith(f"store s: {os.strerror(number)} (s/file); ")
    assert remedy in message
    assert "\n" not in message


@pytest.mark.parametrize("error", [KeyError("x"), BrokenPipeError()])
def test_other_errors_pass(error):
    with pytest.raises(type(error)), files.explained("store s"):
        raise error


def test_writing_goes_on_where_the_system_took_less(tmp_path, monkeypatch):
    write = os.write
    monkeypatch.setattr(os, "write", lambda fd, data: write(fd, data[:3]))
    files.replace(tmp_path / "file", b"0123456789")
    assert (tmp_path / "file").read_bytes() == b"0123456789"


def test_replacing_syncs_the_file_before_its_name_and_the_folder_after(tmp_path, monkeypatch):
    calls = []
    for name in ("write", "fsync", "replace"):
        plain = getattr(os, name)

        def noted(*arguments, name=name, plain=plain):
            calls.append(name)
            return plain(*arguments)

        monkeypatch.setattr(os, name, noted)
    files.replace(tmp_path / "file", b"new")
    assert calls == ["write", "fsync", "replace", "fsync"]
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_a_failed_replacement_leaves_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "file"
    path.write_bytes(b"old")

    def fail(fd):
        raise OSError(errno.ENOSPC, "full")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OSError, match="full"):
        files.replace(path, b"new")
    assert path.read_bytes() == b"old"


def test_a_new_folder_is_synced_in_its_parent(tmp_path, monkeypatch):
    synced = []
    monkeypatch.setattr(files, "sync_folder", synced.append)
    files.make_folder(tmp_path / "a")
    files.make_folder(tmp_path / "a")
    assert synced == [tmp_path]
