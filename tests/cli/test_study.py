"""``qneurons study``: listing, showing, looking into stores, joining and exporting them."""

import csv
import errno
import os
import shutil
import threading
from pathlib import Path

import pytest
from typer.testing import CliRunner

from qneurons import cli
from qneurons.cli.study import _values
from qneurons.study import files
from qneurons.study.packs.pack import PRECISIONS
from qneurons.study.store import Store


def test_the_studies_are_listed(invoke):
    result = invoke("study", "list")
    assert result.exit_code == 0
    for text in ("quickstart", "paper-mnist-mlp", "paper-mnist-cnn", "paper-cifar-cnn", "1,680"):
        assert text in result.stdout


def test_the_help_names_every_precision(invoke):
    result = invoke("study", "run", "--help")
    assert all(name in result.stdout for name in PRECISIONS)


def test_the_help_says_where_a_network_of_ones_own_goes(invoke):
    assert "qneurons compare --help" in " ".join(invoke("study", "--help").stdout.split())


def test_a_grid_is_shown(invoke, write_spec):
    result = invoke("study", "show", write_spec())
    assert result.exit_code == 0
    for text in ("A small study", "12 runs of 4 epochs", "elu tanh", "base c0.1", "0-2", "0.05"):
        assert text in result.stdout
    part = invoke("study", "show", write_spec(), "--only", "setting=base", "--seeds", "1,5")
    for text in ("4 runs", " base\n", "1 5"):
        assert text in part.stdout


def test_a_grid_of_another_protocol_is_shown(invoke, write_spec):
    assert "momentum" not in invoke("study", "show", write_spec()).stdout
    new = "learning_rate = [0.05, 0.1]\nmomentum = 0.5\naugment = 'sun-cifar'\nheld_out = 40"
    result = invoke("study", "show", write_spec(("learning_rate = 0.05", new)))
    for text in ("momentum", "augment", "held out", " 0.1\n", " 0.5\n", "flip=both", " 40\n"):
        assert text in result.stdout


def test_text_is_shown_as_it_is(invoke, write_spec):
    title = "[/x] is [red]q[/] better?"
    result = invoke("study", "show", write_spec(("A small study", title)))
    assert result.exit_code == 0
    assert title in result.stdout
    latin = CliRunner(charset="latin-1").invoke(cli.app, ["study", "show", "quickstart"])
    assert latin.exit_code == 0
    assert "?: " in latin.stdout  # φ


def test_distinct_values_are_short():
    assert _values([0, 0, 1, 2, 3]) == "0-3"
    assert _values([0, 2, 7]) == "0,2,7"
    assert _values([4, 5]) == "4 5"
    assert _values([False, True, False]) == "false true"
    assert _values(["elu"]) == "elu"


def test_without_a_store_named_it_is_named_for_the_study(invoke, write_spec, train_with, fake_pack):
    train_with(fake_pack())
    result = invoke("study", "run", write_spec(), "--device", "cpu", "--epochs", 1)
    assert result.exit_code == 0, result.output
    assert set(Store.open("qneurons-small/store").progress().values()) == {1}


def test_stores_are_joined(invoke, write_spec, train_with, fake_pack):
    train_with(fake_pack())
    for name in ("elu", "tanh"):
        only = ("--only", f"activation={name}")
        invoke("study", "run", write_spec(), *only, "--store", name, "--device", "cpu")
    result = invoke("study", "merge", "elu", "tanh", "--into", "both")
    told = "both: 12 runs; 48 epochs added, 0 there already\n"
    assert (result.exit_code, result.stdout) == (0, told), result.output
    assert len(Store.open("both").runs()) == 12
    result = invoke("study", "merge", "elu", "--into", "none", "--min-epochs", 5)
    assert (
        result.stdout
        == "none: 0 runs; 0 epochs added, 0 there already, 6 shorter records left out\n"
    )


def test_stores_that_disagree_are_not_joined(invoke, store, write_spec, train_with, fake_pack):
    # In other company a fake pack's runs end elsewhere.
    train_with(fake_pack())
    part = ("--only", "activation=elu,setting=base", "--pack", 1)
    invoke("study", "run", write_spec(), *part, "--store", "other", "--device", "cpu")
    result = invoke("study", "merge", store, "other", "--into", "both")
    assert result.exit_code == 1
    error, hint = result.stderr.splitlines()
    assert "loss" in error or "accuracy" in error
    assert "nothing was merged" in hint


def test_rows_are_exported(invoke, store):
    pl = pytest.importorskip("polars")
    for name, options in [
        ("rows.csv", ()),
        ("rows.parquet", ()),
        ("rows.txt", ("--format", "csv")),
        ("rows.PARQUET", ()),
    ]:
        result = invoke("study", "export", store, name, *options)
        assert (result.exit_code, result.stdout) == (0, f"48 rows in {name}\n"), result.output
    with open("rows.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 48
    columns = ("dataset", "network", "dropout", "activation", "setting", "seed", "epoch")
    numbers = ("train_loss", "test_loss", "test_accuracy", "test_accuracy_limit")
    assert {*columns, *numbers, "test_accuracy_mean"} <= set(rows[0])
    assert pl.read_parquet("rows.parquet").height == 48
    shutil.copy("rows.txt", "again.csv")
    assert pl.read_csv("again.csv").equals(pl.read_csv("rows.csv"))


def test_what_a_link_or_a_pipe_stands_for_is_written(invoke, store):
    pytest.importorskip("polars")
    Path("link.csv").symlink_to("real.csv")
    assert invoke("study", "export", store, "link.csv").exit_code == 0
    assert Path("link.csv").is_symlink()
    os.mkfifo("pipe.csv")
    read = []
    reader = threading.Thread(target=lambda: read.append(Path("pipe.csv").read_bytes()))
    reader.start()
    result = invoke("study", "export", store, "pipe.csv")
    reader.join()
    assert (result.exit_code, result.stdout) == (0, "")
    assert read == [Path("real.csv").read_bytes()]
    assert Path("pipe.csv").is_fifo()
    result = invoke("study", "export", store, "/dev/stdout", "--format", "csv")
    assert (result.exit_code, result.stdout_bytes) == (0, *read)
    Path("loop.csv").symlink_to("loop.csv")
    assert invoke("study", "export", store, "loop.csv").exit_code == 0


@pytest.mark.parametrize("name", ["rows.csv", "rows.parquet"])
def test_a_full_disk_keeps_the_rows_that_were_there(invoke, store, monkeypatch, name):
    pytest.importorskip("polars")
    Path(name).write_text("before")

    def write_all(fd, data):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(files, "write_all", write_all)
    result = invoke("study", "export", store, name)
    assert result.exit_code == 1
    error, hint = result.stderr.splitlines()
    assert name in error
    assert "No space left" in error
    assert "free some space" in hint
    assert Path(name).read_text() == "before"
    assert [path.name for path in Path().glob("rows*")] == [name]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("rows.xlsx",), ["rows.xlsx", ".parquet", ".csv", "--format"]),
        (("rows.csv", "--format", "cvs"), ["'cvs'", "'csv'"]),
        (("no/such/rows.csv",), ["no/such", "folder"]),
        (("store", "--format", "csv"), ["store", "rows.csv"]),
    ],
)
def test_what_cannot_be_exported(invoke, store, arguments, words):
    pytest.importorskip("polars")
    result = invoke("study", "export", store, *arguments)
    assert result.exit_code == 1
    assert len(result.stderr.splitlines()) == 2
    assert all(word in result.stderr for word in words)
