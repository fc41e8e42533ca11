"""The words of what the data lack."""

import pytest

from qneurons.report.claims.verdicts import ANSWERS, FAILS, HOLDS, Claim, Verdict, lack


def test_what_is_missing_is_named():
    assert lack(["3 seeds", "base"]) == "These data lack 3 seeds; base."


def test_every_answer_has_words_of_its_own():
    assert len({*ANSWERS}) == 5


@pytest.mark.parametrize("answer", [*ANSWERS, "it differs"])
def test_only_holding_and_failing_decide_a_claim(answer):
    verdict = Verdict(Claim("id", "It helps.", "Count."), answer, (), "")
    assert verdict.is_undecided == (answer in ANSWERS and answer not in (HOLDS, FAILS))
