"""A thousand random calls of the public functions; benchmarks/fuzz.py makes more of them."""

import sys
from pathlib import Path

import pytest
import torch

sys.path.append(str(Path(__file__).parents[1] / "benchmarks"))

import fuzz

from qneurons.kernels import dispatch, plain

# numpy's, in Triton's interpreter
pytestmark = pytest.mark.filterwarnings("ignore:.* encountered:RuntimeWarning")


@pytest.fixture(autouse=True)
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.mark.parametrize(("backend", "num"), [("plain", 250), ("cpu", 1000), ("cuda", 5)])
def test_random_calls_agree_with_float64(backend, num):
    if backend != "plain" and isinstance(why := dispatch.load(backend), str):
        pytest.skip(why)
    if backend == "cuda" and torch.cuda.is_available():
        pytest.skip("the cases are on the CPU, which only Triton's interpreter reads")
    assert fuzz.fuzz(range(num), [backend]) == []  # a line begins with the number of its case


@pytest.mark.parametrize("what", ["value", "gradient"])
def test_a_wrong_digit_is_found(monkeypatch, what):
    right = plain.backward

    def wrong(grad, *arguments, **options):
        result = right(grad, *arguments, **options)
        return result * 1.0001 if (grad is not None) == (what == "gradient") else result

    monkeypatch.setattr(plain, "forward", lambda *law, **out: wrong(None, *law, **out))
    monkeypatch.setattr(plain, "backward", wrong)
    found = fuzz.fuzz(range(40), ["plain"])
    assert found
    assert all(("gradient is" if what == "gradient" else "g is") in text for text in found)


def test_a_case_is_a_function_of_its_number():
    one, same, other = (fuzz.make_case(number) for number in (7, 7, 8))
    assert str(one) == str(same) != str(other)
    assert torch.equal(one.x.nan_to_num(), same.x.nan_to_num())
