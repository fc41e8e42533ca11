"""Connects to a Ray cluster, and finds out what its workers are and how many packs they train.

Import this only where Ray is wanted: it is an optional dependency.
"""

import contextlib
import logging
import math
import socket
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch

import qneurons as qn
from qneurons.provenance import versions
from qneurons.study.errors import StudyError, install
from qneurons.study.execution.executor import Halt
from qneurons.study.packs import free_bytes

try:
    import ray
except ModuleNotFoundError:
    raise StudyError("--executor ray needs Ray", install("ray")) from None

CONNECT_S = 5.0
POLL_S = 0.5
BUSY_S = 15.0  # after this the user is told why nothing happens
MIN_SHARE = 1e-4  # of a CPU or a GPU that Ray can give
CLIENT = "ray://"
CLIENT_PORT = 10001


@dataclass(frozen=True)
class Workers:
    """What the workers of a cluster are, and how many packs they train at once."""

    device: torch.device
    num_packs: int
    free_bytes: int | None  # for one pack
    needs: dict[str, float]  # what Ray is asked for to train one pack


@contextlib.contextmanager
def connected(address: str) -> Iterator[None]:
    """Connects this process to a running cluster, and disconnects it at the end.

    A process that is connected already stays so.
    """
    if ray.is_initialized():
        yield
        return
    _check_reachable(address)
    try:
        ray.init(address, log_to_driver=False, logging_level=logging.ERROR)
    # Not reachable, another version, or a client without grpcio.
    except (ConnectionError, RuntimeError, ImportError, ValueError) as error:
        raise StudyError(
            f"cannot use a Ray cluster at --address {address} ({error})",
            "start one with 'ray start --head', and give its address",
        ) from error
    try:
        yield
    finally:
        ray.shutdown()


def _check_reachable(address: str) -> None:
    """Fails within seconds, where Ray would try for many minutes."""
    if address == "auto":
        return
    host, _, port = address.removeprefix(CLIENT).partition("/")[0].rpartition(":")
    if not host and address.startswith(CLIENT):
        host, port = port, str(CLIENT_PORT)
    try:
        if not host:  # with "local" Ray would start a cluster of its own
            raise ValueError("that is no address")
        socket.create_connection((host.strip("[]"), int(port)), CONNECT_S).close()
    except (OSError, ValueError) as error:
        raise StudyError(
            f"nothing answers at --address {address} ({error})",
            f"it must be auto, host:port (port 6379 by default) or {CLIENT}host:port (port "
            f"{CLIENT_PORT}) of the head node",
        ) from None


def find_workers(
    device: str | None,
    num_cpus: float,
    num_gpus: float | None,
    *,
    halt: Halt,
    notify: Callable[[str], None] = lambda text: None,
    unit: str = "pack",
) -> Workers | None:
    """Asks a worker what it is. If all are busy, it waits; None if it is halted before.

    ``unit`` is what messages call the thing that is trained.
    """
    kind, needs, slots = _resources(device, num_cpus, num_gpus, unit)
    answer = ray.remote(_describe_worker).options(**needs, max_retries=3).remote(kind, unit)
    start, was_notified = time.monotonic(), False
    while not ray.wait([answer], timeout=POLL_S)[0]:
        if halt():
            ray.cancel(answer, force=True)
            return None
        if not was_notified and time.monotonic() - start > BUSY_S:
            was_notified = True
            notify(f"all nodes are busy: waiting until one has room for a {unit}")
    try:
        node, found, free = ray.get(answer)
    except ray.exceptions.RayError as error:
        if isinstance(cause := getattr(error, "cause", None), StudyError):
            raise cause from None
        if "No module named" not in str(error):
            raise
        raise StudyError(
            "the workers of the cluster cannot import qneurons or a package that it needs",
            f"install qneurons {qn.__version__} on every node, in the environment in which Ray "
            "runs",
        ) from error
    if found["qneurons"] != qn.__version__:
        raise StudyError(
            f"the workers of the cluster have qneurons {found['qneurons']}, and this process has "
            f"{qn.__version__}",
            "install the same version everywhere",
        )
    if free is not None:
        share = needs["num_gpus"] if kind == "cuda" else 1 / max(1, slots.get(node, 1))
        free = int(share * free)
    return Workers(torch.device(kind), sum(slots.values()), free, needs)


def _resources(
    device: str | None, num_cpus: float, num_gpus: float | None, unit: str
) -> tuple[str, dict[str, float], dict[str, int]]:
    """The kind of device, what Ray is asked for per pack, and how many packs each node trains."""
    nodes = {node["NodeID"]: node["Resources"] for node in ray.nodes() if node["Alive"]}
    has_gpu = any(has.get("GPU") for has in nodes.values())
    kind = device or ("cuda" if (has_gpu if num_gpus is None else num_gpus > 0) else "cpu")
    if kind not in ("cuda", "cpu"):
        raise StudyError(
            f"on a cluster --device must be cuda or cpu, and Ray chooses which GPU, got {kind}"
        )
    if num_gpus is None:
        num_gpus = 1.0 if kind == "cuda" else 0.0
    if (kind == "cuda") != (num_gpus > 0):
        raise StudyError(
            f"--gpus-per-{unit} {num_gpus:g} contradicts --device {kind}", "leave one of them out"
        )
    shares = [number for number in (num_cpus, num_gpus) if number]
    if min(shares, default=0) < MIN_SHARE or num_gpus > 1 or (num_cpus > 1 and num_cpus % 1):
        raise StudyError(
            f"a {unit} gets one GPU or a part of it (--gpus-per-{unit} 0.5), and whole CPUs or a "
            f"part of one (--cpus-per-{unit} 2), at least {MIN_SHARE}, got {num_gpus:g} GPUs and "
            f"{num_cpus:g} CPUs"
        )
    slots = {id: _num_packs(has, num_cpus, num_gpus) for id, has in nodes.items()}
    if not any(slots.values()):
        most = ", ".join(
            f"{name} {max((has.get(name, 0) for has in nodes.values()), default=0):g}"
            for name in ("CPU", "GPU")
        )
        raise StudyError(
            f"no node of the cluster has {num_cpus:g} CPUs and {num_gpus:g} GPUs for a {unit} (at "
            f"most: {most})",
            f"use another --cpus-per-{unit} or --gpus-per-{unit}, or start such a node",
        )
    return kind, {"num_cpus": num_cpus, "num_gpus": num_gpus}, slots


def _num_packs(has: dict[str, float], num_cpus: float, num_gpus: float) -> int:
    """How many packs a node with these resources trains at once."""
    needs = {"CPU": num_cpus, "GPU": num_gpus}
    # Rounded up a little: ten times 0.1 fits into 1.
    return min(math.floor(has.get(name, 0.0) / need + 1e-6) for name, need in needs.items() if need)


def _describe_worker(kind: str, unit: str) -> tuple[str, dict[str, str], int | None]:
    """In a worker: its node, versions and free memory."""
    if kind == "cuda" and not torch.cuda.is_available():
        raise StudyError(
            "torch finds no CUDA device in a worker to which Ray gave one",
            f"use --gpus-per-{unit} 0, or install torch with CUDA on the nodes",
        )
    node: str = ray.get_runtime_context().get_node_id()
    return node, versions(), free_bytes(torch.device(kind))
