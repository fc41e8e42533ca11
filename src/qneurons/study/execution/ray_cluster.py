"""A Ray cluster: connecting to it, what its nodes offer, and what its workers are."""

import contextlib
import logging
import math
import socket
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch

import qneurons as qn
from qneurons.provenance import versions
from qneurons.study.errors import StudyError
from qneurons.study.execution.executor import Halt
from qneurons.study.packs.memory import free_bytes

CONNECT_S = 5.0
POLL_S = 0.5
BUSY_S = 15.0  # after which the user is told why nothing happens
LEAST = 1e-4  # of a CPU or a GPU, to Ray
CLIENT = "ray://"
CLIENT_PORT = 10001


@dataclass(frozen=True)
class Offer:
    """What the workers of a cluster are, and how many packs it trains at once."""

    device: torch.device
    slots: int
    free_bytes: int | None  # for one pack


@contextlib.contextmanager
def connected(address: str) -> Iterator[None]:
    """Connects this process to a cluster that is there, and leaves it at the end."""
    try:
        import ray
    except ModuleNotFoundError:
        raise StudyError("this needs ray: pip install 'qneurons[ray]'") from None
    _refuse_silence(address)
    try:
        ray.init(address, log_to_driver=False, logging_level=logging.ERROR)
    # Of what cannot be reached, of another version, of a client without grpcio.
    except (ConnectionError, RuntimeError, ImportError, ValueError) as error:
        raise StudyError(
            f"no Ray cluster can be used at --address {address} ({error}); start one with "
            "'ray start --head', and give its address"
        ) from error
    try:
        yield
    finally:
        ray.shutdown()


def _refuse_silence(address: str) -> None:
    """Ray itself tries for many minutes."""
    if address == "auto":
        return
    host, _, port = address.removeprefix(CLIENT).partition("/")[0].rpartition(":")
    if not host and address.startswith(CLIENT):
        host, port = port, str(CLIENT_PORT)
    try:
        if not host:  # "local" would start a cluster of its own
            raise ValueError("that is no address")
        socket.create_connection((host.strip("[]"), int(port)), CONNECT_S).close()
    except (OSError, ValueError) as error:
        raise StudyError(
            f"nothing answers at --address {address} ({error}); it is auto, host:port (6379 "
            f"unless set otherwise) or {CLIENT}host:port ({CLIENT_PORT}) of the head node"
        ) from None


def look(
    device: str | None,
    num_cpus: float,
    num_gpus: float | None,
    *,
    halt: Halt,
    say: Callable[[str], None] = lambda text: None,
) -> tuple[Offer | None, dict[str, float]]:
    """Asks a worker of the cluster what it is; with the resources to be asked for a pack.

    Where all are busy it waits for one; there is no offer if it is halted before.
    """
    import ray

    kind, needs, slots = _resources(device, num_cpus, num_gpus)
    asked = ray.remote(_worker).options(**needs, max_retries=3).remote(kind)
    start, told = time.monotonic(), False
    while not ray.wait([asked], timeout=POLL_S)[0]:
        if halt():
            ray.cancel(asked, force=True)
            return None, needs
        if not told and time.monotonic() - start > BUSY_S:
            told = True
            say("the nodes are busy: waiting until one has room for a pack")
    try:
        node, found, free = ray.get(asked)
    except ray.exceptions.RayError as error:
        if isinstance(cause := getattr(error, "cause", None), StudyError):
            raise cause from None
        if "No module named" not in str(error):
            raise
        raise StudyError(
            "the workers of the cluster cannot import qneurons or what it needs: install "
            f"qneurons {qn.__version__} on every node, in the environment in which Ray runs"
        ) from error
    if found["qneurons"] != qn.__version__:
        raise StudyError(
            f"the workers of the cluster have qneurons {found['qneurons']}, here it is "
            f"{qn.__version__}; install the same one everywhere"
        )
    if free is not None:
        share = needs["num_gpus"] if kind == "cuda" else 1 / max(1, slots.get(node, 1))
        free = int(share * free)
    return Offer(torch.device(kind), sum(slots.values()), free), needs


def _resources(
    device: str | None, num_cpus: float, num_gpus: float | None
) -> tuple[str, dict[str, float], dict[str, int]]:
    """The kind of device, what a pack is to have of Ray, and how many packs each node can take."""
    import ray

    nodes = {node["NodeID"]: node["Resources"] for node in ray.nodes() if node["Alive"]}
    kind = device or ("cuda" if any(offers.get("GPU") for offers in nodes.values()) else "cpu")
    if kind not in ("cuda", "cpu"):
        raise StudyError(f"on a cluster --device must be cuda or cpu, Ray finds which; got {kind}")
    if num_gpus is None:
        num_gpus = 1.0 if kind == "cuda" else 0.0
    if (kind == "cuda") != (num_gpus > 0):
        raise StudyError(f"--gpus-per-pack {num_gpus:g} does not go with --device {kind}")
    shares = [number for number in (num_cpus, num_gpus) if number]
    if min(shares, default=0) < LEAST or num_gpus > 1 or (num_cpus > 1 and num_cpus % 1):
        raise StudyError(
            "a pack has one GPU or a part of it (--gpus-per-pack 0.5), and whole CPUs or a part of "
            f"one (--cpus-per-pack 2), of {LEAST} at least; got {num_gpus:g} GPUs and "
            f"{num_cpus:g} CPUs"
        )
    needs = {"num_cpus": num_cpus, "num_gpus": num_gpus}
    slots = {id: _slots(offers, num_cpus, num_gpus) for id, offers in nodes.items()}
    if not any(slots.values()):
        most = ", ".join(
            f"{name} {max((offers.get(name, 0) for offers in nodes.values()), default=0):g}"
            for name in ("CPU", "GPU")
        )
        raise StudyError(
            f"no node of the cluster has {num_cpus:g} CPUs and {num_gpus:g} GPUs for a pack "
            f"(the most that one has: {most}); use another --device, --cpus-per-pack or "
            "--gpus-per-pack, or start such a node"
        )
    return kind, needs, slots


def _slots(offers: dict[str, float], num_cpus: float, num_gpus: float) -> int:
    """How many packs a node trains at once."""
    wanted = {"CPU": num_cpus, "GPU": num_gpus}
    # Tenths and thirds are rounded: ten of 0.1 do fit.
    rooms = [
        math.floor(offers.get(name, 0.0) / number + 1e-6)
        for name, number in wanted.items()
        if number
    ]
    return min(rooms)


def _worker(kind: str) -> tuple[str, dict[str, str], int | None]:
    """Runs in a worker: its node, versions and free memory."""
    import ray

    if kind == "cuda" and not torch.cuda.is_available():
        raise StudyError(
            "torch sees no CUDA device in a worker to which Ray gave one; use --device cpu, or "
            "install a torch with CUDA on the nodes"
        )
    node: Any = ray.get_runtime_context().get_node_id()
    return node, versions(), free_bytes(torch.device(kind))
