"""When the code of a training has changed, and when it has not."""

import functools
import inspect
import os
import subprocess
import sys
import types

import pytest
import torch

from qneurons.comparison.fingerprint import fingerprint, is_changed

SOURCE = """
import functools
import math
from dataclasses import dataclass, field
RATE = 0.1
CONFIG = {"lr": 0.3, "layers": [10, {"width": 20}], "kinds": {"p", "q", ("r", 30)}}
CONFIG["itself"] = CONFIG

class Part:
    depth = 40

    def helper(self):
        return 50

class Net(Part):
    shapes = (60, 70)

    @functools.cached_property
    def size(self):
        return 80

    def forward(self, x):
        return x + 1

@dataclass
class Options:
    'Anything'
    momentum: float = 0.9
    betas: list = field(default_factory=lambda: [0.8, 0.99])

OPTIONS = Options(momentum=0.7)

@functools.cache
def load():
    return 90

def evaluate(model):
    return 2

def unused():
    return 3

def train(trial, epochs=4, *, start=5):
    kinds = {"a", "b", "c"}
    CONFIG["lr"], OPTIONS.betas, load()
    for epoch in [e for e in range(epochs)]:
        math.sin(RATE)
        trial.report(x=evaluate(Net()), kind="a" in {"a", "b", "c"})
"""


def mark(source=SOURCE):
    module = types.ModuleType("my_training")
    sys.modules["my_training"] = module  # dataclass looks there
    exec(compile(source, "my_training.py", "exec"), vars(module))
    del sys.modules["my_training"]
    return fingerprint(module.train)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("trial.report(x=", "trial.report(y="),
        ("RATE = 0.1", "RATE = 0.2"),
        ("x + 1", "x + 2"),
        ("return 2", "return 4"),
        ("epochs=4", "epochs=5"),
        ("start=5", "start=6"),
        *((str(number), str(number + 1)) for number in range(10, 100, 10)),
        ('"lr": 0.3', '"lr": 0.4'),
        ('"q"', '"other"'),
        ("momentum: float = 0.9", "momentum: float = 0.6"),
        ("momentum=0.7", "momentum=0.6"),
        ("[0.8, 0.99]", "[0.8, 0.999]"),
        ("for e in range(epochs)]", "for e in range(epochs) if e]"),
        ("math.sin", "math.cos"),
    ],
)
def test_a_change_is_noticed(old, new):
    assert old in SOURCE
    assert is_changed(mark(), mark(SOURCE.replace(old, new)))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("return 3", "return 4"),
        ("RATE = 0.1\n", "RATE = 0.1  # a comment\n\n\n"),
        ("    kinds", "    # x\n    kinds"),
        ('"p", "q"', '"q", "p"'),
        ("Anything", "Something"),
        ("\nclass Net", "\n# moved down\n\nclass Net"),
    ],
)
def test_what_does_not_matter_is_no_change(old, new):
    assert mark() == mark(SOURCE.replace(old, new))


def test_it_is_the_same_in_every_process(tmp_path):
    script = tmp_path / "show.py"
    by_path = "import runpy, sys\nprint(runpy.run_path(sys.argv[1])['fingerprint'](train))\n"
    script.write_text(SOURCE + by_path)  # by its path, which does not import torch
    shown = {
        subprocess.run(
            [sys.executable, script, inspect.getfile(fingerprint)],
            env=os.environ | {"PYTHONHASHSEED": seed},
            capture_output=True,
            check=True,
        ).stdout
        for seed in ("1", "2", "3")
    }
    assert len(shown) == 1


def test_other_versions_of_python_are_not_compared():
    assert not is_changed("3.11v2-aaaa", "3.12v2-bbbb")
    assert is_changed("3.11v2-aaaa", "3.11v2-bbbb")


def test_fingerprints_that_looked_at_less_are_not_compared():
    """So that stores made with them can be used."""
    assert not is_changed("3.11-aaaa", "3.11v2-bbbb")
    assert "v3-" in mark()


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("nn.ReLU", "nn.GELU"),
        ("torch.optim.SGD", "torch.optim.Adam"),
        ("F.mse_loss", "F.l1_loss"),
        ("torch.exp", "torch.sin"),
        ("torch.float32", "torch.bfloat16"),
        ("functools.partial(torch.optim.SGD, lr=0.1)", "functools.partial(torch.optim.SGD, lr=1)"),
        ("types.SimpleNamespace(lr=0.1)", "types.SimpleNamespace(lr=0.2)"),
        ("argparse.Namespace(lr=0.1)", "argparse.Namespace(lr=0.2)"),
        ("pathlib.Path('a')", "pathlib.Path('b')"),
        ("Own(0.1)", "Own(0.2)"),
        ("{'act': nn.ReLU}", "{'act': nn.GELU}"),
    ],
)
def test_what_a_training_uses_of_other_modules_counts_too(old, new):
    source = """
import argparse, functools, pathlib, types
import torch, torch.nn.functional as F
from torch import nn

class Own:
    def __init__(self, value):
        self.value = value

USED = ???

def train(trial):
    return USED
"""
    one, again, other = (mark(source.replace("???", used)) for used in (old, old, new))
    assert one == again
    assert is_changed(one, other)


@pytest.mark.parametrize("decorator", ["torch.no_grad()", "contextlib.contextmanager"])
def test_what_is_decorated_is_looked_at(decorator):
    source = f"""
import contextlib, torch

@{decorator}
def used():
    return 1

@torch.enable_grad()
def train(trial):
    return used(), 10
"""
    for old, new in (("return 1", "return 2"), ("10", "11")):
        assert is_changed(mark(source), mark(source.replace(old, new)))


def test_closures_partials_methods_and_objects():
    def make(number):
        def train(trial):
            trial.report(x=number)

        return train

    class Training:
        def run(self, trial):
            trial.report(x=1)

    assert is_changed(fingerprint(make(1)), fingerprint(make(2)))
    one, other = (functools.partial(make, number=n) for n in (1, 2))
    assert is_changed(fingerprint(one), fingerprint(other))
    assert is_changed(fingerprint(functools.partial(make, 1)), fingerprint(one))
    assert fingerprint(Training().run) == fingerprint(Training().run)
    assert fingerprint(object()) == fingerprint(object())  # nothing to tell them apart


def test_the_code_behind_an_object_and_a_method_is_looked_at():
    source = (
        SOURCE
        + """
class Training:
    def __call__(self, trial):
        self.step()

    def step(self):
        return 123
"""
    )
    for train in ("Training()", "Training().__call__"):
        old = source + f"train = {train}\n"
        assert mark(old) == mark(old)
        assert is_changed(mark(old), mark(old.replace("123", "124")))


class Loud(dict):
    """An object whose code must not be run."""

    def __getattribute__(self, name):
        raise AssertionError(name)

    __iter__ = __eq__ = __repr__ = __len__ = __bool__ = __getattribute__
    __hash__ = None


VALUES = {"data": Loud(lr=1), "tensor": torch.ones(2), "layer": torch.nn.Linear(1, 1), "none": None}


def loud(trial):
    return VALUES


def test_no_code_of_values_is_run_and_what_is_not_known_is_left_out(monkeypatch):
    before = fingerprint(loud)
    monkeypatch.setitem(VALUES, "tensor", torch.zeros(2))
    monkeypatch.setitem(VALUES, "more", object())
    assert fingerprint(loud) == before
    dict.__setitem__(VALUES["data"], "lr", 2)
    assert is_changed(fingerprint(loud), before)


def test_shared_values_take_linear_time():
    nested = [1]
    for _ in range(60):  # 2^60 ways lead to the first one
        nested = [nested, nested]
    assert fingerprint(lambda trial: nested) == fingerprint(lambda trial: nested)
