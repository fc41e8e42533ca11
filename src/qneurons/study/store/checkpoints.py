"""Checkpoint files: the tensors of a pack, written atomically and verified before use."""

import contextlib
import hashlib
import os
from collections.abc import Iterator, Set
from pathlib import Path

import torch
from torch import Tensor

from qneurons.study.errors import StudyError
from qneurons.study.files import RANDOM_NAME, make_folder, random_name, sync_folder, write_all
from qneurons.study.store.locks import abandoned, create_locked


class _Sink:
    """The file that ``torch.save`` writes to. Its C++ part crashes if ``write`` raises, so an
    error is kept until ``finish``."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._sha256 = hashlib.sha256()
        self._error: OSError | None = None

    def write(self, data: bytes | memoryview) -> int:
        if self._error is None:
            try:
                write_all(self._fd, data)
            except OSError as error:
                self._error = error
            self._sha256.update(data)
        return len(data)

    def flush(self) -> None:
        pass

    def finish(self) -> str:
        if self._error is not None:
            raise self._error
        os.fsync(self._fd)
        return self._sha256.hexdigest()


@contextlib.contextmanager
def saving(folder: Path, state: dict[str, Tensor]) -> Iterator[tuple[str, str]]:
    """Writes a file and yields its name and sha256. ``sweep`` spares it inside the block."""
    make_folder(folder)
    path = folder / f"{random_name()}.pt"
    temporary = path.with_suffix(".tmp")
    fd = create_locked(temporary)
    try:
        try:
            sink = _Sink(fd)
            torch.save(state, sink)  # type: ignore[arg-type]
            sha256 = sink.finish()
            os.replace(temporary, path)
            sync_folder(folder)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
        yield path.name, sha256
    finally:
        os.close(fd)


def verify(path: Path, sha256: str) -> None:
    with path.open("rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    if found != sha256:
        raise StudyError(
            f"checkpoint {path} was changed after it was written: its checksum is wrong",
            "restore it from a copy, or delete it (its runs then start again from their "
            "beginning; nothing else is lost)",
        )


def load(path: Path) -> dict[str, Tensor]:
    """The tensors of a verified file, mapped: only what is used is read."""
    return torch.load(path, map_location="cpu", weights_only=True, mmap=True)


def sweep(folder: Path, needed: Set[str]) -> None:
    """Deletes the files of ``saving`` that are not needed and not just being saved."""
    for path in (*folder.glob(f"{RANDOM_NAME}.pt"), *folder.glob(f"{RANDOM_NAME}.tmp")):
        if path.name not in needed:
            # A file that cannot be deleted does no harm: the next sweep tries again.
            with contextlib.suppress(OSError), abandoned(path) as free:
                if free:
                    path.unlink(missing_ok=True)
