"""When the code of a training has changed, and when it has not."""

import functools
import inspect
import os
import subprocess
import sys

import pytest

from qneurons.comparison.fingerprint import fingerprint, is_changed

SOURCE = """
import math
RATE = 0.1

class Net:
    def forward(self, x):
        return x + 1

def evaluate(model):
    return 2

def unused():
    return 3

def train(trial, epochs=4):
    kinds = {"a", "b", "c"}
    for epoch in [e for e in range(epochs)]:
        math.sin(RATE)
        trial.report(x=evaluate(Net()), kind="a" in {"a", "b", "c"})
"""


def mark(source=SOURCE, name="train"):
    module = {"__name__": "my_training"}
    exec(compile(source, "my_training.py", "exec"), module)
    return fingerprint(module[name])


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("trial.report(x=", "trial.report(y="),
        ("RATE = 0.1", "RATE = 0.2"),
        ("x + 1", "x + 2"),
        ("return 2", "return 4"),
        ("epochs=4", "epochs=5"),
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
    assert not is_changed("3.11-aaaa", "3.12-bbbb")
    assert is_changed("3.11-aaaa", "3.11-bbbb")


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
    assert fingerprint(Training().run) == fingerprint(Training().run)
    assert fingerprint(object()) == fingerprint(object())  # nothing to tell them apart
