"""The records of a store as one table."""

import dataclasses
import typing
from typing import TYPE_CHECKING

from qneurons.study.errors import StudyError, install
from qneurons.study.runs import Epoch, Run
from qneurons.study.store.records import COLUMNS, Records

if TYPE_CHECKING:
    import polars

CELL = ("dataset", "network", "dropout", "activation", "protocol")
RUN = (*CELL, "setting", "seed")
PROVENANCE = ("device", "precision", "torch", "qneurons", "commit", "command")


def frame(records: Records) -> "polars.DataFrame":
    """One row for each epoch of each run, sorted by run; null if not finite or not evaluated."""
    try:
        import polars as pl
    except ImportError:
        raise StudyError("tables need polars", install()) from None

    other = [field.name for field in dataclasses.fields(Run) if field.name not in RUN]
    names = (*RUN, *COLUMNS[:-1], "run", *other, *PROVENANCE)
    origins = {
        id: [str(content.get(name, "")) for name in PROVENANCE]
        for id, content in records.provenance.items()
    }
    rows: list[tuple[object, ...]] = []
    for run in sorted(records.runs.values()):
        first, last = ([getattr(run, name) for name in part] for part in (RUN, ("id", *other)))
        for *values, provenance in records.rows[run.id]:
            rows.append((*first, *values, *last, *origins[provenance]))
    kinds = {str: pl.String, bool: pl.Boolean, int: pl.Int64, float: pl.Float64}
    hints = typing.get_type_hints(Run) | typing.get_type_hints(Epoch)
    return pl.DataFrame(
        dict(zip(names, zip(*rows, strict=True), strict=False)),
        schema={name: kinds[hints.get(name, str)] for name in names},
    )
