"""Joins stores, of several machines say, into one."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from qneurons.study.errors import StudyError
from qneurons.study.store.records import RESULTS, same_results
from qneurons.study.store.store import Store


@dataclass(frozen=True)
class Merged:
    """What a merge did: runs in the store now, epochs that it added, and that it had already."""

    runs: int
    epochs_added: int
    epochs_equal: int


def merge(sources: Sequence[Path], into: Path) -> Merged:
    """Joins stores into one, old or new: of each run the longest record, with its checkpoint.

    Records of one run must agree in the epochs that they share, except for seconds and
    provenance; that is checked before any run is written. Merging again changes nothing.
    """
    stores = [Store.open(source, readonly=True) for source in sources]
    _choose(stores)  # stores that do not agree are refused before a new one is made
    target = Store.open(into, create=True)
    ids = list(dict.fromkeys(id for store in stores for id in store._records.rows))
    # From here on no other process trains these runs: what is compared is what is written to.
    with target.claim(ids) as claim:
        if taken := [id for id in ids if id not in claim.ids]:
            raise StudyError(
                f"store {into}: {len(taken)} of these {len(ids)} runs are being trained by another "
                f"process ({taken[0]} for one); nothing was merged, try again when it has ended"
            )
        best, equal = _choose([target, *stores])
        added = 0
        for store in stores:
            groups: dict[str, list[str]] = {}  # by checkpoint, so that packs stay together
            for id in store._records.rows:
                if best[id] is store:
                    file = store._records.saved[id].file if store._has_checkpoint(id) else ""
                    groups.setdefault(file, []).append(id)
            for group in groups.values():
                added += _copy(group, store, target)
    return Merged(len(target._records.rows), added, equal)


def _choose(stores: Sequence[Store]) -> tuple[dict[str, Store], int]:
    """For every run the first store with the longest record; how many epochs were compared."""
    _refuse_other_terms(stores)
    best: dict[str, Store] = {}
    equal = 0
    for store in stores:
        for id, rows in store._records.rows.items():
            if id not in best:
                best[id] = store
                continue
            other = best[id]
            equal += _count_equal(id, other, store)
            reached = len(other._records.rows[id]), other._resumable(id)
            if (len(rows), store._resumable(id)) > reached:
                best[id] = store
    return best, equal


def _refuse_other_terms(stores: Sequence[Store]) -> None:
    seen: dict[tuple[str, str], tuple[tuple[Any, ...], Path]] = {}
    for store in stores:
        for key, found in store.terms().items():
            for terms in found:
                first, folder = seen.setdefault(key, (terms, store.folder))
                if terms != first:
                    said = [", ".join(map(str, each)) for each in (first, terms)]
                    raise StudyError(
                        f"stores {folder} and {store.folder} trained {key[1]} on {key[0]} in other "
                        f"ways ({said[0]}; {said[1]}), so their numbers do not compare; nothing "
                        "was merged, leave one of the two out"
                    )


def _count_equal(id: str, one: Store, other: Store) -> int:
    pairs = list(zip(one._records.rows[id], other._records.rows[id], strict=False))
    for epoch, (a, b) in enumerate(pairs, 1):
        if same_results(a, b):
            continue
        for name, x, y in zip(RESULTS, a, b, strict=False):
            if x != y:
                raise StudyError(
                    f"stores {one.folder} and {other.folder} disagree on run {id} "
                    f"({one._records.runs[id]}), epoch {epoch}: {name} is {x} and {y}; nothing "
                    "was merged, leave one of the two out"
                )
    return len(pairs)


def _copy(ids: Sequence[str], source: Store, target: Store) -> int:
    """Copies what the target lacks of runs that lie in one checkpoint, or in none."""
    there = target._records.rows
    rows = {id: source._records.rows[id][len(there.get(id, ())) :] for id in ids}
    for provenance in {row[-1] for new in rows.values() for row in new}:
        target.begin(source._records.provenance[provenance])
    state, epoch = None, 0
    if source._has_checkpoint(ids[0]):
        saved = [source._records.saved[id] for id in ids]
        places, epoch = [each.index for each in saved], saved[0].epoch
        state = {name: values[places] for name, values in source._load(saved[0]).items()}
    target._save([source._records.runs[id] for id in ids], rows, state, epoch)
    return sum(map(len, rows.values()))
