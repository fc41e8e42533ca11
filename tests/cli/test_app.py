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
    assert result.stderr.strip() == (
        f"the qneurons command needs {missing}, which is not installed: "
        "pip install 'qneurons[study]'"
    )
