"""Reads the file formats of datasets: NumPy archives, IDX, tar archives; checks checksums."""

import gzip
import hashlib
import math
import tarfile
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from qneurons.study.errors import StudyError

Array = np.ndarray[Any, np.dtype[Any]]

# Bytes of a file, decompressed. The largest file, CIFAR-10 as a NumPy archive, has 176 MiB. A small
# file may decompress to gigabytes.
MOST_BYTES = 2**28


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Turns whatever a damaged file makes its reader raise into an error that names the file."""
    try:
        yield
    except (
        *(OSError, EOFError, ValueError, LookupError, RuntimeError, MemoryError, OverflowError),
        *(zlib.error, zipfile.BadZipFile, tarfile.TarError),
    ) as error:
        raise StudyError(
            f"cannot read {path}: {one_line(error)}",
            "replace the file, or delete it to download it",
        ) from error


def one_line(error: BaseException) -> str:
    """The message of the innermost error, on one line."""
    while inner := error.__cause__ or error.__context__:
        error = inner
    return " ".join(str(error).split()) or type(error).__name__


def check_sum(path: Path, published: str | None) -> None:
    """Raises ValueError if a file does not have its published checksum, such as ``"md5:..."``."""
    if published is None:
        return
    algorithm, _, expected = published.partition(":")
    with path.open("rb") as file:
        actual = hashlib.file_digest(file, algorithm).hexdigest()
    if actual != expected:
        raise ValueError(f"its {algorithm} is {actual}, expected the published {expected}")


def _check_size(num_bytes: int) -> None:
    if num_bytes > MOST_BYTES:
        raise ValueError(f"it holds more than {MOST_BYTES:,} bytes, which no dataset here has")


def read_npz(path: Path, names: Sequence[str]) -> list[Array]:
    """The named arrays of a NumPy archive. Pickles are refused."""
    with reading(path), path.open("rb") as file:
        if file.read(2) != b"PK":  # NumPy would read it as a pickle
            raise ValueError("it is not a NumPy archive")
        file.seek(0)
        with zipfile.ZipFile(file) as members:
            _check_size(sum(member.file_size for member in members.infolist()))
        with np.load(file, allow_pickle=False) as archive:
            if not set(names) <= set(archive):
                holds = ", ".join(archive) or "nothing"
                raise ValueError(f"it holds {holds}, expected {', '.join(names)}")
            arrays = {name: archive[name] for name in names}
            for name, array in arrays.items():
                if not isinstance(array, np.ndarray):  # NumPy returns other members as bytes
                    raise ValueError(f"{name} in it is not an array")
            return list(arrays.values())


def read_idx(path: Path, published: str | None = None) -> Array:
    """The array of an IDX file of unsigned bytes, plain or ``.gz``."""
    with reading(path):
        check_sum(path, published)
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
            raw = file.read(MOST_BYTES + 1)
        _check_size(len(raw))
        if raw[:3] != b"\0\0\x08":  # 8: unsigned bytes
            raise ValueError(f"it begins with {raw[:4].hex(' ')}, expected 00 00 08, IDX of bytes")
        shape = [int(size) for size in np.frombuffer(raw, ">u4", raw[3], offset=4)]
        header = 4 + 4 * len(shape)
        if len(raw) != header + math.prod(shape):
            raise ValueError(f"it has {len(raw)} bytes, expected {header + math.prod(shape)}")
        return np.frombuffer(raw, np.uint8, offset=header).reshape(shape)


def read_tar(path: Path, names: Sequence[str], published: str | None = None) -> list[bytes]:
    """The contents of the named files of a tar archive."""
    with reading(path):
        check_sum(path, published)
        with tarfile.open(path) as archive:
            files = [archive.extractfile(name) for name in names]
            return [file.read() if file else b"" for file in files]
