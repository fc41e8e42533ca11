"""Locks that lapse when their process dies: one writer at a time, and claims on runs."""

import contextlib
import json
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from qneurons.study.errors import StudyError
from qneurons.study.files import RANDOM_NAME, make_folder, random_name, write_all

try:
    import fcntl
except ImportError:
    raise StudyError(
        "a store needs the file locks of Linux and macOS, which this system lacks: on Windows use "
        "the Windows Subsystem for Linux"
    ) from None


@contextlib.contextmanager
def locked(path: Path, *, shared: bool = False) -> Iterator[int]:
    """Waits for the lock on a file and yields the open file.

    Two openings exclude each other even in one process: never nest them.
    """
    fd = os.open(path, os.O_RDONLY if shared else os.O_RDWR | os.O_APPEND)
    try:
        fcntl.flock(fd, fcntl.LOCK_SH if shared else fcntl.LOCK_EX)
        yield fd
    finally:
        os.close(fd)  # and the lock is free


def create_locked(path: Path) -> int:
    """A new file that is not ``abandoned`` until it is closed, if only by the process's end."""
    while True:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o666)
        fcntl.flock(fd, fcntl.LOCK_EX)
        if os.fstat(fd).st_nlink:
            return fd
        os.close(fd)  # swept away between its creation and its lock


@contextlib.contextmanager
def abandoned(path: Path) -> Iterator[bool]:
    """Whether no living process holds the lock of a file; if so nobody gets it in the block."""
    try:
        fd = os.open(path, os.O_RDWR)
    except FileNotFoundError:  # its owner was faster
        yield False
        return
    try:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
        else:
            yield True
    finally:
        os.close(fd)


class Claim:
    """Runs that no other process takes as long as this one lives and has not released them."""

    def __init__(self, ids: tuple[str, ...], path: Path, fd: int | None) -> None:
        self.ids = ids
        self._path = path
        self._fd = fd

    def release(self) -> None:
        if self._fd is not None:
            fd, self._fd = self._fd, None
            with contextlib.suppress(OSError):  # what is left has lapsed, and goes with the next
                self._path.unlink()
            os.close(fd)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.release()


def claim(folder: Path, ids: Sequence[str]) -> Claim:
    """Claims those of the ids that no living claim in the folder has.

    One file for each claim, locked by its process. Only one process at a time may be in here.
    """
    make_folder(folder)
    taken = sweep(folder)
    free = tuple(dict.fromkeys(id for id in ids if id not in taken))
    path = folder / f"{random_name()}.json"
    if not free:
        return Claim((), path, None)
    fd = create_locked(path)
    try:
        write_all(fd, json.dumps(free).encode())
    except BaseException:
        path.unlink(missing_ok=True)
        os.close(fd)
        raise
    return Claim(free, path, fd)


def sweep(folder: Path) -> set[str]:
    """Deletes the claims of processes that are no more, and returns what the others have."""
    taken: set[str] = set()
    for path in folder.glob(f"{RANDOM_NAME}.json"):
        with abandoned(path) as lapsed:
            if lapsed:
                path.unlink(missing_ok=True)
            else:
                with contextlib.suppress(FileNotFoundError):  # released just now
                    taken.update(_claimed(path))
    return taken


def _claimed(path: Path) -> list[str]:
    try:
        return json.loads(path.read_bytes())
    except ValueError:
        raise StudyError(
            f"{path} should list the runs that a living process has taken, but cannot be read; "
            "stop that process and delete the file"
        ) from None
