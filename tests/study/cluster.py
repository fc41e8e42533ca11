"""A cluster of several nodes on this machine, and processes that run studies on it.

All of it in processes of their own: Ray leaves files open, which is an error in a test.
"""

import contextlib
import multiprocessing
import os
import socket
import sys
from pathlib import Path

import torch

from qneurons.study.execution import Halt, LocalExecutor, run_study
from qneurons.study.store import Store

CONTEXT = multiprocessing.get_context("forkserver")
CONTEXT.set_forkserver_preload(
    ["qneurons.study.execution.session", "sklearn.datasets", "torch._dynamo"]
)


def start(environment, work, *arguments):
    process = CONTEXT.Process(target=_enter, args=(environment, work, *arguments))
    process.start()
    return process


def _enter(environment, work, *arguments):
    os.environ.update(environment)
    work(*arguments)


# --- nodes ----------------------------------------------------------------------------------------


class Nodes:
    """Three nodes with one CPU each."""

    def __init__(self, environment):
        self._connection, other = CONTEXT.Pipe()
        self._process = start(environment, _serve, other)
        other.close()
        self.address, self.client_address, *self.others = self._connection.recv()

    def add(self):
        """Gives the id of the node."""
        return self._ask("add")

    def kill(self, id):
        self._ask("kill", id)

    def shutdown(self):
        self._connection.close()
        self._process.join()

    def _ask(self, *command):
        self._connection.send(command)
        return self._connection.recv()


def _serve(connection):
    from ray.cluster_utils import Cluster

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    about = {"num_cpus": 1, "object_store_memory": 80 * 2**20}
    head = {"include_dashboard": False, "ray_client_server_port": port}
    cluster = Cluster(initialize_head=True, head_node_args=about | head)
    nodes = {node.node_id: node for node in (cluster.add_node(**about) for _ in range(2))}
    connection.send([cluster.address, f"ray://127.0.0.1:{port}", *nodes])
    try:
        while True:
            answer = None
            match connection.recv():
                case ("add",):
                    node = cluster.add_node(**about)
                    answer = node.node_id
                    nodes[answer] = node
                case ("kill", id):
                    cluster.remove_node(nodes.pop(id), allow_graceful=False)
            connection.send(answer)
    except EOFError:  # the tests are over, or were killed
        cluster.shutdown()


# --- studies --------------------------------------------------------------------------------------


def run(study, folder, executor, **options):
    options = {"precision": "fp32", "pack": 2, "checkpoint_s": 0.0} | options
    return run_study(study, Store.open(folder, create=True), executor, **options)


def run_there(connection, address, studies):
    """Runs studies on a cluster, each with its folder, time limit and options.

    Sends outcomes and events.
    """
    from qneurons.study.execution.ray_cluster import connected
    from qneurons.study.execution.ray_executor import RayExecutor, ray_executor

    with connected(address):
        found = ray_executor(halt=Halt())
        for study, folder, time_limit, options in studies:
            executor = RayExecutor(found._workers, found._pool, Halt(time_limit=time_limit))
            events = []
            outcome = run(study, folder, executor, on_event=events.append, **options)
            connection.send((outcome, events))


def run_here(study, folder):
    torch.set_num_threads(1)
    run(study, folder, LocalExecutor(torch.device("cpu")))


def compare_there(address, folder):
    """Compares settings in a training whose trials run on a cluster."""
    import qneurons as qn

    def train(trial):
        model = trial.convert(torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.ELU()))
        if (trial.setting, trial.seed) == ("c0.1", 1):
            raise ZeroDivisionError("by chance")
        for _ in range(2):
            trial.report(test_loss=model[0].weight.sum(), threads=torch.get_num_threads())

    where = {"executor": "ray", "address": address}
    qn.compare(train, ["base", "c0.1", "a1"], 2, folder, **where, say=lambda text: None)


def command(said: Path, *arguments):
    """Gives a command to the command line, of which stderr goes to a file."""
    from qneurons import cli

    with said.open("w") as file:
        os.dup2(file.fileno(), 2)
    sys.argv = ["qneurons", *map(str, arguments)]
    cli.main()


def tasks(environment):
    """The processes that train just now, on the cluster of this environment."""
    mark = f"RAY_TMPDIR={environment['RAY_TMPDIR']}\0".encode()
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # it has ended
            if (folder / "cmdline").read_bytes().startswith(b"ray::_train") and mark in (
                folder / "environ"
            ).read_bytes():
                found.append(int(folder.name))
    return found
