"""``qneurons info``."""

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
