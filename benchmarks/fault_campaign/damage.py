"""Damages files of a store. All damage must be detected or have no effect."""

import hashlib
import json
import random
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

from fault_campaign.processes import finish
from fault_campaign.trials import Bench, Fault
from fault_campaign.verdict import results

from qneurons.study.errors import StudyError
from qneurons.study.store import HEADER, Store

SECTOR = 512


def cut_short(data: bytes, place: int, draw: random.Random) -> bytes:
    return data[:place]


def changed(data: bytes, place: int, draw: random.Random) -> bytes:
    return data[:place] + bytes([data[place] ^ draw.randrange(1, 256)]) + data[place + 1 :]


def zeroed(data: bytes, place: int, draw: random.Random) -> bytes:
    """Zeroes a sector, as some file systems do after a power cut."""
    start = place - place % SECTOR
    end = min(len(data), start + SECTOR)
    return data[:start] + bytes(end - start) + data[end:]


KINDS: dict[str, Callable[[bytes, int, random.Random], bytes]] = {
    "cut short": cut_short,
    "a byte changed": changed,
    "a sector zeroed": zeroed,
}


def targets(store: Path) -> dict[str, Path]:
    (checkpoint,) = (store / "checkpoints").glob("*.pt")
    names = ("journal.jsonl", "journal.length", "store.json", "plan.json")
    return {name: store / name for name in names} | {"checkpoint": checkpoint}


def damages(bench: Bench, folder: Path, most: int, draw: random.Random) -> Iterator[Fault]:
    """Damages every position of every file, or ``most`` of a kind, one at a time."""
    store = folder / "damaged"
    shutil.copytree(bench.half, store)
    whole = contents(store)
    for name, path in targets(store).items():
        data = path.read_bytes()
        for kind, damage in KINDS.items():
            places = range(0, len(data), SECTOR if damage is zeroed else 1)
            fault = Fault(f"{name}: {kind}")
            for place in draw.sample(places, min(most, len(places))):
                damaged = damage(data, place, draw)
                if damaged == data:
                    continue
                path.write_bytes(damaged)
                outcome, refused = None, False
                try:
                    if contents(store) != whole:
                        outcome = f"byte {place} went unnoticed"
                except StudyError as error:
                    refused = True
                    if "\n" in str(error) or ";" not in str(error):
                        outcome = f"byte {place} without a remedy: {error}"
                except Exception as error:
                    outcome = f"byte {place}: {error!r}"
                fault.count(outcome, refused=refused)
            path.write_bytes(data)
            yield fault


def contents(folder: Path) -> tuple[object, ...]:
    """Everything that a run of the study reads."""
    store = Store.open(folder)
    states = {}
    for run, epoch in store.resumable().items():
        if epoch and (found := store.checkpoint(run)):
            digest = hashlib.sha256()
            for tensor in found[1].values():
                digest.update(tensor.contiguous().numpy())
            states[run] = found[0], sorted(found[1]), digest.hexdigest()
    return results(store), states, store.diverged(), store.plan()


def mended(bench: Bench, folder: Path, trials: int, draw: random.Random) -> Fault:
    """Runs the command on damaged stores, applies the remedy of its message, and runs it again."""
    fault = Fault("any of these, met by `study run`")
    for number in range(trials):
        store = folder / f"mended-{number}"
        shutil.copytree(bench.half, store)
        files = list(targets(store).values())
        path = files[number % len(files)]
        data = path.read_bytes()
        damage = KINDS[draw.choice(list(KINDS))]
        path.write_bytes(damage(data, draw.randrange(len(data)), draw))
        process = finish(bench.command, store)
        bench.try_out(
            fault, store, process, mend=lambda error, store=store: mend(store, error), keeps=False
        )
    return fault


def mend(store: Path, error: str) -> None:
    """Does what the message says."""
    if not error:
        return
    journal, length = store / "journal.jsonl", store / "journal.length"
    if found := re.search(r"keep only the (\d+) lines before it and delete journal.length", error):
        lines = journal.read_bytes().split(b"\n")[: int(found[1])]
        journal.write_bytes(b"".join(line + b"\n" for line in lines))
        length.unlink()
    elif "delete journal.length" in error or f"{length} should hold" in error:
        length.unlink()
    elif "plan.json" in error:
        (store / "plan.json").unlink()
    elif found := re.search(r"checkpoint (\S+) was changed", error):
        Path(found[1]).unlink()
    elif "store.json" in error or "has format" in error:
        (store / "store.json").write_text(json.dumps(HEADER))
