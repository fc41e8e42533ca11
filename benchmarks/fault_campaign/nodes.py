"""SIGKILL to nodes of a Ray cluster on this machine, again and again while it trains a study."""

import contextlib
import dataclasses
import importlib.util
import multiprocessing
import os
import random
import shutil
import tempfile
import time
from collections.abc import Iterator
from multiprocessing.connection import Connection
from pathlib import Path

from fault_campaign.processes import Command, Process, start
from fault_campaign.trials import Fault
from fault_campaign.verdict import Results, judge

LIFE_S = 6.0  # that a node lives, at most; it takes some seconds until one trains
NODE = {"num_cpus": 1, "object_store_memory": 80 * 2**20}


@dataclasses.dataclass(frozen=True)
class Nodes:
    """A cluster of three nodes, of which two can be killed."""

    environment: dict[str, str]
    address: str
    connection: Connection

    def kill(self, number: int) -> None:
        """Kills a node, and starts another in its place."""
        self.connection.send(number)
        self.connection.recv()


def killed_nodes(
    command: Command, expected: Results, folder: Path, kills: int, draw: random.Random
) -> Fault:
    fault = Fault("node of a Ray cluster killed")
    if importlib.util.find_spec("ray") is None:
        return Fault(f"{fault.name}: not tried, Ray is not installed")
    with cluster() as nodes:
        options = ("--executor", "ray", "--address", nodes.address)
        remote = dataclasses.replace(command, options=options)
        while fault.injected < kills and not fault.wrong:
            store, reported = folder / f"cluster-{fault.tried}", dict[str, int]()
            finished = False
            while not finished and not fault.wrong:
                process = start(remote, store, first=lambda: os.environ.update(nodes.environment))
                for _ in moments(process, draw):
                    if fault.injected < kills:
                        nodes.kill(draw.randrange(2))
                        reported |= process.reported
                        verdict = judge(store, expected, reported=reported)
                        fault.count(str(verdict) if verdict else None, refused=False)
                reported |= process.reported
                finished = process.code == 0
                # A pack that is lost too often ends the command with advice: it is run again.
                if not finished and process.error is None:
                    fault.wrong.append(f"exit code {process.code}: {process.said}")
            fault.tried += 1
            verdict = judge(store, expected, reported=reported, finished=True)
            if verdict:
                fault.wrong.append(f"at the end: {verdict}")
            else:
                fault.resumed += 1
    return fault


def moments(process: Process, draw: random.Random) -> Iterator[None]:
    """Yields at random moments until the process has ended."""
    while process.code is None:
        moment = time.monotonic() + draw.uniform(0, LIFE_S)
        while process.code is None and (left_s := moment - time.monotonic()) > 0:
            process.listen(left_s)
        if process.code is None:
            yield


@contextlib.contextmanager
def cluster() -> Iterator[Nodes]:
    """In a process of its own: forks of this one must not have Ray's threads."""
    folder = tempfile.mkdtemp(prefix="qn")  # the paths of sockets must be short
    environment = {
        "RAY_TMPDIR": folder,
        "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",  # on loopback, which Ray else avoids
        "OMP_NUM_THREADS": "1",
    }
    context = multiprocessing.get_context("spawn")
    connection, other = context.Pipe()
    process = context.Process(target=_serve, args=(other, environment))
    process.start()
    other.close()
    try:
        yield Nodes(environment, connection.recv(), connection)
    finally:
        connection.close()
        process.join()
        shutil.rmtree(folder, ignore_errors=True)


def _serve(connection: Connection, environment: dict[str, str]) -> None:
    os.environ.update(environment)
    from ray.cluster_utils import Cluster

    cluster = Cluster(initialize_head=True, head_node_args=NODE | {"include_dashboard": False})
    nodes = [cluster.add_node(**NODE) for _ in range(2)]
    connection.send(cluster.address)
    try:
        while True:
            number = connection.recv()
            cluster.remove_node(nodes[number], allow_graceful=False)
            nodes[number] = cluster.add_node(**NODE)
            connection.send(None)
    except EOFError:  # the campaign is over, or was killed
        cluster.shutdown()
