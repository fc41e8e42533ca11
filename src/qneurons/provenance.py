"""Where a number comes from: versions, device, commit, command."""

import datetime
import importlib.metadata
import os
import platform
import re
import subprocess
from pathlib import Path
from typing import Any

import torch

import qneurons as qn

ORIGIN = (
    *("device", "threads", "torch", "triton", "python", "qneurons"),
    *("commit", "date", "command"),
)


def versions() -> dict[str, str]:
    try:
        triton = importlib.metadata.version("triton")
    except importlib.metadata.PackageNotFoundError:
        triton = ""
    return {
        "torch": torch.__version__,
        "triton": triton,
        "python": platform.python_version(),
        "qneurons": qn.__version__,
    }


def device_name(device: torch.device) -> str:
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    try:
        match = re.search(r"model name\s*:\s*(.+)", Path("/proc/cpuinfo").read_text())
    except OSError:
        match = None
    return match[1] if match else platform.processor() or platform.machine()


def commit() -> str:
    """The commit of the running source, with -dirty if it was changed since.

    The environment variable QNEURONS_COMMIT names it instead: where there is no git, or where the
    source was copied over a checkout of another commit.
    """
    if named := os.environ.get("QNEURONS_COMMIT"):
        return named

    def git(*arguments: str) -> str:
        command = ["git", *arguments]
        run = subprocess.run(command, cwd=Path(__file__).parent, capture_output=True, text=True)
        return run.stdout.strip()

    try:
        # An installed copy may lie inside another repository.
        ours = git("ls-files", Path(__file__).name)
        found = ours and git("describe", "--always", "--dirty", "--exclude=*")
    except OSError:  # no git
        found = ""
    return found or "unknown"


def provenance(device: torch.device, command: str) -> dict[str, Any]:
    """What is recorded beside every published number: the columns ``ORIGIN``."""
    return {
        "device": device_name(device),
        "threads": torch.get_num_threads(),
        **versions(),
        "commit": commit(),
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "command": command,
    }
