"""Runs trials in worker processes, each with a GPU of its own where there are several."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from multiprocessing.connection import Pipe, wait
from typing import Any

import torch

from qneurons.comparison.executor import Failed, Listener, Message, Training, naming
from qneurons.comparison.store import Spec
from qneurons.study.errors import StudyError
from qneurons.study.execution import Ended

POLL_S = 0.25
PATIENCE_S = 10.0  # for idle workers to end by themselves, with what they registered by atexit
CODE = """
import sys
sys.path[:], sys.argv[:] = {path!r}, {argv!r}
from qneurons.comparison.worker import serve
serve({fd}, {parent}, {command!r})
"""


class ProcessExecutor:
    """Runs as many trials at once as there are processes. A process that ends is replaced."""

    def __init__(self, train: Training, command: str, num_processes: int) -> None:
        import cloudpickle  # type: ignore[import-untyped]

        self.num_slots = num_processes
        self._training, self._command = pack(train, cloudpickle), command
        self._workers: dict[int, _Worker] = {}  # by slot
        self._running: dict[int, Spec] = {}  # by slot

    def submit(self, spec: Spec, setting: str) -> None:
        slot = min({*range(self.num_slots)} - {*self._running})
        worker = self._workers.get(slot)
        if worker is None or not worker.is_usable():
            if worker is not None:
                worker.end(at_once=True)
                worker.join()
            variables = worker_variables(slot, self.num_slots)
            worker = self._workers[slot] = _Worker(variables, self._command, self._training)
        worker.send((setting, spec.seed, dict(spec.params)))
        self._running[slot] = spec

    def poll(self, listener: Listener) -> None:
        wait([self._workers[slot].connection for slot in self._running], POLL_S)
        for slot, spec in list(self._running.items()):
            for message in self._workers[slot].messages():
                if isinstance(message, Ended):
                    del self._running[slot]
                with naming(spec):
                    listener(spec, message)

    def close(self) -> None:
        for slot, worker in self._workers.items():
            worker.end(at_once=slot in self._running)
        deadline = time.monotonic() + PATIENCE_S
        for worker in self._workers.values():
            worker.join(deadline - time.monotonic())


class _Worker:
    """A process, and the connection to it.

    It is a new program rather than a fork, which could not use CUDA, or threads, after this process
    has. It has a group of its own, so that Ctrl-C reaches this process alone.
    """

    def __init__(self, variables: Mapping[str, str], command: str, training: bytes) -> None:
        self.connection, theirs = Pipe()
        about = {"path": sys.path, "argv": sys.argv, "command": command}
        code = CODE.format(**about, fd=theirs.fileno(), parent=os.getpid())
        self._process = subprocess.Popen(
            [sys.executable, "-u", "-c", code],  # what the training prints is seen at once
            env=os.environ | variables,
            stdin=subprocess.DEVNULL,
            pass_fds=[theirs.fileno()],
            process_group=0,
        )
        theirs.close()
        self._has_failed = False
        with contextlib.suppress(OSError):  # it has ended, as messages() will tell
            self.connection.send_bytes(training)

    def is_usable(self) -> bool:
        # After a CUDA error a process cannot use its GPU any more.
        return not self._has_failed and self._process.poll() is None

    def send(self, trial: tuple[Any, ...]) -> None:
        with contextlib.suppress(OSError):
            self.connection.send(trial)

    def messages(self) -> Iterator[Message]:
        """Those that have arrived since the last call."""
        status = self._process.poll()  # first, because it may send until it ends
        with contextlib.suppress(EOFError, OSError):
            while self.connection.poll():
                message = self.connection.recv()
                self._has_failed |= isinstance(message, Failed)
                yield message
                if isinstance(message, Ended):
                    return
        if status is not None:
            how = f"signal {signal.Signals(-status).name}" if status < 0 else f"status {status}"
            yield Ended(lost=f"its process ended with {how}")

    def end(self, *, at_once: bool) -> None:
        self.connection.close()  # ends an idle worker
        if at_once and self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)  # with the workers of a DataLoader

    def join(self, patience_s: float = 0.0) -> None:
        try:
            self._process.wait(patience_s)
        except subprocess.TimeoutExpired:
            self.end(at_once=True)
            self._process.wait()


def worker_variables(slot: int, num_processes: int) -> dict[str, str]:
    """The environment of a worker: a GPU, if there are any, and its share of the CPU's threads."""
    share = str(max(1, torch.get_num_threads() // num_processes))
    variables = {"OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", share)}
    if num_gpus := torch.cuda.device_count():
        given = os.environ.get("CUDA_VISIBLE_DEVICES")
        gpus = given.split(",") if given else [str(gpu) for gpu in range(num_gpus)]
        variables["CUDA_VISIBLE_DEVICES"] = gpus[slot % num_gpus]
    return variables


def pack(train: Training, cloudpickle: Any) -> bytes:
    """A training as bytes: by its name if it can be imported, and by value otherwise."""
    try:
        packed: bytes = cloudpickle.dumps(train)
    except Exception as error:
        raise StudyError(
            f"the training cannot be sent to another process ({error})",
            "make such objects inside it, put it into a file of its own and import it, or use "
            "processes=0",
        ) from None
    return packed
