"""What counts as reading a parameter."""

import json
import pickle
from types import SimpleNamespace

import pytest

from qneurons.comparison.params import Params


def matched(params):
    match params:
        case {"lr": lr}:
            return lr


@pytest.mark.parametrize(
    "read",
    [
        *(lambda p: p["lr"], lambda p: p.get("lr", 5), lambda p: "lr" in p, matched),
        *(lambda p: p.pop("lr"), lambda p: p.setdefault("lr", 5), "{0[lr]}".format),
    ],
)
def test_one_is_read(read):
    params = Params({"lr": 1, "size": 2})
    assert read(params)
    assert params.read == {"lr"}


@pytest.mark.parametrize(
    "read",
    [
        *(dict, list, Params.keys, Params.copy, json.dumps, pickle.dumps),
        *(lambda p: {**p}, lambda p: SimpleNamespace(**p), lambda p: [*p.values()]),
        *(lambda p: [*p.items()], lambda p: p | {"lr": 5}, lambda p: {"lr": 5} | p),
        lambda p: {}.update(p) or p,
    ],
)
def test_all_are_read(read):
    params = Params({"lr": 1, "size": 2})
    assert read(params)
    assert params.read == {"lr", "size"}


def test_to_show_or_to_count_is_not_to_read():
    params = Params({"lr": 1})
    assert (f"{params}", len(params)) == ("{'lr': 1}", 1)
    assert params.read == set()


def test_it_is_a_dict():
    params = Params({"lr": 1})
    with pytest.raises(KeyError, match="size"):
        params["size"]
    assert params.get("size", 7) == 7
    assert params.read == {"size"}  # a name that it lacks is asked for, too
    assert pickle.loads(pickle.dumps(params)) == {"lr": 1}
