"""What makes a folder a store, and of which format: the file store.json."""

import json
from pathlib import Path

import qneurons as qn
from qneurons.study.errors import StudyError
from qneurons.study.files import make_folder, replace, temporaries
from qneurons.study.store.journal import Journal

VERSION = 1
FOLDERS = ("checkpoints", "claims")
HEADER = {"format": "qneurons study store", "version": VERSION}


def create(folder: Path) -> None:
    """Makes an empty store, unless there is one or the remains of one."""
    path, journal = folder / "store.json", Journal(folder / "journal.jsonl")
    if path.exists() or (journal.path.exists() and journal.path.stat().st_size):
        return
    make_folder(folder)
    # Another process may be making the same store, or was killed while it did.
    ours = {journal.path, journal.length_path, *temporaries(path)}
    ours |= {*temporaries(journal.length_path)}
    found = {
        inner
        for outer in folder.iterdir()
        for inner in (outer.iterdir() if outer.name in FOLDERS and outer.is_dir() else [outer])
    }
    foreign = sorted(str(path.relative_to(folder)) for path in found - ours)
    if foreign and not path.exists():
        more = f" and {len(foreign) - 3} more" if len(foreign) > 3 else ""
        raise StudyError(
            f"{folder} is not a store and not empty (it holds {', '.join(foreign[:3])}{more}); "
            "nothing in it was changed; give a new or an empty folder"
        )
    for name in FOLDERS:
        make_folder(folder / name)
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
