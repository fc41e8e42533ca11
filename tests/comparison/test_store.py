"""What the store of a comparison keeps, and what it refuses."""

import pytest

from qneurons.comparison.store import Finished, Spec, TrialStore
from qneurons.comparison.trial import Measured
from qneurons.study.errors import StudyError


def trial(arm="base", seed=0, params=(), code="3.11-a", epochs=2, diverged=False):
    measured = Measured({"loss": [0.5] * epochs}, [0.1] * epochs, None, diverged)
    return Finished(Spec(arm, seed, params), arm, measured, code, "origin")


@pytest.fixture
def store(tmp_path):
    store = TrialStore.open(tmp_path / "store", create=True)
    store.begin_training("train", "3.11-a", keep=False)
    return store


def test_a_trial_is_read_back(store):
    kept = trial(params=(("lr", 0.1), ("kind", "x")))
    store.add(kept)
    again = TrialStore.open(store.folder, readonly=True)
    assert again.finished == {kept.spec.id: kept}
    assert again.metric_names() == ["loss"]


def test_the_ids_of_trials_stay_the_same():
    """Stores rely on them."""
    assert Spec("base", 0).id == "613e7574d661408b"
    assert Spec("a1", 3, (("lr", 0.1),)).id == "32e655266cc5c729"


def test_another_training_is_refused(store):
    store.add(trial())
    with pytest.raises(StudyError, match=r"trials of the training 'train'.*'other'.*another store"):
        store.begin_training("other", "3.11-a", keep=False)


def test_a_store_without_trials_takes_another_name(store):
    """It was reserved for the name of a training that had failed, whatever it was called later."""
    store.begin_training("renamed", "3.11-a", keep=False)
    store.add(trial())
    again = TrialStore.open(store.folder)
    assert again.records.training == "renamed"
    again.begin_training("renamed", "3.11-a", keep=False)


def test_a_running_trial_keeps_the_name_of_its_training(store):
    other = TrialStore.open(store.folder)
    with store.reserve(["a trial"]), pytest.raises(StudyError, match="'train', and this is 'oth"):
        other.begin_training("other", "3.11-a", keep=False)
    other.begin_training("other", "3.11-a", keep=False)
    with pytest.raises(StudyError, match="'other', and this is 'train'"):
        store.add(trial())


def test_changed_code_is_refused_unless_it_is_to_be_kept(store):
    store.add(trial())
    with pytest.raises(
        StudyError, match=r"code of 'train' or a constant.*has changed since 1 of the 1.*keep=True"
    ):
        store.begin_training("train", "3.11-b", keep=False)
    store.begin_training("train", "3.11-b", keep=True)
    store.begin_training("train", "3.12-b", keep=False)  # nothing is known about it


def test_code_may_change_before_anything_is_recorded(store):
    store.begin_training("train", "3.11-b", keep=False)


def test_the_number_of_epochs_is_that_of_base(store):
    assert store.num_epochs(()) is None
    store.add(trial("c0.1", epochs=9))
    store.add(trial(params=(("lr", 1),), epochs=8))
    store.add(trial(epochs=1, diverged=True))
    assert store.num_epochs(()) is None
    for seed, epochs in ((1, 7), (2, 6)):
        store.add(trial(seed=seed, epochs=epochs))
    assert (store.num_epochs(()), store.num_epochs((("lr", 1),))) == (7, 8)


def test_a_trial_is_named_by_what_it_trains():
    assert str(Spec("c0.1", 2, (("lr", 0.1),))) == "seed 2, lr=0.1, c0.1"
