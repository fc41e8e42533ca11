"""The store: keeps the results of a study, safe from crashes and concurrent writers."""

from qneurons.study.store.layout import HEADER
from qneurons.study.store.locks import Reservation
from qneurons.study.store.merging import Merged, merge
from qneurons.study.store.store import Store
from qneurons.study.store.tables import CELL, PROVENANCE, RUN

__all__ = ["CELL", "HEADER", "PROVENANCE", "RUN", "Merged", "Reservation", "Store", "merge"]
