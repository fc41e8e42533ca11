"""File locks that end with their process: one writer at a time, and reservations of runs."""

import contextlib
import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from qneurons.study.errors import StudyError
from qneurons.study.files import RANDOM_NAME, make_folder, random_name, write_all

try:
    import fcntl
except ImportError:
    raise StudyError(
        "a store needs the file locks of Linux and macOS, which this system lacks",
        "on Windows use the Windows Subsystem for Linux",
    ) from None


@contextlib.contextmanager
def locked(path: Path, *, shared: bool = False) -> Iterator[int]:
    """Waits for the lock on a file and yields the open file.

    Do not nest: the inner block would wait for ever for the outer one.
    """
    fd = os.open(path, os.O_RDONLY if shared else os.O_RDWR | os.O_APPEND)
    try:
        fcntl.flock(fd, fcntl.LOCK_SH if shared else fcntl.LOCK_EX)
        yield fd
    finally:
        os.close(fd)  # also releases the lock


def create_locked(path: Path) -> int:
    """Makes and locks a file. The lock lasts until the file is closed or its process ends."""
    while True:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o666)
        fcntl.flock(fd, fcntl.LOCK_EX)
        if os.fstat(fd).st_nlink:
            return fd
        os.close(fd)  # another process deleted it before it was locked


@contextlib.contextmanager
def abandoned(path: Path) -> Iterator[bool]:
    """True if no process holds the lock of a file; this one then holds it inside the block."""
    try:
        fd = os.open(path, os.O_RDWR)
    except FileNotFoundError:  # its owner has deleted it
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


@dataclass
class Reservation(contextlib.AbstractContextManager["Reservation"]):
    """Runs that no other process trains until they are released or this process ends."""

    ids: tuple[str, ...]
    _path: Path
    _fd: int | None

    def release(self) -> None:
        if self._fd is not None:
            fd, self._fd = self._fd, None
            with contextlib.suppress(OSError):  # a file that stays is unlocked: it is swept later
                self._path.unlink()
            os.close(fd)

    def __exit__(self, *error: object) -> None:
        self.release()


def reserve(folder: Path, ids: Sequence[str]) -> Reservation:
    """Reserves those of the ids that no running process has reserved.

    A reservation is a file in the folder, locked by its process. The caller makes sure that only
    one process at a time is in this function.
    """
    make_folder(folder)
    taken = sweep(folder)
    free = tuple(dict.fromkeys(id for id in ids if id not in taken))
    path = folder / f"{random_name()}.json"
    if not free:
        return Reservation((), path, None)
    fd = create_locked(path)
    try:
        write_all(fd, json.dumps(free).encode())
    except BaseException:
        path.unlink(missing_ok=True)
        os.close(fd)
        raise
    return Reservation(free, path, fd)


def sweep(folder: Path) -> set[str]:
    """Deletes the reservations of ended processes; returns the ids that are still reserved."""
    reserved: set[str] = set()
    for path in folder.glob(f"{RANDOM_NAME}.json"):
        with abandoned(path) as free:
            if free:
                path.unlink(missing_ok=True)
                continue
        try:
            reserved.update(json.loads(path.read_bytes()))
        except FileNotFoundError:  # released just now
            pass
        except ValueError:
            raise StudyError(
                f"{path} should list the runs that a running process has reserved, but cannot be "
                "read",
                "stop that process and delete the file",
            ) from None
    return reserved
