"""What is asked of a cluster, and what is refused; a fake one answers."""

import importlib
import socket
import sys
import types

import pytest

import qneurons
from qneurons.study.errors import StudyError
from qneurons.study.execution import Halt, Outcome


def test_without_ray_the_remedy_is_said(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    monkeypatch.delitem(sys.modules, "qneurons.study.execution.ray_cluster", raising=False)
    with pytest.raises(StudyError, match=r"--executor ray.* pip install 'qneurons\[ray\]'"):
        importlib.import_module("qneurons.study.execution.ray_cluster")


pytest.importorskip("ray")
from qneurons.study.execution import ray_cluster
from qneurons.study.execution.ray_cluster import _num_packs, connected


@pytest.mark.parametrize("scheme", ["", "ray://"])
def test_an_address_where_nothing_answers_is_refused_at_once(scheme):
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))  # and does not listen
        address = f"{scheme}127.0.0.1:{unused.getsockname()[1]}"
        with pytest.raises(StudyError, match=f"--address {address}"), connected(address):
            pass


@pytest.mark.parametrize(
    "address", ["local", "", "localhost:many", "127.0.0.1:99999999", "ray://127.0.0.1:x"]
)
def test_what_is_no_address_is_refused(address):
    with pytest.raises(
        StudyError, match=rf"--address {address} .*auto, host:port .* or ray://host:port"
    ):
        connected(address).__enter__()


def find_workers(*options, **keywords):
    return ray_cluster.find_workers(*options, **({"halt": Halt()} | keywords))


def test_packs_of_a_node():
    node = {"CPU": 8.0, "GPU": 2.0}
    assert _num_packs(node, 1.0, 0.0) == 8
    assert _num_packs(node, 3.0, 0.0) == 2
    assert _num_packs(node, 1.0, 1.0) == 2
    assert _num_packs(node, 1.0, 0.1) == 8
    assert _num_packs(node, 0.1, 0.1) == 20
    assert _num_packs({"CPU": 4.0}, 1.0, 0.5) == 0


@pytest.fixture
def fake_ray(monkeypatch):
    """Two nodes, of which one worker answers with what is in ``answer``."""
    errors = types.SimpleNamespace(RayError=type("RayError", (Exception,), {}))
    fake = types.SimpleNamespace(
        exceptions=errors,
        answer=("a", {"qneurons": qneurons.__version__}, 800),
        asked={},
        busy=False,
    )
    fake.cluster = [
        {"NodeID": "a", "Alive": True, "Resources": {"CPU": 4.0}},
        {"NodeID": "b", "Alive": True, "Resources": {"CPU": 2.0, "GPU": 2.0}},
        {"NodeID": "c", "Alive": False, "Resources": {"CPU": 99.0}},
    ]
    fake.nodes = lambda: fake.cluster

    class Remote:
        def __init__(self, function):
            pass

        def options(self, **options):
            fake.asked.update(options)
            return self

        def remote(self, kind, unit):
            fake.asked["kind"] = kind

    def get(reference):
        if isinstance(fake.answer, Exception):
            raise fake.answer
        return fake.answer

    fake.remote, fake.get = Remote, get
    fake.cancel = lambda reference, force: fake.asked.update(cancelled=force)
    fake.wait = lambda references, timeout: ([], references) if fake.busy else (references, [])
    monkeypatch.setattr(ray_cluster, "ray", fake)
    return fake


def test_memory_is_shared_by_the_packs_of_a_node(fake_ray):
    workers = find_workers("cpu", 1.0, None)
    assert (workers.device.type, workers.num_packs, workers.free_bytes) == ("cpu", 6, 200)
    assert workers.needs == {"num_cpus": 1.0, "num_gpus": 0.0}


def test_where_a_node_has_a_gpu_packs_get_one_or_a_part(fake_ray):
    workers = find_workers(None, 1.0, None)
    assert (workers.device.type, workers.num_packs, workers.free_bytes) == ("cuda", 2, 800)
    assert workers.needs == {"num_cpus": 1.0, "num_gpus": 1.0}
    assert fake_ray.asked["kind"] == "cuda"
    workers = find_workers("cuda", 0.5, 0.5)
    assert (workers.num_packs, workers.free_bytes) == (4, 400)
    assert find_workers(None, 1.0, 0.0).device.type == "cpu"
    del fake_ray.cluster[1]
    assert find_workers(None, 1.0, None).device.type == "cpu"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("cuda:1", 1.0, None), "--device .*cuda or cpu.* cuda:1"),
        (("cpu", 1.0, 1.0), "--gpus-per-pack 1 .*--device cpu"),
        (("cuda", 1.0, 0.0), "--gpus-per-pack 0 .*--device cuda"),
        (("cuda", 8.0, 1.0), r"no node .* 8 CPUs and 1 GPUs .*: CPU 4, GPU 2\)"),
        (("cuda", 1.0, 2.0), r"--gpus-per-pack 0\.5.* got 2 GPUs"),
        (("cpu", 1.5, None), r"--cpus-per-pack 2.* got 0 GPUs and 1\.5 CPUs"),
        (("cpu", 0.0, None), "got 0 GPUs and 0 CPUs"),
        (("cpu", 1e-5, None), r"0\.0001, got 0 GPUs and 1e-05 CPUs"),
    ],
)
def test_what_no_node_can_do_is_refused(fake_ray, options, message):
    with pytest.raises(StudyError, match=message):
        find_workers(*options)


def test_workers_without_the_package_or_with_another_are_refused(fake_ray):
    fake_ray.answer = fake_ray.exceptions.RayError("No module named 'qneurons'")
    with pytest.raises(StudyError, match=rf"install qneurons {qneurons.__version__}"):
        find_workers("cpu", 1.0, None)
    fake_ray.answer = "a", {"qneurons": "0.0.1"}, 800
    with pytest.raises(StudyError, match=rf"qneurons 0\.0\.1.* {qneurons.__version__}"):
        find_workers("cpu", 1.0, None)


def test_an_error_of_a_worker_is_its_own(fake_ray):
    fake_ray.answer = fake_ray.exceptions.RayError("a traceback")
    fake_ray.answer.cause = StudyError("torch sees no CUDA device; use --device cpu")
    with pytest.raises(StudyError, match=r"^torch sees no CUDA device"):
        find_workers("cpu", 1.0, None)


def test_while_all_are_busy_the_user_hears_why_and_can_stop(fake_ray, monkeypatch):
    said, now = [], [0.0]
    find_workers("cpu", 1.0, None, notify=said.append)
    assert said == []
    fake_ray.busy = True

    def tick():
        now[0] += 1.0
        return now[0]

    monkeypatch.setattr("time.monotonic", tick)
    halt = Halt(time_limit=60.0)
    assert find_workers("cpu", 1.0, None, halt=halt, notify=said.append) is None
    assert halt.outcome is Outcome.TIME_LIMIT
    assert fake_ray.asked["cancelled"]
    assert len(said) == 1
    assert "busy" in said[0]
