"""The errors of a study."""

from qneurons.study.errors import unknown


def test_an_unknown_name_is_answered_with_the_nearest_and_all_known():
    message = str(unknown("network", "mnist_cnn", ["mnist-mlp", "mnist-cnn"]))
    for part in ("network", "'mnist_cnn'", "did you mean 'mnist-cnn'?", "mnist-mlp, mnist-cnn"):
        assert part in message
    assert "did you mean" not in str(unknown("network", "zzz", ["mnist-mlp"]))
