"""Commands that train with fake packs."""

import functools
import shutil
from pathlib import Path

import pytest
from typer.testing import CliRunner

from qneurons import cli
from qneurons.cli import training
from qneurons.study.execution import run_study

SPEC = """\
title = "A small study"
epochs = 4
seeds = 3

[[grid]]
dataset = "digits"
network = "mnist-mlp"
dropout = false
activation = ["elu", "tanh"]
setting = ["base", "c0.1"]
batch_size = 64
learning_rate = 0.05
"""


@pytest.fixture
def invoke(tmp_path, monkeypatch):
    """Gives a command to the command line, in a folder of its own."""
    monkeypatch.chdir(tmp_path)
    return lambda *arguments: CliRunner().invoke(cli.app, [str(a) for a in arguments])


@pytest.fixture
def write_spec(tmp_path):
    """Writes the file of a study, of which pairs of old and new text are exchanged."""

    def write(*exchanged, name="small.toml"):
        text = SPEC
        for old, new in exchanged:
            assert old in text
            text = text.replace(old, new)
        path = tmp_path / name
        path.write_text(text)
        return path

    return write


@pytest.fixture
def train_with(monkeypatch, no_data):
    """Makes commands train with such fake packs."""
    monkeypatch.setattr("qneurons.provenance.commit", lambda: "0123456")  # git takes its time

    def use(pack_class):
        faked = functools.partial(run_study, pack_class=pack_class, checkpoint_s=0.0)
        monkeypatch.setattr(training, "run_study", faked)
        return pack_class

    return use


@pytest.fixture(scope="session")
def finished(tmp_path_factory):
    """A folder for a store that is made once."""
    return tmp_path_factory.mktemp("finished") / "store"


@pytest.fixture
def store(finished, invoke, write_spec, train_with, fake_pack, tmp_path):
    """The folder of a finished store, a copy for each test."""
    spec = write_spec()
    if not finished.exists():
        train_with(fake_pack())
        result = invoke("study", "run", spec, "--store", finished, "--device", "cpu")
        assert result.exit_code == 0, result.output
    return Path(shutil.copytree(finished, tmp_path / "store"))
