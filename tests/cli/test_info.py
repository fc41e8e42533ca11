"""``qneurons info``."""

import os
import subprocess
import sys

import pytest
import torch
from typer.testing import CliRunner

import qneurons as qn
from qneurons import cli


def test_info_names_versions_devices_and_backends():
    result = CliRunner().invoke(cli.app, ["info"])
    assert result.exit_code == 0, result.output
    cuda = "cuda is served by" if torch.cuda.is_available() else "no device"
    for text in (qn.__version__, torch.__version__, "threads", "cpu is served by", cuda):
        assert text in result.output


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")
def test_an_output_that_is_full_is_one_line():
    with open("/dev/full", "w") as full:
        command = [sys.executable, "-m", "qneurons", "info"]
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True)
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    assert done.stderr.startswith("error: ")
    assert "No space left" in done.stderr
