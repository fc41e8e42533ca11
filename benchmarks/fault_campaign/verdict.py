"""What a store holds, compared with the undisturbed study and with what was reported as saved."""

import dataclasses
import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from qneurons.study.store import Store

Results = dict[str, list[str]]  # of every run its epochs, exact to the bit, without the times


def results(store: Store) -> Results:
    return {
        run: [repr(dataclasses.replace(epoch, seconds=0.0)) for epoch in store.epochs(run)]
        for run in store.runs()
    }


@dataclass
class Verdict:
    """Counts that must all be zero."""

    lost: int = 0  # epochs that were reported as saved and are not there
    twice: int = 0  # epochs that were recorded more than once
    different: int = 0  # epochs that are not those of the undisturbed study
    missing: int = 0  # epochs that a finished study lacks
    left_over: int = 0  # files that a finished study does not need

    def __bool__(self) -> bool:
        return any(dataclasses.astuple(self))

    def __add__(self, other: "Verdict") -> "Verdict":
        pairs = zip(dataclasses.astuple(self), dataclasses.astuple(other), strict=True)
        return Verdict(*(one + another for one, another in pairs))


def judge(
    folder: Path,
    undisturbed: Results,
    *,
    reported: Mapping[str, int] | None = None,
    finished: bool = False,
    again: bool = False,
) -> Verdict:
    """``again``: runs may have restarted, so that the journal has epochs twice."""
    verdict = Verdict()
    if not (folder / "store.json").exists():  # killed before it was made
        verdict.lost = sum((reported or {}).values())
        verdict.missing = int(finished)
        return verdict
    found = results(Store.open(folder, readonly=True))
    for run, epoch in (reported or {}).items():
        verdict.lost += max(0, epoch - len(found.get(run, ())))
    for run, epochs in found.items():
        wanted = undisturbed.get(run, [])
        verdict.different += max(0, len(epochs) - len(wanted))
        verdict.different += sum(a != b for a, b in zip(epochs, wanted, strict=False))
    if not again:
        verdict.twice = sum(count - 1 for count in recorded(folder).values())
    if finished:
        verdict.missing = sum(
            max(0, len(epochs) - len(found.get(run, ()))) for run, epochs in undisturbed.items()
        )
        known = {"store.json", "journal.jsonl", "journal.length", "plan.json"}
        files = {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}
        verdict.left_over = len(files - known)
    return verdict


def recorded(folder: Path) -> Counter[tuple[str, int]]:
    """How often every epoch of every run is in the journal."""
    counts: Counter[tuple[str, int]] = Counter()
    for line in (folder / "journal.jsonl").read_bytes().split(b"\n")[:-1]:  # the last is cut off
        entry = json.loads(line)
        if entry["kind"] == "commit":
            columns = entry["epochs"]
            places = zip(columns["run"], columns["epoch"], strict=True)
            counts.update((entry["runs"][place], epoch) for place, epoch in places)
    return counts
