"""The store: keeps the results of a study, safe from crashes and concurrent writers."""

from qneurons.study.store.journal import Entry as Entry
from qneurons.study.store.layout import COMPARISON_HEADER as COMPARISON_HEADER, HEADER as HEADER
from qneurons.study.store.ledger import Ledger as Ledger
from qneurons.study.store.locks import Reservation as Reservation
from qneurons.study.store.merging import Merged as Merged, merge as merge
from qneurons.study.store.store import Store as Store
from qneurons.study.store.tables import CELL as CELL, PROVENANCE as PROVENANCE, RUN as RUN
