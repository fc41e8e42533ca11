"""The command itself: how it is started, and what it needs."""

import subprocess
import sys

import pytest


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
    (line,) = result.stderr.splitlines()
    assert missing in line
    assert "pip install 'qneurons[study]'" in line


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
                  ["bench", "--device", "tpu"], ["bench", "--elements", "many"], ["info", "--no"]):
    assert CliRunner().invoke(cli.app, arguments).exit_code == 2, arguments
large = {"torch", "numpy", "polars", "scipy", "sklearn", "matplotlib", "ray", "triton", "jinja2"}
print(*sorted(large & set(sys.modules)))
"""
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert (run.returncode, run.stdout.split()) == (0, []), run.stderr
