"""Merges stores, for example of several machines, into one."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from qneurons.study.errors import StudyError
from qneurons.study.store.records import COLUMNS, EPOCH, ORIGIN, differing
from qneurons.study.store.store import Store


@dataclass(frozen=True)
class Merged:
    """The runs in the store after a merge, the epochs it added, and those found equal.

    ``left_out`` counts the records of sources that had fewer than ``min_epochs``.
    """

    runs: int
    epochs_added: int
    epochs_equal: int
    left_out: int


def merge(sources: Sequence[Path], into: Path, *, min_epochs: int = 1) -> Merged:
    """Merges stores into a new or existing one: the longest record of each run, with checkpoint.

    In the epochs that they share, the records of a run must agree in what both have evaluated,
    except for seconds and provenance. This is checked before anything is written. Merging again
    changes nothing. Of the sources, records of fewer than ``min_epochs`` are not merged, unless
    the run diverged.
    """
    stores = [Store.open(source, readonly=True) for source in sources]
    candidates = [(store, _long_enough(store, min_epochs)) for store in stores]
    _choose(candidates)  # refuses stores that disagree before a new one is made
    target = Store.open(into, create=True)
    ids = list(dict.fromkeys(id for _, of_store in candidates for id in of_store))
    # From here on no other process trains these runs, so nothing changes after the comparison.
    with target.reserve(ids) as reservation:
        if taken := [id for id in ids if id not in reservation.ids]:
            raise StudyError(
                f"store {into}: {len(taken)} of these {len(ids)} runs are being trained by "
                f"another process (for example {taken[0]})",
                "nothing was merged, try again when it has ended",
            )
        best, equal = _choose([(target, target.runs()), *candidates])
        added = 0
        for store, of_store in candidates:
            resumable = store.resumable()
            groups: dict[str, list[str]] = {}  # by checkpoint file, so that packs stay together
            for id in of_store:
                if best[id] is store:
                    file = store.records.saved[id].file if resumable[id] else ""
                    groups.setdefault(file, []).append(id)
            for group in groups.values():
                added += _copy(group, store, target, resumable[group[0]])
        for store in stores:
            target.add_plan(store.plan())
    left_out = sum(len(store.runs()) - len(of_store) for store, of_store in candidates)
    return Merged(len(target.runs()), added, equal, left_out)


def _long_enough(store: Store, min_epochs: int) -> list[str]:
    """The runs of a store that have so many epochs or have diverged."""
    diverged = store.diverged()
    return [id for id, done in store.progress().items() if done >= min_epochs or id in diverged]


def _choose(candidates: Sequence[tuple[Store, Collection[str]]]) -> tuple[dict[str, Store], int]:
    """For every run the first store with the longest record; how many epochs were compared."""
    _check_conditions([store for store, _ in candidates])
    best: dict[str, Store] = {}
    reached: dict[str, tuple[int, int]] = {}  # recorded and resumable epochs
    equal = 0
    for store, ids in candidates:
        progress, resumable = store.progress(), store.resumable()
        for id in ids:
            if id in best:
                equal += _count_equal(id, best[id], store)
            here = progress[id], resumable[id]
            if id not in best or here > reached[id]:
                best[id], reached[id] = store, here
    return best, equal


def _check_conditions(stores: Sequence[Store]) -> None:
    seen: dict[tuple[str, str], tuple[tuple[Any, ...], Path]] = {}
    for store in stores:
        for key, found in store.conditions().items():
            for conditions in found:
                first, folder = seen.setdefault(key, (conditions, store.folder))
                if conditions != first:
                    one, other = (", ".join(map(str, each)) for each in (first, conditions))
                    raise StudyError(
                        f"stores {folder} and {store.folder} trained {key[1]} on {key[0]} under "
                        f"different conditions ({one} and {other}), so their results are not "
                        "comparable",
                        "nothing was merged, leave one of the two out",
                    )


def _count_equal(id: str, one: Store, other: Store) -> int:
    """How many epochs of a run two stores share; raises if their results differ."""
    pairs = list(zip(one.records.rows[id], other.records.rows[id], strict=False))
    for a, b in pairs:
        if names := differing(a, b):
            x, y = (row[COLUMNS.index(names[0])] for row in (a, b))
            raise StudyError(
                f"stores {one.folder} and {other.folder} disagree on run {id} "
                f"({one.records.runs[id]}), epoch {a[EPOCH]}: {names[0]} is {x} and {y}",
                "nothing was merged, leave one of the two out, or with --min-epochs the records "
                "that broke off",
            )
    return len(pairs)


def _copy(ids: Sequence[str], source: Store, target: Store, epoch: int) -> int:
    """Copies what the target lacks of runs that share the checkpoint after ``epoch``, 0 if none."""
    done = target.progress()
    rows = {id: source.records.rows[id][done.get(id, 0) :] for id in ids}
    for provenance in {row[ORIGIN] for new in rows.values() for row in new}:
        target.begin(source.records.provenance[provenance])
    state = source.states(ids) if epoch else None
    target.append([source.records.runs[id] for id in ids], rows, state, epoch)
    return sum(map(len, rows.values()))
