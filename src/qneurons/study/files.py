"""Writes that outlive a crash, and file errors said in one line with the remedy."""

import contextlib
import errno
import glob
import os
import secrets
from collections.abc import Iterator
from pathlib import Path

from qneurons.study.errors import StudyError

_INTACT = "and run the same command again; what was saved before is intact"
_REMEDIES = {
    **dict.fromkeys((errno.ENOSPC, errno.EDQUOT, errno.EFBIG), f"free some space {_INTACT}"),
    **dict.fromkeys(
        (errno.EACCES, errno.EPERM, errno.EROFS), "make it writable, or give another folder"
    ),
    errno.ENOENT: "check the path, or restore the file from a copy",
    **dict.fromkeys((errno.EEXIST, errno.ENOTDIR, errno.EISDIR), "give the path of a folder"),
}


@contextlib.contextmanager
def explained(what: str) -> Iterator[None]:
    """Turns an error of the file system inside the block into a ``StudyError``."""
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        remedy = _REMEDIES.get(error.errno or 0, f"mend that {_INTACT}")
        where = f" ({error.filename})" if error.filename else ""
        raise StudyError(f"{what}: {error.strerror or error}{where}; {remedy}") from error


def write_all(fd: int, data: bytes | memoryview) -> None:
    """``os.write`` until everything is written; it may take less at a time."""
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(fd, rest) :]


def sync_folder(folder: Path) -> None:
    """Makes the names in a folder durable: a synced file may else be lost with its new name."""
    fd = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def random_name() -> str:
    """A name for a file that nobody else makes; ``RANDOM_NAME`` is its pattern for ``glob``."""
    return secrets.token_hex(8)


RANDOM_NAME = "[0-9a-f]" * 16


def make_folder(folder: Path) -> None:
    if not folder.is_dir():
        folder.mkdir(parents=True, exist_ok=True)
        sync_folder(folder.parent)


def temporaries(path: Path) -> Iterator[Path]:
    """What a killed ``replace`` of a file left beside it."""
    return path.parent.glob(f"{glob.escape(path.name)}.{'[0-9a-f]' * 8}*.tmp")


def replace(path: Path, data: bytes | memoryview) -> None:
    """Writes a whole file: at every instant there is the old one or the new one, never a part."""
    temporary = path.with_name(f"{path.name}.{random_name()}.tmp")
    fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
    try:
        try:
            write_all(fd, data)
            os.fsync(fd)
        finally:
            os.close(fd)
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    sync_folder(path.parent)
