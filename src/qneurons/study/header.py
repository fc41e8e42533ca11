"""What makes a folder a store, and of which format: the file store.json."""

import json
from pathlib import Path

import qneurons as qn
from qneurons.study import StudyError
from qneurons.study.durable import make_folder, replace
from qneurons.study.journal import Journal

VERSION = 1
HEADER = {"format": "qneurons study store", "version": VERSION}


def create(folder: Path) -> None:
    """Makes an empty store, unless there is one or the remains of one."""
    path, journal = folder / "store.json", Journal(folder / "journal.jsonl")
    if path.exists() or (journal.path.exists() and journal.path.stat().st_size):
        return
    make_folder(folder)
    own = {journal.path.name, journal.length_path.name, "checkpoints", "claims"}
    found = {each.name for each in folder.iterdir() if each.suffix != ".tmp"}
    # Another process may be making the same store.
    if (foreign := sorted(found - own)) and not path.exists():
        raise StudyError(
            f"{folder} is no store and not empty (it holds {foreign[0]!r}); give a new or an empty "
            "folder"
        )
    make_folder(folder / "checkpoints")
    make_folder(folder / "claims")
    journal.create()
    with journal.locked():
        replace(path, json.dumps(HEADER).encode() + b"\n")  # last: this makes it a store


def check(folder: Path) -> None:
    """Raises unless the folder is a store of this version."""
    path = folder / "store.json"
    try:
        text = path.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        if (folder / "journal.jsonl").exists():
            remedy = f"restore it from a copy, or write {json.dumps(HEADER)} into it"
            raise StudyError(f"{path} is missing; {remedy}") from None
        what = "is no store" if folder.exists() else "does not exist"
        raise StudyError(f"{folder} {what}; give the folder of a store") from None
    try:
        found = json.loads(text)
        known, version = found["format"] == HEADER["format"], found["version"]
    except (ValueError, KeyError, TypeError):
        known, version = False, None
    if not known:
        raise StudyError(
            f"{path} is not that of a store ({text[:60]!r}); give the folder of a store, or write "
            f"{json.dumps(HEADER)} into it if it was one"
        )
    if version != VERSION:
        raise StudyError(
            f"store {folder} has the format {version}, and qneurons {qn.__version__} reads the "
            f"format {VERSION}; use the qneurons that wrote it"
        )
