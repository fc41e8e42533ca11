"""The journal: lines of JSON with chained checksums, appended by one process at a time."""

import contextlib
import json
import os
import re
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from qneurons.study.errors import StudyError
from qneurons.study.files import replace, write_all
from qneurons.study.store.locks import locked

Entry = dict[str, Any]

_CRC = ',"crc":"{:08x}"}}'
_CRC_LENGTH = len(_CRC.format(0))


def encode(entry: Entry, previous: int) -> tuple[bytes, int]:
    """The line of an entry and its checksum, which continues the checksum of the line before.

    This detects changed lines, and also lines that were removed, doubled or moved.
    """
    body = json.dumps(entry, separators=(",", ":"), allow_nan=False)[:-1].encode()
    crc = zlib.crc32(body, previous)
    return body + _CRC.format(crc).encode() + b"\n", crc


def decode(line: bytes, previous: int) -> tuple[Entry, int] | None:
    """The entry and checksum of a line without its newline; None if the checksum is wrong."""
    body = line[:-_CRC_LENGTH]
    crc = zlib.crc32(body, previous)
    if not body or line[-_CRC_LENGTH:] != _CRC.format(crc).encode():
        return None
    return json.loads(body + b"}"), crc


class Journal:
    """A file of entries, one a line.

    A last line without newline is the rest of a killed append: it is ignored, and cut off by the
    next append. A second file holds the length of the journal. It is written only after the
    journal is synced, so a journal shorter than that was damaged.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.length_path = path.with_suffix(".length")
        self._end = self._lines = self._crc = 0  # of what was read: bytes, lines, checksum
        self._fd: int | None = None  # open while this journal is locked

    def create(self) -> None:
        """Makes an empty journal if there is none."""
        os.close(os.open(self.path, os.O_WRONLY | os.O_CREAT, 0o666))
        with self.locked():
            if not self.length_path.exists():
                replace(self.length_path, b"%020d\n" % 0)

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """No other process appends inside the block. Do not nest."""
        with locked(self.path) as self._fd:
            try:
                yield
            finally:
                self._fd = None

    def read(self) -> list[tuple[int, Entry]]:
        """The entries added since the last call, with their line numbers."""
        try:
            return self._read()
        except StudyError:
            if self._fd is not None:
                raise
        # Read without the lock, the end may mix a cut-off line with the one that replaces it.
        with locked(self.path, shared=True):
            return self._read()

    def _read(self) -> list[tuple[int, Entry]]:
        least = max(self._length(), self._end)  # read first: the journal may be growing
        with self.path.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            file.seek(self._end)
            data = file.read()
        if size < least:
            raise StudyError(
                f"{self.path} was truncated: it has {size} bytes, and had {least}",
                f"restore it from a copy, or delete {self.length_path.name} to keep what is left "
                "(what is missing is then trained again)",
            )
        *lines, tail = data.split(b"\n")
        entries, crc, number = [], self._crc, self._lines
        for number, line in enumerate(lines, self._lines + 1):
            decoded = decode(line, crc)
            if decoded is None:
                raise self._changed(number)
            entry, crc = decoded
            entries.append((number, entry))
        end = self._end + len(data) - len(tail)
        # A line whose newline was overwritten looks cut off. It is damage if the noted length
        # includes the line, or if its checksum is right.
        if end < least or decode(tail[:-1], crc) is not None:
            raise self._changed(number + 1)
        self._end, self._lines, self._crc = end, number, crc
        return entries

    def _changed(self, line: int) -> StudyError:
        return StudyError(
            f"{self.path}, line {line}, was changed after it was written: its checksum is wrong",
            f"restore the file from a copy, or keep only the {line - 1} lines before it and "
            f"delete {self.length_path.name} (what is missing is then trained again)",
        )

    def append(self, entry: Entry) -> None:
        """Writes an entry and waits until it is on the disk. After an error nothing is kept.

        Only while locked, after ``read``.
        """
        assert self._fd is not None
        line, _ = encode(entry, self._crc)
        try:
            if os.fstat(self._fd).st_size > self._end:
                os.ftruncate(self._fd, self._end)
            write_all(self._fd, line)
            os.fsync(self._fd)
        except BaseException:
            with contextlib.suppress(OSError):
                os.ftruncate(self._fd, self._end)
            raise
        self._note_length(self._end + len(line))

    def _length(self) -> int:
        try:
            text = self.length_path.read_bytes()
        except FileNotFoundError:
            return 0
        if not re.fullmatch(rb"\d{20}\n", text):
            raise StudyError(
                f"{self.length_path} should hold the length of the journal in 20 digits, but "
                f"holds {text[:30]!r}",
                "delete it if the journal is complete",
            )
        return int(text)

    def _note_length(self, length: int) -> None:
        text = b"%020d\n" % length
        # Not synced, and errors are ignored: a length that is too small does no harm.
        with contextlib.suppress(OSError):
            try:
                fd = os.open(self.length_path, os.O_WRONLY)
            except FileNotFoundError:
                replace(self.length_path, text)
                return
            try:
                os.write(fd, text)
            finally:
                os.close(fd)
