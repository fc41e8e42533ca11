"""Merging stores: what is joined, what is refused."""

import dataclasses
import math
import tempfile
from pathlib import Path

import pytest
import torch

from qneurons.study.errors import StudyError
from qneurons.study.store import Merged, Store, merge
from tests.study import pretend
from tests.study.store.test_store import IDS, RUNS, assert_holds, files, new, save


def test_merging_joins_runs_and_takes_the_longer_record_with_its_checkpoint(tmp_path):
    a, origin_a = new(tmp_path / "a")
    save(a, origin_a, 1, 3)
    b = Store.open(tmp_path / "b", create=True)
    origin_b = b.begin({**pretend.ORIGIN, "device": "another"})
    more = pretend.runs(5)
    epochs = [pretend.epoch(run, n, seconds=0.5) for n in (1, 2) for run in more]
    b.commit(more, epochs, provenance=origin_b, state=pretend.state(more, 2), epoch=2)
    for order in ("ab", "ba"):
        into = tmp_path / order
        assert merge([tmp_path / name for name in order], into).runs == 5
        store = Store.open(into)
        assert {id: len(store.epochs(id)) for id in store.runs()} == {
            run.id: 3 if run in RUNS else 2 for run in more
        }
        for run in more:
            last = 3 if run in RUNS else 2
            epoch, state = store.checkpoint(run.id)
            assert epoch == last
            assert torch.equal(state["weight"], pretend.state([run], last)["weight"][0])
        assert store.origin(more[4].id)["device"] == "another"
        assert store.origin(IDS[0])["device"] == "a device"
    assert len(files(tmp_path / "ab")) == 2


def test_merging_counts_and_merging_again_changes_nothing(tmp_path):
    store, origin = new(tmp_path / "a")
    save(store, origin, 1, 2)
    save(store, store.begin({"device": "another"}), 3, 3)
    assert merge([tmp_path / "a"], tmp_path / "c") == Merged(3, 9, 0, 0)
    before = (tmp_path / "c" / "journal.jsonl").read_bytes()
    assert merge([tmp_path / "a", tmp_path / "c"], tmp_path / "c") == Merged(3, 0, 18, 0)
    assert (tmp_path / "c" / "journal.jsonl").read_bytes() == before
    assert_holds(Store.open(tmp_path / "c"), 3)
    save(store, origin, 4, 4, keep=False)
    assert merge([tmp_path / "a"], tmp_path / "c") == Merged(3, 3, 9, 0)
    merged = Store.open(tmp_path / "c")
    assert merged.progress() == dict.fromkeys(IDS, 4)
    assert files(tmp_path / "c") == []
    devices = [merged.records.provenance[row[-1]]["device"] for row in merged.records.rows[IDS[0]]]
    assert devices == ["a device", "a device", "another", "a device"]


def test_merging_brings_a_lost_checkpoint_back(tmp_path):
    for name in "ab":
        save(*new(tmp_path / name), 1, 2)
    (tmp_path / "a" / "checkpoints" / files(tmp_path / "a")[0]).unlink()
    merge([tmp_path / "b"], tmp_path / "a")
    assert_holds(Store.open(tmp_path / "a"), 2)


def test_records_that_disagree_are_an_error_and_nothing_is_merged(tmp_path):
    save(*new(tmp_path / "a"), 1, 2)
    b, origin = new(tmp_path / "b")
    epochs = pretend.epochs(RUNS, 1, 2)
    epochs[4] = pretend.epoch(RUNS[1], 2, test_loss=0.7)
    b.commit(RUNS, epochs, provenance=origin, state=None, epoch=2)
    first = pretend.epoch(RUNS[1], 2).test_loss
    message = rf"{IDS[1]} .*seed=1.*epoch 2: test_loss is {first} and 0.7;"
    with pytest.raises(StudyError, match=message):
        merge([tmp_path / "a", tmp_path / "b"], tmp_path / "c")
    assert not (tmp_path / "c").exists()


def test_short_records_may_be_left_out(tmp_path):
    """As of a machine that was lost before the training ended: the run was trained anew."""
    whole, origin = new(tmp_path / "whole")
    save(whole, origin, 1, 3)
    lost, origin = new(tmp_path / "lost")
    diverged = dataclasses.replace(RUNS[0], seed=9)
    epochs = [
        pretend.epoch(RUNS[1], 1, test_loss=0.7),
        pretend.epoch(diverged, 1, diverged=True, test_loss=math.nan),
    ]
    lost.commit([RUNS[1], diverged], epochs, provenance=origin, state=None, epoch=1)
    for order in (["lost", "whole"], ["whole", "lost"]):
        sources, into = [tmp_path / name for name in order], tmp_path / f"from {order[0]}"
        with pytest.raises(
            StudyError, match=r"disagree.*or with --min-epochs the records that broke off"
        ):
            merge(sources, into)
        assert merge(sources, into, min_epochs=3) == Merged(4, 10, 0, 1)
        assert Store.open(into).progress() == {**dict.fromkeys(IDS, 3), diverged.id: 1}
    # What the target has already is kept, and must agree.
    with pytest.raises(StudyError, match="disagree"):
        merge([tmp_path / "whole"], tmp_path / "lost", min_epochs=3)


def test_stores_of_two_precisions_are_not_merged(tmp_path):
    for name, precision, half in [("a", "fp32", RUNS[:1]), ("b", "bf16", RUNS[1:])]:
        store = Store.open(tmp_path / name, create=True)
        terms = {"device_type": "cpu", "precision": precision, "fingerprint": "0"}
        origin = store.begin({**pretend.ORIGIN, **terms})
        store.commit(half, pretend.epochs(half, 1, 1), provenance=origin, state=None, epoch=1)
    with pytest.raises(StudyError, match=r"mnist-mlp on .*\(cpu, fp32, 0 and cpu, bf16, 0\)"):
        merge([tmp_path / "a", tmp_path / "b"], tmp_path / "c")
    assert not (tmp_path / "c").exists()


def test_equal_losses_that_are_not_finite_agree(tmp_path):
    nan = float("nan")
    for name in "ab":
        store, origin = new(tmp_path / name)
        lost = [pretend.epoch(run, 1, train_loss=nan, diverged=True) for run in RUNS]
        store.commit(RUNS, lost, provenance=origin, state=None, epoch=1)
    assert merge([tmp_path / "a", tmp_path / "b"], tmp_path / "c") == Merged(3, 3, 3, 0)


def test_what_one_store_did_not_evaluate_agrees(tmp_path):
    save(*new(tmp_path / "a"), 1, 2)
    b, origin = new(tmp_path / "b")
    epochs = [dataclasses.replace(e, train_loss=math.nan) for e in pretend.epochs(RUNS, 1, 4)]
    b.commit(RUNS, epochs, provenance=origin, state=None, epoch=4)
    assert merge([tmp_path / "a", tmp_path / "b"], tmp_path / "c") == Merged(3, 12, 6, 0)


def test_a_run_that_diverged_in_one_store_only_disagrees(tmp_path):
    save(*new(tmp_path / "a"), 1, 1)
    b, origin = new(tmp_path / "b")
    nan = math.nan
    lost = [pretend.epoch(r, 1, train_loss=nan, test_loss=nan, diverged=True) for r in RUNS]
    b.commit(RUNS, lost, provenance=origin, state=None, epoch=1)
    with pytest.raises(StudyError, match="epoch 1: diverged is False and True;"):
        merge([tmp_path / "a", tmp_path / "b"], tmp_path / "c")


def test_the_sources_of_a_merge_are_only_read(guarded):
    with tempfile.TemporaryDirectory() as folder:
        assert merge([guarded], Path(folder, "c")) == Merged(3, 3, 0, 0)


def test_merging_what_is_no_store_is_an_error(tmp_path):
    with pytest.raises(StudyError, match="does not exist"):
        merge([tmp_path / "nowhere"], tmp_path / "c")
    assert not (tmp_path / "c").exists()


def test_merging_into_runs_that_another_process_trains_is_refused(tmp_path):
    save(*new(tmp_path / "a"), 1, 4)
    target, origin = new(tmp_path / "b")
    save(target, origin, 1, 2)
    with target.reserve([IDS[1]]), pytest.raises(StudyError, match=rf"1 of .*3.*{IDS[1]}"):
        merge([tmp_path / "a"], tmp_path / "b")
    assert_holds(Store.open(tmp_path / "b"), 2)
    assert merge([tmp_path / "a"], tmp_path / "b") == Merged(3, 6, 6, 0)
    assert_holds(Store.open(tmp_path / "b"), 4)


def test_epochs_that_are_trained_while_stores_are_read_are_not_lost(tmp_path, monkeypatch):
    """Another process trains the target on, after its records were first read."""
    save(*new(tmp_path / "a"), 1, 3)
    target, origin = new(tmp_path / "b")
    save(target, origin, 1, 2)
    reserve = Store.reserve

    def reserve_late(store, ids):
        save(target, origin, 3, 8)
        return reserve(store, ids)

    monkeypatch.setattr(Store, "reserve", reserve_late)
    assert merge([tmp_path / "a"], tmp_path / "b") == Merged(3, 0, 9, 0)
    assert_holds(Store.open(tmp_path / "b"), 8)


def test_a_merge_reserves_the_runs_that_it_writes(tmp_path, monkeypatch):
    save(*new(tmp_path / "a"), 1, 2)
    seen = []
    monkeypatch.setattr(
        Store,
        "begin",
        lambda store, about, begin=Store.begin: (
            seen.append(Store.open(store.folder).reserve(IDS).ids),
            begin(store, about),
        )[1],
    )
    merge([tmp_path / "a"], tmp_path / "b")
    assert seen == [()]
    with Store.open(tmp_path / "b").reserve(IDS) as free:
        assert free.ids == tuple(IDS)
