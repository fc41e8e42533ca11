"""The records as a table."""

import sys

import pytest

from qneurons.study.errors import StudyError
from qneurons.study.store.records import Records, to_row
from qneurons.study.store.tables import frame
from tests.study import pretend

COLUMNS = [
    *("dataset", "network", "dropout", "activation", "protocol", "setting", "seed", "epoch", "lam"),
    *("train_loss", "test_loss", "test_accuracy", "test_loss_limit", "test_accuracy_limit"),
    *("test_loss_mean", "test_accuracy_mean", "diverged", "train_loss_limit", "seconds"),
    "run",
    *("batch_size", "learning_rate", "learning_rate_decay", "phi"),
    *("momentum", "augment", "held_out"),
    *("device", "precision", "torch", "qneurons", "commit", "command"),
]


def records():
    made = Records()
    made.apply(1, {"kind": "provenance", "id": "p", "content": pretend.ORIGIN})
    made.apply(2, {"kind": "provenance", "id": "q", "content": {"device": "another"}})
    one, two = pretend.runs(2)
    nan = float("nan")
    rows = {
        two.id: [to_row(pretend.epoch(two, n), "p") for n in (1, 2)],
        one.id: [to_row(pretend.epoch(one, 1, train_loss=nan, diverged=True), "q")],
    }
    made.apply(3, made.commit_entry([two, one], rows, None))
    return made


def test_one_row_for_each_epoch_of_each_run():
    pytest.importorskip("polars")
    table = frame(records())
    assert table.columns == COLUMNS
    assert table.select("seed", "epoch").rows() == [(0, 1), (1, 1), (1, 2)]
    first, second, _ = table.rows(named=True)
    assert first["train_loss"] is None
    assert first["diverged"] is True
    assert (first["device"], first["precision"]) == ("another", "")
    run = pretend.runs(2)[1]
    wanted = {**run.__dict__, "protocol": run.protocol, **pretend.epoch(run, 1).__dict__}
    wanted |= {name: pretend.ORIGIN[name] for name in COLUMNS[-6:]}
    assert second == wanted


def test_an_empty_table_has_the_same_columns_and_types():
    pytest.importorskip("polars")
    assert frame(Records()).schema == frame(records()).schema


def test_without_polars_the_remedy_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "polars", None)
    with pytest.raises(StudyError, match=r"pip install 'qneurons\[study\]'"):
        frame(records())
