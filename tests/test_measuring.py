"""Time and memory of calls."""

import pytest
import torch
import torch.nn.functional as F

from qneurons import measuring
from qneurons.bench import paper_snippet

CPU = torch.device("cpu")


def test_bytes_kept_are_those_beyond_x():
    x = torch.randn(100, requires_grad=True)
    assert measuring.bytes_kept(F.elu, x) == 0
    assert measuring.bytes_kept(torch.sigmoid, x) == 400  # its result
    assert measuring.bytes_kept(paper_snippet(F.elu), x) == 1200
    assert measuring.bytes_kept(lambda x: (x * 2).view(10, 10).exp(), x) == 400


def test_summary_is_the_median_and_its_percentiles():
    found = measuring.summary([k * 1e-6 for k in range(11)])
    assert found == pytest.approx({"median_us": 5, "p20_us": 2, "p80_us": 8, "samples": 11})


def test_calls_are_measured_in_turns_and_one_that_fails_has_its_error():
    order = []

    def fail():
        raise ValueError("no such\nthing")

    calls = {"a": lambda: order.append("a"), "fails": fail, "b": lambda: order.append("b")}
    found = measuring.measure(calls, CPU, seconds=0.0, min_sample_s=0.0)
    assert found["fails"] == {"error": "ValueError: no such thing"}
    for key in ("a", "b"):
        assert found[key]["samples"] == measuring.MIN_SAMPLES
    rounds = order[-4 * measuring.MIN_SAMPLES :]  # the CPU's timer makes each call once more
    assert rounds == ["a", "a", "b", "b"] * measuring.MIN_SAMPLES


def test_a_short_call_is_repeated_within_a_sample():
    calls = []
    measuring.measure({"a": lambda: calls.append(0)}, CPU, seconds=0.0, min_sample_s=0.001)
    assert len(calls) > 10 * measuring.MIN_SAMPLES


def test_a_ratio_to_what_failed_is_empty():
    assert measuring.ratio({"median_us": 3.0}, {"median_us": 2.0}) == 1.5
    assert measuring.ratio({"median_us": 3.0}, {"error": "no"}) == ""
