"""The records of a store as one table."""

import dataclasses
import typing
from typing import TYPE_CHECKING, Any

from qneurons.study.errors import StudyError
from qneurons.study.runs import Epoch, Run
from qneurons.study.store.records import Records, Row

if TYPE_CHECKING:
    import polars

CELL = ("dataset", "network", "dropout", "activation", "protocol")
RUN = (*CELL, "setting", "seed")
PROVENANCE = ("device", "precision", "torch", "qneurons", "commit", "command")


def frame(records: Records) -> "polars.DataFrame":
    """One row for each epoch of each run, sorted by run. NaN losses are null."""
    try:
        import polars as pl
    except ImportError:
        raise StudyError("tables need polars: pip install 'qneurons[study]'") from None

    kinds = {str: pl.String, bool: pl.Boolean, int: pl.Int64, float: pl.Float64}

    def schema(record: type) -> dict[str, Any]:
        return {name: kinds[kind] for name, kind in typing.get_type_hints(record).items()}

    ids = sorted(records.rows, key=lambda id: records.runs[id])
    names = ("run", *Row._fields)
    types = {**schema(Epoch), "provenance": pl.String}
    rows = zip(*((id, *row) for id in ids for row in records.rows[id]), strict=True)
    epochs = pl.DataFrame(
        dict(zip(names, rows, strict=False)), schema={name: types[name] for name in names}
    )
    runs = pl.DataFrame(
        [
            {"run": run.id, "protocol": run.protocol, **dataclasses.asdict(run)}
            for run in (records.runs[id] for id in ids)
        ],
        schema={"run": pl.String, "protocol": pl.String, **schema(Run)},
    )
    origins = pl.DataFrame(
        [
            {"provenance": id, **{name: str(content.get(name, "")) for name in PROVENANCE}}
            for id, content in records.provenance.items()
        ],
        schema=dict.fromkeys(("provenance", *PROVENANCE), pl.String),
    )
    other = [name for name in runs.columns if name not in ("run", *RUN)]
    return (
        epochs.join(runs, on="run", how="left", maintain_order="left")
        .join(origins, on="provenance", how="left", maintain_order="left")
        .select(*RUN, *Row._fields[:-1], "run", *other, *PROVENANCE)
    )
