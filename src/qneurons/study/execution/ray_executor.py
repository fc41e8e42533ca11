"""Trains packs on a Ray cluster: one task a pack, of which everything is told to this process."""

import dataclasses
import itertools
import math
import time
import warnings
from collections.abc import Callable, Generator, Iterable, Iterator
from typing import Any

import torch
from torch import Tensor

from qneurons.study.data import ARRAYS, DATASETS, Dataset
from qneurons.study.errors import StudyError
from qneurons.study.execution.executor import (
    Began,
    Ended,
    Halt,
    Outcome,
    Saving,
    Task,
    Terms,
    Told,
    never,
)
from qneurons.study.execution.plan import Job
from qneurons.study.execution.ray_cluster import CLIENT, Offer, look
from qneurons.study.execution.work import work
from qneurons.study.packs.memory import fitting_pack
from qneurons.study.runs import Run

POLL_S = 0.25
PACKS_A_SLOT = 3  # so that slots that are faster, or new, find some that wait
MARGIN_S = 5.0  # before the time limit the workers stop, so that what they have arrives in time


def ray_executor(
    address: str = "auto",
    *,
    halt: Halt,
    device: str | None = None,
    num_cpus: float = 1.0,
    num_gpus: float | None = None,
    say: Callable[[str], None] = lambda text: None,
) -> "RayExecutor | None":
    """Finds workers on the cluster to which this process is connected; None if halted before.

    Args:
        address: as it was given to :func:`~qneurons.study.execution.ray_cluster.connected`.
        halt: says until when to wait for a worker.
        device: ``"cuda"`` or ``"cpu"``; without it cuda where a node has a GPU.
        num_cpus: for a pack, which has as many threads.
        num_gpus: for a pack, or a part of one; without it 1 on cuda.
        say: hears why nothing happens.
    """
    offer, needs = look(device, num_cpus, num_gpus, halt=halt, say=say)
    if offer is None:
        return None
    return RayExecutor(offer, _Afar(needs) if address.startswith(CLIENT) else _Pool(needs))


class RayExecutor:
    """Gives all packs to Ray, which queues them and starts each where there is room."""

    def __init__(self, offer: Offer, pool: "_Pool | _Afar") -> None:
        self.device, self._offer, self._pool = offer.device, offer, pool
        self._held: set[str] = set()

    def pack_size(self, run: Run, num_runs: int) -> int:
        share = math.ceil(num_runs / (PACKS_A_SLOT * self._offer.slots))
        shape, free = DATASETS[run.dataset].shape, self._offer.free_bytes
        return min(share, fitting_pack(run, shape, self.device, free))

    def train(
        self, take: Callable[[], Task | None], terms: Terms, halt: Halt
    ) -> Generator[tuple[Task, Told]]:
        margin_s = min(MARGIN_S, halt.left_s / 10)
        flights: dict[int, Task] = {}
        begun: set[int] = set()
        numbers = itertools.count()
        try:
            while True:
                while task := take():
                    flights[number := next(numbers)] = task
                    self._submit(number, task, terms, halt.left_s - margin_s)
                if not flights:
                    return
                for number, told in self._pool.listen(POLL_S):
                    if isinstance(told, Exception):
                        raise told
                    task = flights[number]
                    if isinstance(told, Began):
                        begun.add(number)
                    if isinstance(told, Ended):
                        del flights[number]
                    if isinstance(told, Saving):
                        told = dataclasses.replace(told, state=_tensors(told.state))
                    yield task, told
                if halt(margin_s):
                    if halt.outcome is Outcome.INTERRUPTED or halt.left_s <= 0:
                        return
                    waiting = flights.keys() - begun
                    self._pool.cancel(waiting)
                    for number in waiting:
                        del flights[number]
        finally:
            self._pool.cancel(flights)

    def _submit(self, number: int, task: Task, terms: Terms, left_s: float) -> None:
        name = task.dataset.name
        if name not in self._held:
            arrays = {array: getattr(task.dataset, array).numpy() for array in ARRAYS}
            self._pool.hold(name, arrays | {"fingerprint": task.dataset.fingerprint})
            self._held.add(name)
        # Monotonic clocks do not compare between machines.
        deadline = None if math.isinf(left_s) else time.time() + left_s
        state = _arrays(task.load_state())
        self._pool.submit(number, name, (task.job, state, task.expected_s, terms, deadline))


class _Pool:
    """The tasks of this process."""

    def __init__(self, needs: dict[str, float]) -> None:
        import ray

        # Ray would begin a lost pack from its start; the runner knows where it was saved last.
        options = {"num_returns": "streaming", "max_retries": 0, **needs}
        self._train = ray.remote(_train).options(**options)
        self._threads = max(1, int(needs["num_cpus"]))
        self._data: dict[str, Any] = {}
        self._streams: dict[int, Any] = {}

    def hold(self, name: str, arrays: dict[str, Any]) -> None:
        """Keeps data in the object store, from where each node fetches them once."""
        import ray

        self._data[name] = ray.put(arrays)

    def submit(self, number: int, name: str, work: "Work") -> None:
        self._streams[number] = self._train.remote(self._data[name], *work, self._threads)

    def listen(self, timeout_s: float) -> list[tuple[int, Told | Exception]]:
        """The next that each of the tasks tells, of those that have something to tell.

        Errors come last, so that what else was told is not lost with them.
        """
        import ray

        numbers = {stream: number for number, stream in self._streams.items()}
        ray.wait(list(numbers), num_returns=1, timeout=timeout_s)
        ready, _ = ray.wait(list(numbers), num_returns=len(numbers), timeout=0)
        heard = [(numbers[stream], _hear(stream)) for stream in ready]
        for number, told in heard:
            if isinstance(told, Ended):
                stream = self._streams.pop(number)
                if told.lost:  # of a task that was only lost sight of, another takes the place
                    ray.cancel(stream, force=True)
        return sorted(heard, key=lambda each: isinstance(each[1], Exception))

    def cancel(self, numbers: Iterable[int]) -> None:
        import ray

        for number in numbers:
            if number in self._streams:  # else it ended, and that was not heard to the end
                # By force: a step may take long to hear of it.
                ray.cancel(self._streams.pop(number), force=True)


def _hear(stream: Any) -> Told | Exception:
    import ray

    try:
        return ray.get(next(stream))
    except ray.exceptions.RayTaskError as error:
        if "CUDA error" in str(error.cause):  # a bad device; another node may have a better one
            return Ended(lost=f"a worker failed ({str(error.cause).splitlines()[0]})")
        return error.cause
    except ray.exceptions.OutOfMemoryError:  # the node's, whose monitor ended the worker
        return Ended(out_of_memory=True)
    except (ray.exceptions.RayError, StopIteration) as error:
        known = {"NodeDiedError": "a node was lost", "WorkerCrashedError": "a worker died"}
        kind = type(error).__name__
        return Ended(lost=known.get(kind, f"a task was lost ({kind})"))


class _Afar:
    """A pool in a process on the head node, for Ray's client, to which tasks cannot stream."""

    def __init__(self, needs: dict[str, float]) -> None:
        import ray
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        here = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=True)
        actor = ray.remote(_Pool).options(num_cpus=0, scheduling_strategy=here)
        self._pool = actor.remote(needs)

    def hold(self, name: str, arrays: dict[str, Any]) -> None:
        self._call(self._pool.hold, name, arrays)

    def submit(self, number: int, name: str, work: "Work") -> None:
        self._call(self._pool.submit, number, name, work)

    def listen(self, timeout_s: float) -> list[tuple[int, Told | Exception]]:
        return self._call(self._pool.listen, timeout_s)

    def cancel(self, numbers: Iterable[int]) -> None:
        self._call(self._pool.cancel, list(numbers))

    def _call(self, method: Any, *arguments: Any) -> Any:
        import ray

        try:
            return ray.get(method.remote(*arguments))
        except (ray.exceptions.RayError, ConnectionError) as error:
            raise StudyError(
                f"the connection to the cluster was lost ({type(error).__name__}); everything "
                "saved is kept, the same command goes on"
            ) from error


# --- in a worker ----------------------------------------------------------------------------------


Work = tuple[Job, Any, float | None, Terms, float | None]  # as below, job to deadline


def _train(
    data: dict[str, Any],
    job: Job,
    state: dict[str, Any] | None,
    expected_s: float | None,
    terms: Terms,
    deadline: float | None,
    threads: int,
) -> Iterator[Told]:
    """Trains a pack; what is told carries arrays, which Ray hands over without copying."""
    # Ray sets OMP_NUM_THREADS, which comes too late for a process that had other tasks before.
    torch.set_num_threads(threads)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # shared memory cannot be written, nor is it
        arrays = {name: torch.from_numpy(data[name]) for name in ARRAYS}
    dataset = Dataset(name=job.runs[0].dataset, fingerprint=data["fingerprint"], **arrays)
    task = Task(job, dataset, lambda: _tensors(state), expected_s)
    halt = Halt(never, None if deadline is None else deadline - time.time())
    for told in work(task, terms, halt):
        if isinstance(told, Saving):
            told = dataclasses.replace(told, state=_arrays(told.state))
        yield told


def _arrays(state: dict[str, Tensor] | None) -> Any:
    return None if state is None else {name: tensor.numpy() for name, tensor in state.items()}


def _tensors(state: dict[str, Any] | None) -> dict[str, Tensor] | None:
    return None if state is None else {name: torch.tensor(array) for name, array in state.items()}
