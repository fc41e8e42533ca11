"""Trains packs on a Ray cluster: one Ray task per pack, which streams its messages to here."""

import dataclasses
import itertools
import math
import time
import warnings
from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Any

import ray
import ray.util.client
import torch
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy
from torch import Tensor

from qneurons.study.data import ARRAYS, DATASETS, Dataset
from qneurons.study.errors import StudyError
from qneurons.study.execution.executor import (
    Ended,
    Halt,
    Message,
    Outcome,
    SaveRequest,
    Started,
    Task,
    TrainingOptions,
)
from qneurons.study.execution.jobs import Job
from qneurons.study.execution.ray_cluster import Workers, find_workers
from qneurons.study.execution.worker import run_task
from qneurons.study.packs import fitting_pack
from qneurons.study.runs import Run

POLL_S = 0.25
QUEUED_PACKS = 3  # for each that is trained at once, so that faster or new nodes find some
MARGIN_S = 5.0  # workers stop this long before the time limit, so that their results arrive


def ray_executor(
    *,
    halt: Halt,
    device: str | None = None,
    num_cpus: float = 1.0,
    num_gpus: float | None = None,
    notify: Callable[[str], None] = lambda text: None,
) -> "RayExecutor | None":
    """Finds workers on the cluster to which this process is connected; None if halted before.

    A pack gets ``num_cpus``, and uses as many threads, and ``num_gpus``, by default 1 on cuda; a
    part of one is possible. The device is cuda by default if a node has a GPU. ``notify`` receives
    a line if all workers are busy.
    """
    workers = find_workers(device, num_cpus, num_gpus, halt=halt, notify=notify)
    if workers is None:
        return None
    return RayExecutor(workers, make_pool(_train, workers.needs), halt)


class RayExecutor:
    """Submits all packs to Ray, which queues them and starts each where there is room."""

    has_room = True

    def __init__(self, workers: Workers, pool: "_Pool | _PoolOnHead", halt: Halt) -> None:
        self.device, self.halt = workers.device, halt
        self._workers, self._pool = workers, pool
        self._margin_s = min(MARGIN_S, halt.left_s / 10)
        self._numbers = itertools.count()
        self._tasks: dict[int, Task] = {}
        self._started: set[int] = set()
        self._shared: set[str] = set()  # names of datasets

    def pack_size(self, run: Run, num_runs: int) -> int:
        share = math.ceil(num_runs / (QUEUED_PACKS * self._workers.num_packs))
        shape, free = DATASETS[run.dataset].shape, self._workers.free_bytes
        return min(share, fitting_pack(run, shape, self.device, free))

    def submit(self, task: Task) -> None:
        name = task.dataset.name
        if name not in self._shared:
            arrays = {array: getattr(task.dataset, array).numpy() for array in ARRAYS}
            self._pool.share(name, arrays | {"fingerprint": task.dataset.fingerprint})
            self._shared.add(name)
        # Wall-clock time, because monotonic clocks differ between machines.
        left_s = self.halt.left_s - self._margin_s
        deadline = None if math.isinf(left_s) else time.time() + left_s
        state = _to_arrays(task.load_state())
        work = task.job, state, task.options, task.expected_s, self.device, deadline
        self._tasks[number := next(self._numbers)] = task
        self._pool.submit(number, name, *work)

    def poll(self) -> list[tuple[Task, Message]]:
        messages: list[tuple[Task, Message]] = []
        for number, message in self._pool.listen(POLL_S):
            task = self._tasks[number]
            if isinstance(message, Started):
                self._started.add(number)
            elif isinstance(message, SaveRequest):
                message = dataclasses.replace(message, state=_to_tensors(message.state))
            elif isinstance(message, Ended):
                del self._tasks[number]
            messages.append((task, message))
        if self.halt(self._margin_s):
            # At the time limit, tasks that have started may still deliver within the margin.
            is_over = self.halt.outcome is Outcome.INTERRUPTED or self.halt.left_s <= 0
            stopped = [t for n, t in self._tasks.items() if is_over or n not in self._started]
            self.cancel(stopped)
            messages += [(task, Ended()) for task in stopped]
        return messages

    def cancel(self, tasks: Collection[Task]) -> None:
        numbers = [number for number, task in self._tasks.items() if task in tasks]
        self._pool.cancel(numbers)
        for number in numbers:
            del self._tasks[number]


def make_pool(
    function: Callable[..., Iterator[Any]], needs: dict[str, float]
) -> "_Pool | _PoolOnHead":
    """Runs a function in Ray tasks with such needs, which stream what it yields, at last ``Ended``.

    It is called with what was shared, the number of threads and what was submitted.
    """
    return (_PoolOnHead if ray.util.client.ray.is_connected() else _Pool)(function, needs)


class _Pool:
    """The Ray tasks of this process."""

    def __init__(self, function: Callable[..., Iterator[Any]], needs: dict[str, float]) -> None:
        # No retries: Ray would train a lost pack from scratch, the session from its checkpoint.
        options = {"num_returns": "streaming", "max_retries": 0, **needs}
        self._train = ray.remote(function).options(**options)
        self._num_threads = max(1, int(needs["num_cpus"]))
        self._data: dict[str, Any] = {}
        self._streams: dict[int, Any] = {}

    def share(self, name: str, data: Any) -> None:
        """Puts data into the object store, from where each node fetches them once."""
        self._data[name] = ray.put(data)

    def submit(self, number: int, name: str, *work: Any) -> None:
        self._streams[number] = self._train.remote(self._data[name], self._num_threads, *work)

    def listen(self, timeout_s: float) -> list[tuple[int, Message]]:
        """The next message of every task that has one. Errors come last, so that none is lost."""
        numbers = {stream: number for number, stream in self._streams.items()}
        ray.wait(list(numbers), num_returns=1, timeout=timeout_s)
        ready, _ = ray.wait(list(numbers), num_returns=len(numbers), timeout=0)
        messages = [(numbers[stream], _next_message(stream)) for stream in ready]
        for number, message in messages:
            if isinstance(message, Ended):
                stream = self._streams.pop(number)
                if message.lost:  # it may still run out of reach, and is trained again elsewhere
                    ray.cancel(stream, force=True)
        return sorted(messages, key=lambda pair: getattr(pair[1], "error", None) is not None)

    def cancel(self, numbers: Iterable[int]) -> None:
        for number in numbers:
            if number in self._streams:  # else it has ended, and its message was not handled
                # By force, because a step may take long.
                ray.cancel(self._streams.pop(number), force=True)


def _next_message(stream: Any) -> Message:
    try:
        return ray.get(next(stream))
    except ray.exceptions.RayTaskError as error:
        if "CUDA error" in str(error.cause):  # a bad device; another node may have a better one
            return Ended(lost=f"a worker failed ({str(error.cause).splitlines()[0]})")
        return Ended(error=error.cause)
    except ray.exceptions.OutOfMemoryError:  # the monitor of the node has ended the worker
        return Ended(out_of_memory=True)
    except (ray.exceptions.RayError, StopIteration) as error:
        known = {"NodeDiedError": "a node was lost", "WorkerCrashedError": "a worker died"}
        kind = type(error).__name__
        return Ended(lost=known.get(kind, f"a task was lost ({kind})"))


class _PoolOnHead:
    """Forwards calls to a pool on the head node, because tasks cannot stream to Ray's client."""

    def __init__(self, *arguments: Any) -> None:
        head = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=True)
        actor = ray.remote(_Pool).options(num_cpus=0, scheduling_strategy=head)
        self._actor = actor.remote(*arguments)

    def __getattr__(self, name: str) -> Callable[..., Any]:
        def call(*arguments: Any) -> Any:
            try:
                return ray.get(getattr(self._actor, name).remote(*arguments))
            except (ray.exceptions.RayError, ConnectionError) as error:
                raise StudyError(
                    f"the connection to the cluster was lost ({type(error).__name__})",
                    "everything saved is kept, and the same command continues",
                ) from error

        return call


# --- in a worker ----------------------------------------------------------------------------------

Arrays = dict[str, Any] | None  # a state as Ray hands it over without copying


def _train(
    data: dict[str, Any],
    num_threads: int,
    job: Job,
    state: Arrays,
    options: TrainingOptions,
    expected_s: float | None,
    device: torch.device,
    deadline: float | None,
) -> Iterator[Message]:
    # Ray sets OMP_NUM_THREADS, which is too late for a process that has run other tasks before.
    torch.set_num_threads(num_threads)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # the arrays are read-only, and only read
        arrays = {name: torch.from_numpy(data[name]) for name in ARRAYS}
    dataset = Dataset(name=job.runs[0].dataset, fingerprint=data["fingerprint"], **arrays)
    task = Task(job, dataset, options, lambda: _to_tensors(state), expected_s)
    halt = Halt(time_limit=None if deadline is None else deadline - time.time())
    for message in run_task(task, device, halt):
        if isinstance(message, SaveRequest):
            message = dataclasses.replace(message, state=_to_arrays(message.state))
        yield message


def _to_arrays(state: dict[str, Tensor] | None) -> Arrays:
    return None if state is None else {name: tensor.numpy() for name, tensor in state.items()}


def _to_tensors(state: Arrays) -> dict[str, Tensor] | None:
    return None if state is None else {name: torch.tensor(array) for name, array in state.items()}
