"""What the settings of a report are, in words."""

import pytest

pytest.importorskip("polars")
pytest.importorskip("scipy")

from qneurons.report.legend import legend, meaning


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ("base", "f itself"),
        ("limit", "f'(x)x"),
        ("m5", "the mean of a5 without its noise"),
        ("n0.001", "f with gradient noise of η = 0.001"),
        ("c0.02", "the q-activation with λ = 0.02"),
        ("a9", "the q-activation with λ annealed from 9"),
        ("a2@0.25", "the q-activation with λ annealed from 2 at the rate 0.25"),
        ("a1/20", "the q-activation with λ annealed from 1 over 20 epochs"),
        ("lin5-1/20", "the q-activation with λ along a line from 5 to 1 over 20 epochs"),
        ("cos5", "the q-activation with λ along half a cosine from 5 to 0"),
    ],
)
def test_every_kind_of_setting_has_its_words(setting, words):
    assert legend({setting: meaning(setting)}) == f"{setting} is {words}"


def test_settings_of_a_kind_share_their_words():
    settings = ("base", "c0.02", "c0.1", "a1", "a5", "a9", "a2@0.25")
    assert legend({setting: meaning(setting) for setting in settings}) == (
        "base is f itself; c0.02 and c0.1 are the q-activation with λ = 0.02 and 0.1; "
        "a1, a5 and a9 are the q-activation with λ annealed from 1, 5 and 9; "
        "a2@0.25 is the q-activation with λ annealed from 2 at the rate 0.25"
    )
