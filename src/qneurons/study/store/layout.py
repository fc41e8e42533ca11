"""The files of a store: makes the folder of a new one, and checks that of an existing one."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import qneurons as qn
from qneurons.study.errors import StudyError
from qneurons.study.files import is_temporary, make_folder, replace
from qneurons.study.store.journal import Journal

FORMATS = STUDY, COMPARISON = "qneurons study store", "qneurons comparison store"
HEADER = {"format": STUDY, "version": 1}  # the content of HEADER_FILE
COMPARISON_HEADER = {"format": COMPARISON, "version": 1}
HEADER_FILE = "store.json"
JOURNAL = "journal.jsonl"
PLAN = "plan.json"
CHECKPOINTS = "checkpoints"
RESERVATIONS = "claims"  # a name of format 1: older versions of qneurons look for it


def create(
    folder: Path,
    header: Mapping[str, Any] = HEADER,
    inner_folders: Sequence[str] = (CHECKPOINTS, RESERVATIONS),
) -> None:
    """Makes an empty store, unless the folder has a header or a journal with content."""
    path, journal = folder / HEADER_FILE, Journal(folder / JOURNAL)
    if path.exists() or (journal.path.exists() and journal.path.stat().st_size):
        return
    make_folder(folder)
    folders = [folder / name for name in inner_folders]
    found = set(folder.iterdir())
    for inner in folders:
        if inner.is_dir():
            found = (found - {inner}) | set(inner.iterdir())
    # Another process may be making the same store, or was killed while it did. Its temporary files
    # come and go, so they are known by their names.
    foreign = sorted(
        str(file.relative_to(folder))
        for file in found - {journal.path, journal.length_path}
        if not any(is_temporary(file, of) for of in (path, journal.length_path))
    )
    if foreign and not path.exists():
        more = f" and {len(foreign) - 3} more" if len(foreign) > 3 else ""
        raise StudyError(
            f"{folder} is not a store and not empty (it holds {', '.join(foreign[:3])}{more}); "
            "nothing in it was changed",
            "give a new or an empty folder",
        )
    for inner in folders:
        make_folder(inner)
    journal.create()
    with journal.locked():
        replace(path, json.dumps(header).encode() + b"\n")  # last: this makes it a store


def check(folder: Path, header: Mapping[str, Any] = HEADER) -> None:
    """Raises unless the folder is such a store, of this version."""
    path = folder / HEADER_FILE
    try:
        text = path.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        if (folder / JOURNAL).exists():
            remedy = f"restore it from a copy, or write {json.dumps(header)} into it"
            raise StudyError(f"{path} is missing", remedy) from None
        what = "is not a store" if folder.exists() else "does not exist"
        raise StudyError(f"{folder} {what}", "give the folder of a store") from None
    try:
        found = json.loads(text)
        kind, version = found["format"], found["version"]
    except (ValueError, KeyError, TypeError):
        kind, version = None, None
    if kind in FORMATS and kind != header["format"]:
        raise StudyError(
            f"{folder} is a {kind}, and this needs a {header['format']}", "give another folder"
        )
    if kind != header["format"]:
        raise StudyError(
            f"{path} holds {text[:60]!r}, which does not name the format of a store",
            f"give the folder of a store, or write {json.dumps(header)} into the file if this was "
            "one",
        )
    if version != header["version"]:
        raise StudyError(
            f"store {folder} has format {version}, and qneurons {qn.__version__} reads format "
            f"{header['version']}",
            "use the version of qneurons that wrote it",
        )
