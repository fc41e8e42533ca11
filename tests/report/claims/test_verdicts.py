"""The words of what the data lack."""

from qneurons.report.claims.verdicts import ANSWERS, lack


def test_what_is_missing_is_named():
    assert lack(["3 seeds", "base"]) == "These data lack 3 seeds; base."


def test_every_answer_has_words_of_its_own():
    assert len({*ANSWERS}) == 5
