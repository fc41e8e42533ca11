"""Whatever is wrong: a line, a hint, an exit code, and nothing recorded is lost."""

import json
import os
import re
import resource
from pathlib import Path

import numpy as np
import pytest
import torch

from qneurons.study.store import Store


def refused(result, *words, code=1):
    """That the answer is a line and at most a hint, and not a traceback."""
    assert result.exit_code == code, result.output
    assert isinstance(result.exception, SystemExit)
    assert result.stdout == ""
    assert re.fullmatch(r"error: .*\n(hint: .*\n)?", result.stderr)
    for word in words:
        assert word in result.stderr


def journal(store):
    return (store / "journal.jsonl").read_bytes()


@pytest.fixture
def run(invoke, store, train_with, fake_pack):
    """Runs a study on a store that has records already."""
    train_with(fake_pack())
    common = ("--store", store, "--device", "cpu")
    return lambda name, *options: invoke("study", "run", name, *common, *options)


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("learning_rate", "learning_rat", ["small.toml", "learning_rat", "learning_rate"]),
        ('"digits"', '"digit"', ["small.toml", "dataset", "'digit'", "'digits'"]),
        ('"mnist-mlp"', '"mnist-mpl"', ["small.toml", "network", "'mnist-mpl'", "'mnist-mlp'"]),
        ('"c0.1"', '"c-1"', ["small.toml", "setting", "'c-1'", "c0.02"]),
        ('"elu"', '"elv"', ["small.toml", "activation", "'elv'", "'elu'"]),
        ("epochs = 4", "epochs = 0", ["small.toml", "epochs", "0"]),
        ("batch_size = 64", 'batch_size = "64"', ["small.toml", "batch_size", "'64'"]),
        ("learning_rate = 0.05", "learning_rate = nan", ["learning_rate", "nan"]),
        ("seeds = 3", "seeds = ", ["small.toml", "line 3"]),
    ],
)
def test_a_study_with_a_mistake(run, store, write_spec, old, new, words):
    before = journal(store)
    refused(run(write_spec((old, new))), *words)
    assert journal(store) == before


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--only", "netwrok=mnist-mlp"], ["netwrok", "'network'"]),
        (["--only", "activation=relu"], ["relu", "elu, tanh"]),
        (["--only", "activation"], ["key=value"]),
        (["--seeds", "9-0"], ["9-0", "0,3,5-7"]),
        (["--epochs", "0"], ["epochs", "0"]),
        (["--precision", "fp16"], ["fp16", "bf16"]),
        (["--precision", "tf32"], ["--precision fp32"]),
        (["--device", "tpu"], ["'tpu'", "cpu"]),
    ],
)
def test_an_impossible_option(run, store, write_spec, options, words):
    before = journal(store)
    refused(run(write_spec(), *options), *words)
    assert journal(store) == before


@pytest.mark.parametrize("option", [("--pack", "0"), ("--time-limit", "-1"), ("--epochs", "x")])
def test_wrong_usage_exits_with_2(run, write_spec, option):
    assert run(write_spec(), *option).exit_code == 2


def test_an_unknown_study(run):
    refused(run("quikstart"), "quikstart", "'quickstart'")
    refused(run("missing.toml"), "missing.toml")


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
def test_a_gpu_that_is_not_there(run, write_spec):
    refused(run(write_spec(), "--device", "cuda"), "no CUDA device", "--device cpu")


# --- stores ---------------------------------------------------------------------------------------

ON_A_STORE = [
    ("study", "run", "small.toml", "--device", "cpu", "--store"),
    ("study", "status"),
    ("study", "merge", "--into", "joined"),
    ("report",),
]


def edit_version(store):
    header = json.loads((store / "store.json").read_text())
    (store / "store.json").write_text(json.dumps(header | {"version": 999}))


def flip_a_byte(store):
    data = bytearray(journal(store))
    data[len(data) // 2] ^= 1
    (store / "journal.jsonl").write_bytes(data)


def truncate(store):
    data = journal(store)
    (store / "journal.jsonl").write_bytes(data[: len(data) // 2])


@pytest.mark.parametrize("command", ON_A_STORE)
@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (edit_version, ["999"]),
        (flip_a_byte, ["journal.jsonl", "line"]),
        (truncate, ["journal.jsonl", "truncated"]),
    ],
)
def test_a_store_of_another_version_or_damaged(invoke, store, command, damage, words):
    damage(store)
    before = journal(store)
    refused(invoke(*command, store), *words)
    assert journal(store) == before


@pytest.mark.parametrize("command", ON_A_STORE[1:])
def test_a_store_that_is_not_there(invoke, tmp_path, command):
    refused(invoke(*command, "nowhere"), "nowhere")
    assert not (tmp_path / "nowhere").exists()


def test_a_folder_of_something_else_is_no_place_for_a_store(invoke, write_spec, tmp_path):
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "chapter.tex").write_text("x")
    refused(invoke("study", "run", write_spec(), "--store", "thesis", "--device", "cpu"), "thesis")
    assert os.listdir("thesis") == ["chapter.tex"]


def test_a_full_disk_loses_nothing_that_was_saved(run, store, write_spec, invoke):
    before = journal(store)
    dropout = write_spec(("dropout = false", "dropout = true"))
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (len(before) + 5_000, hard))
    try:
        refused(run(dropout), "space", "the same command again")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert journal(store).startswith(before)
    assert len(Store.open(store).runs()) == 12
    assert run(dropout).exit_code == 0
    assert len(Store.open(store).runs()) == 24


def test_a_folder_that_may_not_be_written(invoke, write_spec, tmp_path):
    folder = Path("/sys") if os.geteuid() == 0 else tmp_path / "locked"
    if os.geteuid() != 0:
        folder.mkdir(mode=0o555)
    result = invoke("study", "run", write_spec(), "--store", folder / "s", "--device", "cpu")
    refused(result, str(folder / "s"), "another folder")


# --- data -----------------------------------------------------------------------------------------


def small_mnist(**changes):
    arrays = {
        "x_train": np.zeros((60000, 28, 28), np.uint8),
        "y_train": np.zeros(60000, np.uint8),
        "x_test": np.zeros((10000, 28, 28), np.uint8),
        "y_test": np.zeros(10000, np.uint8),
    }
    return arrays | changes


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"x_train": np.zeros((60000, 28, 27), np.uint8)}, ["x_train", "27"]),
        ({"x_test": np.zeros((10000, 28, 28), np.float32)}, ["x_test", "float32", "uint8"]),
        ({"y_test": np.zeros(9999, np.uint8)}, ["y_test", "9999"]),
        ({"y_train": np.full(60000, 10, np.uint8)}, ["y_train", "10"]),
    ],
)
def test_data_of_the_wrong_shape_type_or_content(invoke, write_spec, tmp_path, changes, words):
    np.savez(tmp_path / "mnist.npz", **small_mnist(**changes))
    spec = write_spec(('"digits"', '"mnist"'))
    command = ("study", "run", spec, "--data-dir", tmp_path, "--store", "s", "--device", "cpu")
    refused(invoke(*command), "mnist.npz", *words)


def test_data_that_was_cut_off(invoke, write_spec, tmp_path):
    np.savez_compressed(tmp_path / "mnist.npz", **small_mnist())
    data = (tmp_path / "mnist.npz").read_bytes()
    (tmp_path / "mnist.npz").write_bytes(data[:-100])
    spec = write_spec(('"digits"', '"mnist"'))
    command = ("study", "run", spec, "--data-dir", tmp_path, "--store", "s", "--device", "cpu")
    refused(invoke(*command), "mnist.npz")


# --- faults of our own ----------------------------------------------------------------------------


def test_a_fault_of_the_program_is_one_line_too_unless_debugged(
    run, write_spec, train_with, fake_pack
):
    def on_step(pack):
        raise ZeroDivisionError("none of this\nwas foreseen")

    train_with(fake_pack(on_step=on_step))
    spec = write_spec(("dropout = false", "dropout = true"))
    refused(run(spec), "ZeroDivisionError", "none of this was foreseen", "--debug")
    result = run(spec, "--debug")
    assert result.exit_code == 1
    assert isinstance(result.exception, ZeroDivisionError)
