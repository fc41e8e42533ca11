"""The errors of a study."""

import copy
import pickle

from qneurons.study.errors import StudyError, unknown


def test_an_error_is_what_is_wrong_and_a_remedy():
    error = StudyError("seeds is 0; none is left", "give 1; or more").at("small.toml")
    for same in (error, copy.copy(error), pickle.loads(pickle.dumps(error))):  # as from a worker
        assert same.what == "small.toml: seeds is 0; none is left"
        assert same.remedy == "give 1; or more"
        assert str(same) == "small.toml: seeds is 0; none is left; give 1; or more"
    assert str(StudyError("it is missing")) == "it is missing"


def test_an_unknown_name_is_answered_with_the_nearest_and_all_known():
    error = unknown("network", "mnist_cnn", ["mnist-mlp", "mnist-cnn"], "or make one")
    assert error.what == "unknown network 'mnist_cnn'"
    assert error.remedy == (
        "did you mean 'mnist-cnn'? the known ones: mnist-mlp, mnist-cnn; or make one"
    )
    assert unknown("network", "zzz", ["mnist-mlp"]).remedy == "the known ones: mnist-mlp"
