"""Which folders are stores, which become one, and which are refused."""

import json
import re

import pytest

from qneurons.study.errors import StudyError
from qneurons.study.store import layout


def content(folder):
    return sorted(path.name for path in folder.iterdir())


def test_a_new_store(tmp_path):
    folder = tmp_path / "in" / "a" / "new" / "place"
    layout.create(folder)
    layout.check(folder)
    assert content(folder) == [
        "checkpoints",
        "claims",
        "journal.jsonl",
        "journal.length",
        "store.json",
    ]


def test_an_old_store_is_left_as_it_is(tmp_path):
    layout.create(tmp_path)
    (tmp_path / "journal.jsonl").write_bytes(b"something\n")
    layout.create(tmp_path)
    assert (tmp_path / "journal.jsonl").read_bytes() == b"something\n"


def test_a_creation_that_was_cut_off_is_finished(tmp_path):
    layout.create(tmp_path)
    (tmp_path / "store.json").rename(tmp_path / "store.json.0123456789abcdef.tmp")
    layout.create(tmp_path)
    layout.check(tmp_path)


@pytest.mark.parametrize("name", ["store.json", "journal.length"])
def test_temporary_files_of_another_process_come_and_go(tmp_path, monkeypatch, name):
    gone = tmp_path / f"{name}.0123456789abcdef.tmp"
    monkeypatch.setattr(type(tmp_path), "iterdir", lambda self: iter([gone]))
    layout.create(tmp_path)
    layout.check(tmp_path)


@pytest.mark.parametrize(
    "name",
    [
        "thesis.tex",
        "claims/store.json.0123456789abcdef.tmp",
        "notes.tmp",
        "checkpoints/best-model.pt",
        "checkpoints/0123456789abcdef.pt",
        "claims/insurance.json",
        "checkpoints",  # a file
    ],
)
def test_a_folder_with_other_things_does_not_become_a_store(tmp_path, name):
    file = tmp_path / name
    file.parent.mkdir(exist_ok=True)
    file.write_text("precious")
    with pytest.raises(StudyError, match=f"not a store.*holds {name}.*empty folder"):
        layout.create(tmp_path)
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == [file]
    assert file.read_text() == "precious"


def test_at_most_three_names_are_listed(tmp_path):
    for name in "abcde":
        (tmp_path / name).touch()
    with pytest.raises(StudyError, match=r"holds a, b, c and 2 more"):
        layout.create(tmp_path)


def test_what_is_no_store_is_refused(tmp_path):
    with pytest.raises(StudyError, match=r"nowhere does not exist; give the folder"):
        layout.check(tmp_path / "nowhere")
    with pytest.raises(StudyError, match="is not a store; give the folder"):
        layout.check(tmp_path)
    (tmp_path / "file").touch()
    with pytest.raises(StudyError, match="file is not a store"):
        layout.check(tmp_path / "file")


def test_a_store_without_its_header_is_not_taken_for_new(tmp_path):
    layout.create(tmp_path)
    (tmp_path / "journal.jsonl").write_bytes(b"something\n")
    (tmp_path / "store.json").unlink()
    layout.create(tmp_path)
    with pytest.raises(StudyError, match=r"store.json is missing.* write"):
        layout.check(tmp_path)


@pytest.mark.parametrize("version", [0, 2, "1"])
def test_another_version_is_refused(tmp_path, version):
    layout.create(tmp_path)
    (tmp_path / "store.json").write_text(json.dumps({**layout.HEADER, "version": version}))
    with pytest.raises(StudyError, match=rf"format {version}.* reads format 1; use"):
        layout.check(tmp_path)


@pytest.mark.parametrize(
    "text", [b"", b"{", b"[]", b"{}", b'{"format": "x", "version": 1}', b"\xff"]
)
def test_a_damaged_header_is_refused(tmp_path, text):
    layout.create(tmp_path)
    (tmp_path / "store.json").write_bytes(text)
    with pytest.raises(StudyError, match=rf"{re.escape(repr(text))}.*store.* write \{{"):
        layout.check(tmp_path)
