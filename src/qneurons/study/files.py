"""Durable writes of whole files, and file errors as one line with the remedy."""

import contextlib
import errno
import fnmatch
import glob
import os
import secrets
from collections.abc import Iterator
from pathlib import Path

from qneurons.study.errors import StudyError

_RETRY = "and run the same command again; what was saved before is intact"
_REMEDIES = {
    **dict.fromkeys((errno.ENOSPC, errno.EDQUOT, errno.EFBIG), f"free some space {_RETRY}"),
    **dict.fromkeys(
        (errno.EACCES, errno.EPERM, errno.EROFS), "make it writable, or give another folder"
    ),
    errno.ENOENT: "check the path, or restore the file from a copy",
    **dict.fromkeys((errno.EEXIST, errno.ENOTDIR, errno.EISDIR), "give the path of a folder"),
}
RANDOM_NAME = "[0-9a-f]" * 16  # what random_name() returns, as a pattern for glob


@contextlib.contextmanager
def explained(what: str) -> Iterator[None]:
    """Turns an ``OSError`` of the block, except a broken pipe, into a ``StudyError``."""
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        remedy = _REMEDIES.get(error.errno or 0, f"fix that {_RETRY}")
        where = f" ({error.filename})" if error.filename else ""
        raise StudyError(f"{what}: {error.strerror or error}{where}", remedy) from error


def write_all(fd: int, data: bytes | memoryview) -> None:
    """Writes everything; a single ``os.write`` may write only a part."""
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(fd, rest) :]


def sync_folder(folder: Path) -> None:
    """Syncs the names in a folder. Without that, a power cut can lose a new file's name."""
    fd = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def random_name() -> str:
    return secrets.token_hex(8)


def make_folder(folder: Path) -> None:
    if not folder.is_dir():
        folder.mkdir(parents=True, exist_ok=True)
        sync_folder(folder.parent)


def temporaries(path: Path) -> Iterator[Path]:
    """The temporary files that a killed ``replace`` of this file left beside it."""
    return path.parent.glob(_pattern(path))


def is_temporary(candidate: Path, path: Path) -> bool:
    """True for a temporary file of ``path``, which may be gone by now."""
    is_beside = candidate.parent == path.parent
    return is_beside and fnmatch.fnmatchcase(candidate.name, _pattern(path))


def _pattern(path: Path) -> str:
    return f"{glob.escape(path.name)}.{'[0-9a-f]' * 8}*.tmp"


def replace(path: Path, data: bytes | memoryview) -> None:
    """Writes a file atomically: readers see the old content or the new, never a part."""
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
