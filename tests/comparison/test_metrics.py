"""Which metric decides, which one chooses, and of which smaller is better."""

import pytest

pytest.importorskip("polars")
pytest.importorskip("scipy")

from qneurons.comparison.metrics import Metrics
from qneurons.study.errors import StudyError


@pytest.mark.parametrize(
    "name",
    [
        *("loss", "test_cross_entropy", "test_ppl", "test_bpb", "test_err", "test_wer", "top5_err"),
        *("testLoss", "valRMSELog", "NLLLoss", "logloss", "test_RMSE", "test.mse", "val/loss2"),
        *("word-error-rate", "testlosses", "num_errors"),
    ],
)
def test_a_loss_is_known_by_a_part_of_its_name(name):
    assert not Metrics().describe(name).higher


@pytest.mark.parametrize("name", ["test_accuracy", "bleu", "power", "orbits", "lossless", "f1"])
def test_of_anything_else_larger_is_better(name):
    assert Metrics().describe(name).higher


def test_what_the_user_says_is_added_to_what_names_say():
    metrics = Metrics(smaller=["latency"], larger=["loss_avoided"])
    names = ("latency", "val_loss", "loss_avoided", "score")
    assert [metrics.describe(name).higher for name in names] == [False, False, True, True]
    with pytest.raises(StudyError, match=r"'score' is in smaller and in larger; leave it in one"):
        Metrics(smaller=["score"], larger=["score"])


@pytest.mark.parametrize(
    ("names", "metric", "chooser"),
    [
        (["train_loss", "test_acc", "test_loss", "val_acc"], "test_acc", "val_acc"),
        (["train_acc", "val_acc"], "val_acc", "val_acc"),
        (["val_loss", "score"], "val_loss", "val_loss"),
        (["train_acc", "score"], "score", None),
        (["Train_acc", "Test_acc"], "Test_acc", None),
        (["train_acc"], "train_acc", None),
    ],
)
def test_which_metric_decides_without_a_grid(names, metric, chooser):
    assert Metrics().check(names, has_grid=False) == (metric, chooser)


@pytest.mark.parametrize(
    ("names", "metric"),
    [
        (["train_loss", "test_acc", "val_acc"], "test_acc"),
        (["train_loss", "val_acc", "val_loss"], "val_loss"),
        (["val_acc", "score"], "score"),
    ],
)
def test_what_chooses_from_a_grid_does_not_decide(names, metric):
    assert Metrics().check(names, has_grid=True) == (metric, "val_acc")


def test_the_decision_is_said_with_its_direction():
    names, metrics = ["val_loss", "test_accuracy"], Metrics()
    decided = "decided by test_accuracy (larger is better)"
    chosen = "parameters are chosen by val_loss (smaller is better)"
    assert metrics.decision(names, has_grid=False) == [decided]
    assert metrics.decision(names, has_grid=True) == [decided, chosen]


@pytest.mark.parametrize(
    ("metrics", "names", "message"),
    [
        (Metrics(), [], r"without a metric.*trial\.report"),
        (Metrics("test_acc"), ["test_accuracy"], r"unknown metric 'test_acc'.*'test_accuracy'"),
        (Metrics(smaller=["lost"]), ["loss"], r"unknown metric 'lost'"),
        (Metrics(larger=["lost"]), ["loss"], r"unknown metric 'lost'"),
        (Metrics(), ["test_accuracy"], r"several values.*val_accuracy"),
        (Metrics(), ["val_loss"], r"must not be chosen by 'val_loss'.*luck"),
        (Metrics(), ["train_acc", "val_acc"], r"chosen by 'val_acc'.*metric='test_accuracy'"),
        (Metrics(choose_by="test_loss"), ["test_accuracy", "test_loss"], r"chosen by 'test_loss'"),
    ],
)
def test_metrics_that_cannot_be_used(metrics, names, message):
    with pytest.raises(StudyError, match=message):
        metrics.check(names, has_grid=True)
