"""The command itself: how it is started, and what it needs."""

import os
import re
import subprocess
import sys

import pytest

import qneurons as qn


def test_the_module_runs_as_a_program():
    command = [sys.executable, "-m", "qneurons", "--help"]
    result = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "Usage: qneurons" in result.stdout
    for command in ("quickstart", "study", "report", "figures", "bench", "info"):
        assert command in result.stdout


@pytest.mark.parametrize("missing", ["typer", "rich"])
def test_without_its_extra_the_command_names_the_remedy(missing):
    script = f"""
import sys
sys.modules[{missing!r}] = None
from qneurons.cli import main
"""
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert result.returncode == 1
    error, hint = result.stderr.splitlines()
    assert missing in error
    assert hint == "hint: pip install 'qneurons[study]'"


def test_help_and_wrong_usage_import_no_large_package():
    """They answer at once: torch alone takes more than a second."""
    script = """
import sys
from typer.testing import CliRunner
from qneurons import cli

commands = ["quickstart", "report", "figures", "bench", "info", "study"]
actions = ["list", "show", "run", "status", "merge", "export"]
helps = [[], *([name] for name in commands), *(["study", name] for name in actions)]
for arguments in [[*parts, "--help"] for parts in helps]:
    assert CliRunner().invoke(cli.app, arguments).exit_code == 0, arguments
for arguments in (["no-such"], ["study", "run"], ["study", "run", "paper", "--pack", "0"],
                  ["bench", "--seconds", "-1"], ["info", "--no"]):
    assert CliRunner().invoke(cli.app, arguments).exit_code == 2, arguments
for arguments in (["bench", "--device", "tpu"], ["bench", "--elements", "many"]):
    assert CliRunner().invoke(cli.app, arguments).exit_code == 1, arguments
large = {"torch", "numpy", "polars", "scipy", "sklearn", "matplotlib", "ray", "triton", "jinja2"}
print(*sorted(large & set(sys.modules)))
"""
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert (run.returncode, run.stdout.split()) == (0, []), run.stderr


def test_the_version_is_shown(invoke):
    result = invoke("--version")
    assert (result.exit_code, result.stdout) == (0, f"qneurons {qn.__version__}\n")


def complete(shell, words):
    """What a shell is told to complete, in the way that its script asks."""
    asked = {
        "bash": {"COMP_WORDS": words, "COMP_CWORD": str(words.count(" "))},
        "zsh": {"_TYPER_COMPLETE_ARGS": words},
        "fish": {"_TYPER_COMPLETE_ARGS": words, "_TYPER_COMPLETE_FISH_ACTION": "get-args"},
    }[shell]
    environment = os.environ | asked | {"_QNEURONS_COMPLETE": f"complete_{shell}"}
    command = [sys.executable, "-X", "importtime", "-m", "qneurons"]
    result = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert not re.search(
        r"\| +(torch|polars)$", result.stderr, re.MULTILINE
    )  # they take their time
    return result.stdout


@pytest.mark.parametrize(
    ("shell", "words", "found"),
    [
        ("bash", "qneurons stu", {"study"}),
        ("zsh", "qneurons study run paper-mnist", {"paper-mnist-mlp", "paper-mnist-cnn"}),
        ("fish", "qneurons report store --study quick", {"quickstart"}),
        ("bash", "qneurons study export s rows --format p", {"parquet"}),
    ],
)
def test_commands_and_studies_are_completed(shell, words, found):
    text = complete(shell, words)
    assert found <= set(re.findall(r"[\w-]+", text))
    assert "augmented" not in text


def test_completion_can_be_installed(invoke):
    assert "--install-completion" in invoke("--help").stdout
