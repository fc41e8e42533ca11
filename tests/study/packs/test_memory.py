"""Which runs are trained together, and how many at once."""

import dataclasses

import pytest
import torch

from qneurons.study.networks import initial_state
from qneurons.study.packs import memory
from qneurons.study.packs.memory import bytes_per_run, default_pack, free_bytes

CPU, CUDA = torch.device("cpu"), torch.device("cuda")
MNIST = (1, 28, 28)


def test_a_pack_is_as_large_as_fits(make_study, monkeypatch):
    (run,) = make_study(num_seeds=1).runs
    need = bytes_per_run(run, MNIST)
    for free, cpu, cuda in [
        (need // 2, 1, 1),
        (int(5.01 * need / memory.SHARE), 5, 5),
        (int(50.01 * need / memory.SHARE), memory.CPU_PACK, 50),
        (10**15, memory.CPU_PACK, memory.CUDA_PACK),
        (None, memory.CPU_PACK, memory.CUDA_PACK),
    ]:
        monkeypatch.setattr(memory, "free_bytes", lambda device, free=free: free)
        assert default_pack(run, MNIST, CPU) == cpu
        assert default_pack(run, MNIST, CUDA) == cuda


@pytest.mark.parametrize("network", ["mnist-mlp", "mnist-cnn"])
def test_a_run_needs_room_for_its_weights_and_gradients_and_values(make_study, network):
    (run,) = make_study(num_seeds=1, network=network).runs
    weights = sum(tensor.nbytes for tensor in initial_state(network, MNIST, 0).values())
    assert bytes_per_run(run, MNIST) > 2 * weights
    larger = dataclasses.replace(run, batch_size=64 * run.batch_size)
    assert bytes_per_run(larger, MNIST) > bytes_per_run(run, MNIST)


def test_free_memory_is_read_or_unknown(monkeypatch):
    free = free_bytes(CPU)
    assert free is None or 2**20 < free < 2**50

    class Missing:
        def __init__(self, name):
            pass

        def read_text(self):
            raise FileNotFoundError

    monkeypatch.setattr(memory, "Path", Missing)
    assert free_bytes(CPU) is None


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_free_memory_of_a_gpu():
    assert 2**20 < free_bytes(CUDA) <= torch.cuda.get_device_properties(CUDA).total_memory
