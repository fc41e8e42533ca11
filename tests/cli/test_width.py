"""What the commands print on a terminal of 80 and of 120 columns: nothing is cut or split."""

import itertools
import re
import shutil
import tempfile

import pytest
import typer
from typer.testing import CliRunner

from qneurons import bench, cli

for package in ("polars", "matplotlib", "scipy", "jinja2"):
    pytest.importorskip(package)

UNBOUNDED = 1000  # columns
TRAINING = """
from torch import nn

def train(trial):
    trial.convert(nn.Sequential(nn.ELU()))
    trial.report(test_score=5 + trial.seed)
"""
COMMANDS = {  # with their exit codes
    "info": 0,
    "study list": 0,
    "study show paper": 0,
    "study show augmented-cifar": 0,
    "study status store": 0,
    "study status store --study paper-mnist-mlp": 0,
    "study run small.toml --store store --device cpu": 0,
    "study run small.toml --store new --device cpu": 0,
    "study merge store --into joined": 0,
    "study export store rows.csv": 0,
    "quickstart --device cpu": 0,
    "report store --out here": 0,
    "figures --out here": 0,
    "bench elu gelu_tanh --device cpu": 1,
    "bench elu --device cpu --wide": 1,
    "compare my_training.py:train --seeds 2": 0,
    # errors
    "study run papre": 1,
    "study show paper --only activation=elv": 1,
    "study run small.toml --store . --device cpu": 1,
    "study export store nowhere/rows.csv": 1,
    "report nowhere": 1,
    "bench elv": 1,
    "compare my_training.py:trian": 1,
}


def row(variant, which, **numbers):
    times = {"median_us": 1234.5, "p20_us": 1230.1, "p80_us": 1299.9}
    return {"variant": variant, "pass": which, **times, "to_copy": 12.345, **numbers}


def fake_rows(case, device, *, seconds):
    """The widest rows of a GPU, and a failure."""
    variants = ("plain", "snippet, compiled", "qneurons, compiled")
    rows = [
        *(row(variant, bench.FORWARD, to_plain=0.5, kernels=12) for variant in variants),
        row("mean", bench.EVALUATION, to_plain=1.0),
        row("snippet", bench.BOTH, to_plain=0.12345, bytes_kept=12 * case.elements),
        {"variant": "limit", "pass": bench.BOTH, "error": "out of memory: " + "x " * 60},
    ]
    return [case.about() | row for row in rows]


class FakeTime:
    """Every epoch takes as long."""

    calls = itertools.count()

    @classmethod
    def perf_counter(cls):
        return 0.125 * next(cls.calls)


@pytest.fixture
def shown(store, train_with, fake_pack, monkeypatch, tmp_path):
    """Runs a command on a terminal so wide, each time in a folder that looks the same."""
    train_with(fake_pack())
    (tmp_path / "my_training.py").write_text(TRAINING)
    monkeypatch.syspath_prepend(str(tmp_path))  # and takes away what the command adds
    monkeypatch.setattr("qneurons.report.write_report", lambda *_, **__: ["report.html"])
    monkeypatch.setattr("qneurons.report.figures.write_figures", lambda out, **_: [out / "a.png"])
    monkeypatch.setattr("qneurons.comparison.page.write_comparison", lambda *_: "page.html")
    monkeypatch.setattr(bench, "run", fake_rows)
    monkeypatch.setattr("qneurons.comparison.trial.time", FakeTime)
    monkeypatch.setenv("TTY_COMPATIBLE", "1")  # rich takes any file for a terminal
    monkeypatch.setenv("TERM", "xterm")

    def show(command, columns):
        with tempfile.TemporaryDirectory(dir=tmp_path) as folder:
            for name in ("small.toml", "my_training.py"):
                shutil.copy(tmp_path / name, folder)
            shutil.copytree(store, f"{folder}/store")
            monkeypatch.chdir(folder)
            monkeypatch.setenv("COLUMNS", str(columns))
            # The help is never wider than 80 columns, unless it is told to be.
            wide = {"terminal_width": columns} if columns == UNBOUNDED else {}
            result = CliRunner().invoke(cli.app, command.split(), **wide)
        # Progress, of which not all is drawn, goes to stderr.
        lasting = result.stdout if result.exit_code == 0 else result.output
        return result.exit_code, plain(result.output), words(plain(lasting))

    return show


def plain(text):
    text = text.replace("\r", "\n")  # a frame is drawn over the one before
    return re.sub(r"\x1b\[[?\d;]*[a-zA-Z]", "", text)


def words(text):
    """The distinct words, without rules, and without what differs between two calls."""
    text = " ".join(re.sub(r"[\u2500-\u259f–]", " ", text).split())
    return {word.strip(",:") for word in re.sub(r"date \S+", "", text).split()}


def helps(command, name=""):
    """The help of a command and of all its subcommands."""
    yield f"{name} --help"
    for inner, of in getattr(command, "commands", {}).items():
        yield from helps(of, f"{name} {inner}")


COMMANDS |= dict.fromkeys(helps(typer.main.get_command(cli.app)), 0)


@pytest.mark.parametrize("command", COMMANDS)
def test_no_table_is_cut_and_no_word_is_split(shown, command):
    all_words = shown(command, UNBOUNDED)[2]
    for columns in (80, 120):
        code, text, words = shown(command, columns)
        assert code == COMMANDS[command], text
        too_long = [line for line in text.splitlines() if len(line.rstrip()) > columns]
        assert not [line for line in too_long if " " in line.strip()]  # a path may be longer
        assert "…" not in text
        assert not re.search(r"--[\w-]+ <", text)  # a type, such as <float range>, says little
        assert words == all_words
