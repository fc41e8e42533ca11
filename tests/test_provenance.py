"""Where a number comes from."""

import platform

import torch

import qneurons
from qneurons import provenance


def test_every_column_is_filled_in():
    origin = provenance.provenance(torch.device("cpu"), "a command")
    assert tuple(origin) == provenance.ORIGIN
    assert origin["command"] == "a command"
    assert origin["torch"] == torch.__version__
    assert origin["qneurons"] == qneurons.__version__
    assert origin["python"] == platform.python_version()
    assert origin["threads"] == torch.get_num_threads()
    assert origin["device"]


def test_the_commit_of_a_copy_outside_a_repository_is_unknown(tmp_path, monkeypatch):
    monkeypatch.delenv("QNEURONS_COMMIT", raising=False)
    monkeypatch.setattr(provenance, "__file__", str(tmp_path / "bench.py"))
    assert provenance.commit() == "unknown"
    monkeypatch.setenv("PATH", "")  # no git either
    assert provenance.commit() == "unknown"


def test_a_commit_that_is_named_comes_before_that_of_the_checkout(monkeypatch):
    monkeypatch.delenv("QNEURONS_COMMIT", raising=False)
    assert provenance.commit() != "0123abc"
    monkeypatch.setenv("QNEURONS_COMMIT", "0123abc")
    assert provenance.commit() == "0123abc"
