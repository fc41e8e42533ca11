"""What entries say: rows, their order, and a run that is trained anew."""

import copy
import dataclasses
import math

import numpy as np
import pytest

from qneurons.study.store.records import (
    COLUMNS,
    EPOCH,
    ORIGIN,
    RESULTS,
    Records,
    differing,
    to_epoch,
    to_row,
)
from tests.study import pretend

RUNS = pretend.runs(2)
IDS = [run.id for run in RUNS]
FILE = "0123456789abcdef.pt"


def recorded(*spans):
    """Records of both runs over spans of epochs, each an entry."""
    records = Records()
    records.apply(1, {"kind": "provenance", "id": "p", "content": {"device": "d"}})
    for line, (first, last) in enumerate(spans, 2):
        records.apply(line, entry(records, pretend.epochs(RUNS, first, last)))
    return records


def entry(records, epochs, checkpoint=None, provenance="p"):
    rows = {id: [to_row(each, provenance) for each in epochs if each.run == id] for id in IDS}
    return records.commit_entry(RUNS, rows, checkpoint)


def test_an_epoch_survives_its_row():
    record = pretend.epoch(RUNS[0], 7)
    assert to_epoch(RUNS[0].id, to_row(record, "p")) == record


def test_numbers_that_are_not_finite_become_none_and_return_as_nan():
    record = pretend.epoch(RUNS[0], 7, train_loss=math.nan, test_loss=-math.inf, diverged=True)
    row = to_row(record, "p")
    assert [name for name, value in zip(COLUMNS, row, strict=True) if value is None] == [
        *("train_loss", "test_loss")
    ]
    back = to_epoch(RUNS[0].id, row)
    assert math.isnan(back.train_loss)
    assert math.isnan(back.test_loss)
    assert back.diverged is True


def test_rows_hold_plain_numbers():
    row = to_row(pretend.epoch(RUNS[0], 7, lam=np.float32(0.5), diverged=np.bool_(False)), "p")
    assert {type(value) for value in row} == {int, float, bool, str}


def test_seconds_and_provenance_are_no_results():
    assert {*COLUMNS} - {*RESULTS} == {"seconds", "provenance"}
    one = to_row(pretend.epoch(RUNS[0], 7), "p")
    assert differing(one, to_row(pretend.epoch(RUNS[0], 7, seconds=99.0), "q")) == []
    for name in RESULTS:
        place = COLUMNS.index(name)
        assert differing(one, (*one[:place], 5, *one[place + 1 :])) == [name]


def test_entries_add_up():
    records = recorded((1, 2), (3, 3))
    assert records.runs == dict(zip(IDS, RUNS, strict=True))
    assert [row[EPOCH] for row in records.rows[IDS[1]]] == [1, 2, 3]
    assert records.lines == dict.fromkeys(IDS, 3)
    assert records.provenance == {"p": {"device": "d"}}


def test_a_run_is_written_out_once():
    records = Records()
    first = entry(records, pretend.epochs(RUNS, 1, 1))
    assert list(first["new"]) == IDS
    records.apply(1, first)
    assert entry(records, pretend.epochs(RUNS, 2, 2))["new"] == {}


def test_rows_keep_their_own_provenance():
    records = Records()
    rows = {
        IDS[0]: [to_row(pretend.epoch(RUNS[0], n), p) for n, p in enumerate("aba", 1)],
        IDS[1]: [],
    }
    records.apply(1, records.commit_entry(RUNS, rows, None))
    assert [row[ORIGIN] for row in records.rows[IDS[0]]] == ["a", "b", "a"]


@pytest.mark.parametrize("number", [1, 2, 3])
def test_equal_epochs_that_come_again_change_nothing(number):
    records = recorded((1, 3))
    before = copy.deepcopy(records.rows)
    records.apply(9, entry(records, [pretend.epoch(run, number, seconds=5.0) for run in RUNS]))
    assert records.rows == before


def test_an_epoch_that_comes_again_adds_what_was_not_evaluated():
    parts = [{"train_loss": math.nan}, {"test_loss_mean": math.nan, "train_loss_limit": math.nan}]
    for first, second in (parts, parts[::-1]):
        records = Records()
        for changes in (first, second):
            records.apply(1, entry(records, [pretend.epoch(r, 1, **changes) for r in RUNS]))
        assert records.rows == recorded((1, 1)).rows


def test_a_run_that_diverges_when_it_comes_again_differs():
    records = recorded((1, 2))
    lost = pretend.epoch(RUNS[0], 1, train_loss=math.nan, test_loss=math.nan, diverged=True)
    records.apply(9, entry(records, [lost]))
    assert records.diverged() == {IDS[0]}
    assert len(records.rows[IDS[0]]) == 1


def test_an_epoch_that_differs_replaces_it_and_all_after_it():
    records = recorded((1, 4))
    new = pretend.epoch(RUNS[0], 2, test_loss=0.5)
    records.apply(9, entry(records, [new]))
    assert [row[EPOCH] for row in records.rows[IDS[0]]] == [1, 2]
    assert to_epoch(IDS[0], records.rows[IDS[0]][1]) == new
    assert len(records.rows[IDS[1]]) == 4


def test_the_last_entry_says_where_the_state_is():
    records = recorded()
    saved = {"file": FILE, "sha256": "00", "epoch": 1}
    records.apply(2, entry(records, pretend.epochs(RUNS, 1, 1), saved))
    assert [(records.saved[id].file, records.saved[id].index) for id in IDS] == [
        *((FILE, 0), (FILE, 1))
    ]
    records.apply(3, entry(records, pretend.epochs(RUNS, 2, 2)))
    assert records.saved == {}


def spoiled(**changes):
    records = recorded()
    good = entry(records, pretend.epochs(RUNS, 1, 2))
    return records, {**good, **changes}


@pytest.mark.parametrize(
    "changes",
    [
        {"kind": "unknown"},
        {"kind": "provenance", "id": "o", "content": ["no table"]},
        {"runs": []},
        {"runs": ["0" * 16, "1" * 16]},
        {"provenance": []},
        {"epochs": {}},
        {"new": {IDS[0]: {"dataset": "digits"}}},
        {"checkpoint": {"file": FILE}},
        {"checkpoint": {"file": f"../{FILE}", "sha256": "00", "epoch": 1}},
        {"checkpoint": {"file": f"/tmp/{FILE}", "sha256": "00", "epoch": 1}},
    ],
)
def test_what_is_no_entry_is_refused(changes):
    records, bad = spoiled(**changes)
    with pytest.raises((ValueError, KeyError, TypeError, IndexError)):
        records.apply(2, bad)


def test_a_run_under_another_id_is_refused():
    run = pretend.runs(1, seed=50)[0]
    records, bad = spoiled()
    bad["new"]["0" * 16] = dataclasses.asdict(run)
    with pytest.raises(ValueError, match=rf"{'0' * 16} .*{run.id}"):
        records.apply(2, bad)


@pytest.mark.parametrize("column", ["run", "lam", "provenance"])
@pytest.mark.parametrize("change", [list.pop, lambda values: values.append(0)])
def test_columns_of_different_lengths_are_refused(column, change):
    records, bad = spoiled()
    change(bad["epochs"][column])
    with pytest.raises(ValueError, match="zip"):
        records.apply(2, bad)


@pytest.mark.parametrize("number", [-1, 0, 3])
def test_a_gap_is_refused(number):
    records = recorded((1, 1))
    epochs = [dataclasses.replace(pretend.epoch(run, 3), epoch=number) for run in RUNS]
    with pytest.raises(ValueError, match=f"epoch {number} after 1"):
        records.apply(3, entry(records, epochs))


def new_rows(records, epochs, epoch, resumable=None, provenance="p"):
    return records.new_rows(RUNS, epochs, provenance, epoch=epoch, resumable=resumable or {})


def test_new_rows_follow_what_is_there():
    rows = new_rows(recorded((1, 2)), pretend.epochs(RUNS, 3, 4), 4)
    assert [row[EPOCH] for row in rows[IDS[0]]] == [3, 4]


def test_new_rows_may_follow_the_checkpoint_or_begin_anew():
    records = recorded((1, 5))
    assert len(new_rows(records, pretend.epochs(RUNS, 1, 2), 2)[IDS[0]]) == 2
    checkpoint = dict.fromkeys(IDS, 3)
    assert len(new_rows(records, pretend.epochs(RUNS, 4, 4), 4, checkpoint)[IDS[0]]) == 1
    with pytest.raises(ValueError, match="epoch 1 cannot follow epoch 5"):
        new_rows(records, pretend.epochs(RUNS, 1, 2), 2, checkpoint)


def test_epochs_after_a_divergence_are_left_out():
    records = recorded((1, 1))
    lost = [pretend.epoch(RUNS[0], n, diverged=n >= 2) for n in (2, 3)]
    rows = new_rows(records, [*lost, *pretend.epochs(RUNS[1:], 2, 3)], 3)
    assert [row[EPOCH] for row in rows[IDS[0]]] == [2]
    assert [row[EPOCH] for row in rows[IDS[1]]] == [2, 3]
    records.apply(3, records.commit_entry(RUNS, rows, None))
    assert records.diverged() == {IDS[0]}
    assert new_rows(records, pretend.epochs(RUNS, 4, 4), 4)[IDS[0]] == []


@pytest.mark.parametrize(
    ("epochs", "epoch", "message"),
    [
        (pretend.epochs(RUNS, 3, 3), 3, "epoch 3 cannot follow epoch 1"),
        ([pretend.epoch(run, n) for run in RUNS for n in (2, 4)], 3, "not consecutive"),
        (pretend.epochs(RUNS, 2, 3), 2, "is at epoch 3, and its state at epoch 2"),
        (
            pretend.epochs(RUNS[:1], 2, 2),
            2,
            f"run {IDS[1]} is at epoch 1, and its state at epoch 2",
        ),
    ],
)
def test_a_commit_that_makes_no_sense_is_refused(epochs, epoch, message):
    with pytest.raises(ValueError, match=message):
        new_rows(recorded((1, 1)), epochs, epoch, dict.fromkeys(IDS, 1))


def test_an_unknown_provenance_is_refused():
    with pytest.raises(ValueError, match="'q' is unknown"):
        new_rows(recorded(), pretend.epochs(RUNS, 1, 1), 1, provenance="q")
