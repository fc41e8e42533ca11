"""A ledger of one's own: any content, the same safety; not mistaken for a store of runs."""

import pytest

from qneurons.study.errors import StudyError
from qneurons.study.store import COMPARISON_HEADER, Ledger, Store


class Notes:
    def __init__(self):
        self.provenance, self.texts = {}, []

    def apply(self, line, entry):
        if entry["kind"] == "provenance":
            self.provenance[entry["id"]] = entry["content"]
        else:
            self.texts.append(entry["text"])


class Notebook(Ledger):
    header = COMPARISON_HEADER

    def _nothing_recorded(self):
        return Notes()

    def note(self, text):
        with self._writing():
            self._journal.append({"kind": "note", "text": text})
            self.refresh()


def test_what_one_writes_the_other_reads(tmp_path):
    one, other = (Notebook.open(tmp_path / "notes", create=True) for _ in range(2))
    one.note("first")
    other.note("second")
    one.refresh()
    assert one.records.texts == other.records.texts == ["first", "second"]
    assert not (tmp_path / "notes" / "checkpoints").exists()


def test_a_provenance_is_recorded_once(tmp_path):
    book = Notebook.open(tmp_path / "notes", create=True)
    assert book.begin({"device": "cpu"}) == book.begin({"device": "cpu"})
    assert list(book.records.provenance.values()) == [{"device": "cpu"}]


def test_an_id_is_reserved_by_one_at_a_time(tmp_path):
    book = Notebook.open(tmp_path / "notes", create=True)
    with book.reserve(["a"]) as first:
        assert (first.ids, book.reserve(["a", "b"]).ids) == (("a",), ("b",))


def test_an_entry_of_another_version_is_named(tmp_path):
    book = Notebook.open(tmp_path / "notes", create=True)
    with book._writing():
        book._journal.append({"kind": "sketch"})
    with pytest.raises(StudyError, match=r"line 1, is not understood.*another version"):
        Notebook.open(tmp_path / "notes", readonly=True)


def test_a_reader_writes_nothing(tmp_path):
    Notebook.open(tmp_path / "notes", create=True)
    with pytest.raises(StudyError, match="for reading only"):
        Notebook.open(tmp_path / "notes", readonly=True).note("no")


@pytest.mark.parametrize(("made", "opened"), [(Notebook, Store), (Store, Notebook)])
def test_one_kind_is_not_taken_for_another(tmp_path, made, opened):
    made.open(tmp_path / "folder", create=True)
    with pytest.raises(
        StudyError, match=r"is a qneurons \w+ store, and this needs.*another folder"
    ):
        opened.open(tmp_path / "folder", create=True)
