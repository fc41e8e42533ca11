"""How far a study is."""

import pytest

from qneurons.study.execution.progress import EpochCounts, Progress
from qneurons.study.runs import Study


def records(fake_pack, runs, epoch, **options):
    pack = fake_pack(**options)(runs, None, device=None, precision="fp32", epoch=epoch - 1)
    return pack.train_epoch()


def test_epochs_of_the_store_and_of_this_process_are_counted(make_study, fake_pack):
    study = make_study(num_seeds=4, epochs=10)
    counts = EpochCounts(study)
    assert counts.progress() == Progress(0, 4, 0, 40)
    first, second, third, _ = study.runs
    counts.update({first.id: 10, second.id: 3, third.id: 2, "of another study": 7}, {third.id}, {})
    assert counts.progress() == Progress(2, 4, 23, 40)
    counts.add(records(fake_pack, [second], epoch=4), 0.5)
    now = counts.progress((second,), 4)
    assert (now.runs_done, now.epochs_done, now.pack, now.pack_epoch) == (2, 24, (second,), 4)


def test_a_diverged_run_counts_as_done(make_study, fake_pack):
    study = make_study(num_seeds=2, epochs=10)
    counts = EpochCounts(study)
    counts.add(records(fake_pack, study.runs, 1, diverging=[(0, 1)]), 1.0)
    assert (counts.progress().runs_done, counts.progress().epochs_done) == (1, 11)


def test_more_epochs_than_asked_for_count_as_those_asked_for(make_study):
    study = make_study(num_seeds=1, epochs=5)
    counts = EpochCounts(study)
    counts.update({study.runs[0].id: 100}, set(), {})
    assert counts.progress() == Progress(1, 1, 5, 5)


def test_time_left_knows_that_networks_differ(make_study, fake_pack):
    small, large, unknown = (
        make_study(num_seeds=2, epochs=10, batch_size=size) for size in (16, 32, 64)
    )
    study = type(small)("all", "All", 10, small.runs + large.runs + unknown.runs)
    counts = EpochCounts(study)
    assert counts.expected_s(small.runs) is None
    assert counts.progress().seconds_left is None
    counts.add(records(fake_pack, small.runs, 1), 2.0)  # a second for an epoch of a run
    counts.add(records(fake_pack, large.runs, 1), 6.0)  # three
    assert counts.expected_s(small.runs) == pytest.approx(2.0)
    assert counts.expected_s(large.runs[:1]) == pytest.approx(3.0)
    now = counts.progress()
    assert now.rate == pytest.approx(4 / 8)
    assert now.seconds_left == pytest.approx(2 * 9 * 1 + 2 * 9 * 3 + 2 * 10 * 2)
    beside = counts.progress(packs=4)
    assert beside.packs == 4
    assert beside.rate == pytest.approx(4 * now.rate)
    assert beside.seconds_left == pytest.approx(now.seconds_left / 4)


def test_the_latest_accuracies_are_means_of_each_setting_of_the_pack(make_study, fake_pack):
    base, noisy, far = (
        make_study(num_seeds=2, activations=("elu", "tanh"), **fields).runs
        for fields in ({}, {"setting": "c0.1"}, {"dropout": True})
    )
    counts = EpochCounts(Study("all", "All", 4, base + noisy + far))
    known = {run.id: 0.5 + 0.1 * run.seed for run in (*base, *far)}
    counts.update({}, set(), known)
    assert counts.progress(base[:1]).accuracies == {"elu": {"base": pytest.approx(0.55)}}
    new = records(fake_pack, noisy, 1, diverging=[(1, 1)])
    counts.add(new, 1.0)
    shown = counts.progress((base[0], noisy[2])).accuracies  # of elu and of tanh
    assert list(shown) == ["elu", "tanh"]
    assert shown["tanh"] == {"base": pytest.approx(0.55), "c0.1": new[2].test_accuracy}
    assert counts.progress().accuracies == {}


def test_means_over_protocols_are_not_shown(make_study):
    slow, fast = (make_study(num_seeds=2, learning_rate=rate).runs for rate in (0.1, 0.2))
    counts = EpochCounts(Study("all", "All", 4, slow + fast))
    counts.update({}, set(), {run.id: run.learning_rate for run in slow + fast})
    assert counts.progress(fast).accuracies == {"elu": {"base": pytest.approx(0.2)}}
    assert counts.progress(slow + fast).accuracies == {}
