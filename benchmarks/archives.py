"""Publishes stores, so that others can look at every run, and go on."""

import io
import re
import tarfile

from qneurons.study.store.journal import decode, encode

FOLDERS = re.compile(r"(--(?:store|data-dir)[ =])\S*/")


def without_folders(command):
    """A command; of folders in it only the names remain."""
    return FOLDERS.sub(r"\1", command)


def anonymous(journal):
    """The journal of a store with such commands."""
    written, old_crc, crc = [], 0, 0
    for line in journal.splitlines():
        entry, old_crc = decode(line, old_crc)  # fails if the line is damaged
        if entry["kind"] == "provenance":
            content = entry["content"]
            content["command"] = without_folders(content["command"])
        line, crc = encode(entry, crc)
        written.append(line)
    return b"".join(written)


def pack_stores(path, folders):
    """An archive of stores without the tensors of unfinished runs, by their names in it.

    Equal stores give equal bytes.
    """
    with tarfile.open(path, "w:xz") as archive:
        for name, folder in folders.items():
            # A training may add to the journal meanwhile.
            journal, *_ = (folder / "journal.jsonl").read_bytes().rpartition(b"\n")
            journal = anonymous(journal)
            contents = {
                "store.json": (folder / "store.json").read_bytes(),
                "journal.length": b"%020d\n" % len(journal),
                "journal.jsonl": journal,
            }
            for file, content in contents.items():
                member = tarfile.TarInfo(f"{name}/{file}")
                member.size = len(content)
                archive.addfile(member, io.BytesIO(content))
