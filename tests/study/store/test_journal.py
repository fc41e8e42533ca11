"""The journal: cut-off and damaged lines, the advice on them, and appends that fail."""

import contextlib
import errno
import json
import os
import re

import pytest

from qneurons.study.errors import StudyError
from qneurons.study.store import journal as room
from qneurons.study.store.journal import Journal, decode, encode

ENTRIES = [{"kind": "test", "number": n, "value": 1 / (n + 3)} for n in range(4)]


def written(folder, entries=ENTRIES):
    journal = Journal(folder / "journal.jsonl")
    journal.create()
    for entry in entries:
        with journal.locked():
            journal.read()
            journal.append(entry)
    return journal


def read(path):
    return [entry for _, entry in Journal(path).read()]


def test_a_line_is_json_that_ends_with_its_checksum():
    line, crc = encode(ENTRIES[0], 7)
    assert line.endswith(b'"}\n')
    assert json.loads(line) == {**ENTRIES[0], "crc": f"{crc:08x}"}
    assert decode(line[:-1], 7) == (ENTRIES[0], crc)
    assert decode(line[:-1], 8) is None


def test_floats_return_bit_for_bit():
    values = [0.1, 1 / 3, 5e-324, 1.7976931348623157e308, -0.0, 2**0.5, 1e16 + 2]
    line, _ = encode({"values": values}, 0)
    decoded = decode(line[:-1], 0)
    assert decoded is not None
    assert [value.hex() for value in decoded[0]["values"]] == [value.hex() for value in values]


def test_numbers_that_json_lacks_are_refused():
    with pytest.raises(ValueError, match="not JSON compliant"):
        encode({"value": float("nan")}, 0)


def test_creating_makes_an_empty_journal_and_leaves_an_old_one(tmp_path):
    journal = written(tmp_path, [])
    assert journal.path.read_bytes() == b""
    assert journal.length_path.read_bytes() == b"0" * 20 + b"\n"
    journal.length_path.unlink()
    assert read(journal.path) == []
    journal = written(tmp_path)
    length = journal.length_path.read_bytes()
    journal.create()
    assert read(journal.path) == ENTRIES
    assert journal.length_path.read_bytes() == length


def test_what_is_appended_is_read_with_line_numbers_once(tmp_path):
    journal = written(tmp_path)
    assert journal.read()[-1:] == [(4, ENTRIES[3])]  # the appended one: not read yet
    assert journal.read() == []
    assert Journal(journal.path).read() == list(enumerate(ENTRIES, 1))


def test_two_journals_on_one_file_see_each_others_entries(tmp_path):
    one = written(tmp_path, [])
    other = Journal(one.path)
    for number in range(6):
        journal = (one, other)[number % 2]
        with journal.locked():
            journal.read()
            journal.append({"number": number})
    assert [entry["number"] for entry in read(one.path)] == list(range(6))


def test_every_cut_of_the_last_line_is_tolerated_while_it_was_not_reported(tmp_path):
    journal = written(tmp_path)
    whole = journal.path.read_bytes()
    start = whole[:-1].rindex(b"\n") + 1
    journal.length_path.write_bytes(b"%020d\n" % start)  # as if killed in the last append
    for end in range(start, len(whole)):
        journal.path.write_bytes(whole[:end])
        assert read(journal.path) == ENTRIES[:3]
        again = Journal(journal.path)
        with again.locked():
            again.read()
            again.append(ENTRIES[3])
        assert journal.path.read_bytes() == whole
        journal.length_path.write_bytes(b"%020d\n" % start)


def test_every_shortening_of_what_was_reported_is_found(tmp_path):
    journal = written(tmp_path)
    whole = journal.path.read_bytes()
    for end in range(len(whole)):
        journal.path.write_bytes(whole[:end])
        with pytest.raises(StudyError, match=rf"truncated.* {end} bytes.* {len(whole)};"):
            read(journal.path)
    journal.length_path.unlink()  # the remedy
    journal.path.write_bytes(whole[:-20])
    assert read(journal.path) == ENTRIES[:3]


def follow_advice(journal):
    """Does literally what the message says; returns the number of the line that it names."""
    with pytest.raises(StudyError, match=r"line \d+") as caught:
        read(journal.path)
    message = str(caught.value)
    kept = int(re.search(r"keep only the (\d+) lines before it", message)[1])
    assert f"delete {journal.length_path.name}" in message
    lines = journal.path.read_bytes().splitlines(keepends=True)
    journal.path.write_bytes(b"".join(lines[:kept]))
    journal.length_path.unlink()
    return int(re.search(r"line (\d+)", message)[1])


@pytest.mark.parametrize("line", range(1, 5))
@pytest.mark.parametrize("noted", [True, False])
def test_the_advice_on_a_changed_line_keeps_exactly_the_entries_before_it(tmp_path, line, noted):
    journal = written(tmp_path)
    start = len(b"".join(journal.path.read_bytes().splitlines(keepends=True)[: line - 1]))
    damaged = bytearray(journal.path.read_bytes())
    damaged[start + 9] ^= 1
    journal.path.write_bytes(damaged)
    if not noted:  # as if killed before the length was written
        journal.length_path.write_bytes(b"%020d\n" % 0)
    assert follow_advice(journal) == line
    assert read(journal.path) == ENTRIES[: line - 1]
    again = Journal(journal.path)
    with again.locked():
        again.read()
        again.append({"after": 1})
    assert read(journal.path) == [*ENTRIES[: line - 1], {"after": 1}]


def test_the_advice_counts_lines_that_were_read_before(tmp_path):
    journal = written(tmp_path, ENTRIES[:2])
    journal.read()
    written(tmp_path, ENTRIES[2:])
    journal.path.write_bytes(journal.path.read_bytes().replace(b'"number":3', b'"number":7'))
    with pytest.raises(StudyError, match=r"line 4,.* only the 3 lines"):
        journal.read()


def test_a_lost_newline_at_the_end_is_found_without_the_length_too(tmp_path):
    journal = written(tmp_path)
    journal.path.write_bytes(journal.path.read_bytes()[:-1] + b"x")
    journal.length_path.write_bytes(b"%020d\n" % 0)
    assert follow_advice(journal) == 4
    assert read(journal.path) == ENTRIES[:3]


@pytest.mark.parametrize("flip", [0x01, 0x20, 0x80, 0xFF])
def test_every_changed_byte_is_found_with_its_line(tmp_path, flip):
    journal = written(tmp_path)
    whole = journal.path.read_bytes()
    for place in range(len(whole)):
        damaged = bytearray(whole)
        damaged[place] ^= flip
        journal.path.write_bytes(damaged)
        line = whole[:place].count(b"\n") + 1
        with pytest.raises(StudyError, match=f"line {line},"):
            read(journal.path)


def test_an_overwritten_end_of_what_was_reported_is_found(tmp_path):
    journal = written(tmp_path)
    whole = journal.path.read_bytes()
    for place in range(len(whole)):
        journal.path.write_bytes(whole[:place] + bytes(len(whole) - place))
        line = whole[:place].count(b"\n") + 1
        with pytest.raises(StudyError, match=f"line {line},"):
            read(journal.path)


def test_lines_left_out_doubled_or_moved_are_found(tmp_path):
    journal = written(tmp_path)
    a, b, c, d = journal.path.read_bytes().splitlines(keepends=True)
    for lines, line in [((a, c, d), 2), ((a, b, b, c, d), 3), ((a, c, b, d), 2), ((b, c, d), 1)]:
        journal.path.write_bytes(b"".join(lines))
        journal.length_path.unlink(missing_ok=True)
        with pytest.raises(StudyError, match=f"line {line},"):
            read(journal.path)


def test_a_changed_length_is_found_or_harmless(tmp_path):
    journal = written(tmp_path)
    right = journal.length_path.read_bytes()
    for place in range(len(right)):
        for flip in (0x01, 0x02, 0x10, 0x80):
            damaged = bytearray(right)
            damaged[place] ^= flip
            journal.length_path.write_bytes(damaged)
            try:
                assert read(journal.path) == ENTRIES
            except StudyError as error:
                assert "delete" in str(error)  # noqa: PT017
    journal.length_path.write_bytes(b"")
    with pytest.raises(StudyError, match="20 digits"):
        read(journal.path)


def test_a_journal_that_shrinks_under_a_reader_is_an_error(tmp_path):
    journal = written(tmp_path)
    journal.read()
    journal.length_path.unlink()
    os.truncate(journal.path, 30)
    with pytest.raises(StudyError, match="truncated"):
        journal.read()


@pytest.mark.parametrize("taken", [0, 1, 30, 10**6])
@pytest.mark.parametrize("call", ["write", "fsync"])
def test_a_failed_append_leaves_nothing(tmp_path, monkeypatch, taken, call):
    journal = written(tmp_path)
    before = journal.path.read_bytes()
    write, room = os.write, taken

    def filling(fd, data):
        nonlocal room
        if room == 0:
            raise OSError(errno.ENOSPC, "full")
        count = write(fd, data[:room])
        room -= count
        return count

    def fail(fd):
        raise OSError(errno.EIO, "broken")

    with monkeypatch.context() as patch, journal.locked():
        patch.setattr(os, "write", filling)
        if call == "fsync" or taken == 10**6:
            patch.setattr(os, "fsync", fail)
        journal.read()
        with pytest.raises(OSError, match=r"full|broken"):
            journal.append({"long": "x" * 100})
    assert journal.path.read_bytes() == before
    with journal.locked():
        journal.read()
        journal.append({"after": 1})
    assert read(journal.path) == [*ENTRIES, {"after": 1}]


def test_a_reader_that_met_half_of_an_append_reads_again_under_the_lock(tmp_path, monkeypatch):
    journal = written(tmp_path)
    whole = journal.path.read_bytes()
    journal.path.write_bytes(whole[:-40] + b"x" * 39 + b"\n")  # half of one line, half of another
    reader, modes = Journal(journal.path), []
    with reader.locked():  # its own lock is over when it reads
        pass

    @contextlib.contextmanager
    def writer_finishes(path, *, shared=False):
        modes.append(shared)
        journal.path.write_bytes(whole)
        yield 0

    monkeypatch.setattr(room, "locked", writer_finishes)
    assert [entry for _, entry in reader.read()] == ENTRIES
    assert modes == [True]  # so that a folder that cannot be written can be read


def test_damage_found_under_the_lock_is_reported_at_once(tmp_path, monkeypatch):
    journal = written(tmp_path)
    journal.path.write_bytes(b"x" + journal.path.read_bytes()[1:])
    again = Journal(journal.path)
    with again.locked():
        monkeypatch.delattr(room, "locked")  # a second lock would wait for the first for ever
        with pytest.raises(StudyError, match="line 1,"):
            again.read()


def test_appending_leaves_no_file_open(tmp_path):
    written(tmp_path)
    before = len(os.listdir("/dev/fd"))
    written(tmp_path)
    assert len(os.listdir("/dev/fd")) == before


def test_a_copy_without_the_length_is_read_and_gets_one(tmp_path):
    written(tmp_path).length_path.unlink()
    copy = Journal(tmp_path / "journal.jsonl")
    with copy.locked():
        copy.read()
        copy.append({"after": 1})
    assert int(copy.length_path.read_text()) == copy.path.stat().st_size
