"""The ordinary loop: it continues from its states, and adds whole runs to its rows."""

import csv
import multiprocessing.dummy
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from qneurons.study.data import Dataset
from qneurons.study.runs import Run


@pytest.fixture
def naive_loop(monkeypatch):
    monkeypatch.syspath_prepend(Path(__file__).parents[1] / "benchmarks")
    import naive_loop

    threads, generator = torch.get_num_threads(), torch.get_rng_state()
    yield naive_loop
    torch.set_num_threads(threads)
    torch.set_rng_state(generator)


@pytest.fixture
def data():
    generator = torch.Generator().manual_seed(0)
    images = torch.randint(256, (50, 1, 8, 8), dtype=torch.uint8, generator=generator)
    labels = torch.randint(10, (50,), generator=generator)
    return Dataset("random", images[:40], labels[:40], images[40:], labels[40:], "0" * 16)


@pytest.mark.parametrize("setting", ["base", "limit", "a5"])
def test_a_stopped_run_continues_as_if_nothing_had_happened(naive_loop, data, tmp_path, setting):
    run = Run("random", "mnist-mlp", True, "elu", setting, 3, 16, 0.05, 1e-3)
    cpu = torch.device("cpu")

    def results(epochs, name):
        found = naive_loop.train(run, data, epochs, cpu, tmp_path / name)
        return [values[:-1] for values in found]  # without the time

    whole = results(4, "whole.pt")
    assert results(2, "stopped.pt") == whole[:2]
    torch.manual_seed(0)
    assert results(4, "stopped.pt") == whole


@pytest.fixture
def train(naive_loop, data, tmp_path, monkeypatch):
    """Runs the command in this process, and returns the rows that it leaves."""
    monkeypatch.setattr(naive_loop, "load_dataset", lambda *_: data)
    monkeypatch.setattr(naive_loop.signal, "signal", lambda *_: None)
    threads = SimpleNamespace(get_context=lambda _: multiprocessing.dummy)
    monkeypatch.setattr(naive_loop, "multiprocessing", threads)
    out = tmp_path / "rows.csv"

    def train(*options, study="quickstart"):
        arguments = (study, "--epochs", "2", "--out", out, *options)
        monkeypatch.setattr(sys, "argv", ["naive_loop.py", *map(str, arguments)])
        naive_loop.main()
        with out.open(newline="") as file:
            return list(csv.DictReader(file))

    return train


def test_cells_are_added_and_runs_that_are_there_are_skipped(train, tmp_path, capsys):
    elu, tanh = ("activation=elu,setting=base|a1", "activation=tanh,setting=limit")
    first = train("--only", elu, "--seeds", "0-1")
    assert len(first) == 2 * 2 * 2  # settings, seeds and epochs
    rows = train("--only", elu, "--only", tanh, "--seeds", "0-2")
    assert rows[: len(first)] == first
    assert len(rows) == 2 * (2 * 3 + 3)
    assert "5 of 5: digits mnist-mlp" in capsys.readouterr().out
    assert {row["setting"] for row in rows if row["activation"] == "tanh"} == {"limit"}
    assert all(float(row["test_loss"]) > 0 and row["threads"] == "1" for row in rows)
    assert list((tmp_path / "rows.states").iterdir()) == []


def test_settings_that_the_loop_does_not_know(train, tmp_path, capsys):
    study = tmp_path / "mine.toml"
    grid = (Path(__file__).parents[1] / "src/qneurons/studies/quickstart.toml").read_text()
    study.write_text(grid.replace('"c0.1"', '"m5"'))
    with pytest.raises(SystemExit):
        train(study=study)
    assert "cannot train m5; choose settings by --only" in capsys.readouterr().err
