"""Runs trials on a Ray cluster: one Ray task per trial, which streams its messages to here.

Import this only where Ray is wanted: it is an optional dependency.
"""

import contextlib
import functools
import inspect
import itertools
import pickle
import queue
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch

from qneurons.comparison.executor import Listener, Message, Training, naming, perform
from qneurons.comparison.process_executor import pack
from qneurons.comparison.store import Spec
from qneurons.comparison.trial import Trial, only_imports
from qneurons.study.errors import StudyError
from qneurons.study.execution import Ended, Halt
from qneurons.study.execution.ray_cluster import connected, find_workers
from qneurons.study.execution.ray_executor import POLL_S, make_pool

TRAINING = "training"


@contextlib.contextmanager
def ray_executor(
    train: Training,
    command: str,
    address: str,
    num_cpus: float,
    num_gpus: float | None,
    say: Callable[[str], None],
) -> Iterator["RayExecutor"]:
    """Connects to a cluster, and finds its workers.

    A trial gets ``num_cpus``, and uses as many threads, and ``num_gpus``, by default 1 if a node
    has a GPU; a part of one is possible.
    """
    with connected(address):
        workers = find_workers(None, num_cpus, num_gpus, halt=Halt(), notify=say, unit="trial")
        assert workers is not None
        pool = make_pool(_train, workers.needs)
        pool.share(TRAINING, pack_with_module(train))
        yield RayExecutor(pool, command, workers.num_packs)


class RayExecutor:
    """Submits trials to Ray, which queues them and starts each where there is room."""

    def __init__(self, pool: Any, command: str, num_workers: int) -> None:
        # Some wait, so that a faster or new node finds them.
        self.num_slots = 2 * num_workers
        self._pool, self._command = pool, command
        self._numbers = itertools.count()
        self._running: dict[int, Spec] = {}

    def submit(self, spec: Spec, setting: str) -> None:
        self._running[number := next(self._numbers)] = spec
        trial = setting, spec.seed, dict(spec.params)
        self._pool.submit(number, TRAINING, trial, self._command)

    def poll(self, listener: Listener) -> None:
        for number, message in self._pool.listen(POLL_S):
            spec = self._running[number]
            if isinstance(message, Ended):
                del self._running[number]
            with naming(spec):
                listener(spec, message)

    def close(self) -> None:
        self._pool.cancel(list(self._running))


def pack_with_module(train: Training) -> bytes:
    """A training as bytes, with what it uses of its own module, which the nodes may lack."""
    from ray import cloudpickle  # not above: without Ray, ray_cluster says what to install

    function: Any = train
    while isinstance(function, functools.partial):
        function = function.func
    module = sys.modules.get(inspect.unwrap(function).__module__)
    if module is None or module.__name__ == "__main__":  # is sent by value anyway
        return pack(train, cloudpickle)
    cloudpickle.register_pickle_by_value(module)
    try:
        return pack(train, cloudpickle)
    finally:
        cloudpickle.unregister_pickle_by_value(module)


# --- in a worker ----------------------------------------------------------------------------------


def _train(
    training: bytes, num_threads: int, trial: tuple[str, int, Mapping[str, Any]], command: str
) -> Iterator[Message]:
    """The training calls back, and Ray wants a generator. So the training has its own thread."""
    messages: queue.SimpleQueue[Message] = queue.SimpleQueue()

    def work() -> None:
        only_imports.set(True)
        torch.set_num_threads(num_threads)  # of this thread alone
        load = functools.partial(pickle.loads, training)
        try:
            perform(load, Trial(*trial), command, messages.put)
        except StudyError as error:
            messages.put(Ended(error=error))
        except BaseException as error:  # else nothing would end the generator
            messages.put(Ended(lost=f"the training ended its process with {error!r}"))

    threading.Thread(target=work, daemon=True).start()
    while True:
        yield (message := messages.get())
        if isinstance(message, Ended):
            return
