"""Packs that say where they are trained and can be held up, for tests that kill processes."""

import os
import shutil
import time
from pathlib import Path

import torch

from qneurons.study.packs import Pack

VARIABLE = "QNEURONS_WATCHED"  # the folder for it, in the environment of every process


def folder() -> Path:
    return Path(os.environ[VARIABLE])


class Watched(Pack):
    """Leaves a file with the id of its process in a folder of its node. After an epoch it waits as
    long as there is a file ``hold``.
    """

    def __init__(self, runs, *arguments, **options):
        super().__init__(runs, *arguments, **options)
        import ray

        node = folder() / ray.get_runtime_context().get_node_id()
        node.mkdir(exist_ok=True)
        (node / str(os.getpid())).touch()

    def train_epoch(self, stop=lambda: False):
        while self.epoch and (folder() / "hold").exists() and not stop():
            time.sleep(0.01)
        return super().train_epoch(stop)


class Narrow(Pack):
    """Has room for one run."""

    def __init__(self, runs, *arguments, **options):
        if len(runs) > 1:
            raise torch.OutOfMemoryError("CUDA out of memory.")
        super().__init__(runs, *arguments, **options)


def at_work() -> dict[str, int]:
    """The process that has trained last, by node."""
    files = sorted(folder().glob("*/*"), key=lambda file: file.stat().st_mtime_ns)
    return {file.parent.name: int(file.name) for file in files}


def forget() -> None:
    """Nobody is at work, nobody is held up."""
    for path in folder().iterdir():
        shutil.rmtree(path) if path.is_dir() else path.unlink()


def is_alive(process: int) -> bool:
    try:
        state = Path(f"/proc/{process}/stat").read_text()
    except OSError:
        return False
    return state.rpartition(")")[2].split()[0] != "Z"


def wait_for(condition, seconds=120):
    deadline = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < deadline, f"waited {seconds} s in vain"
        time.sleep(0.01)
    return found
