"""How many runs fit into the memory of a device."""

import dataclasses

import pytest
import torch

from qneurons.activations import resolve
from qneurons.study.networks import build
from qneurons.study.packs import fitting_pack, free_bytes, memory
from qneurons.study.packs.memory import bytes_per_run

CPU, CUDA = torch.device("cpu"), torch.device("cuda")
SHAPES = {"mnist-mlp": (1, 28, 28), "mnist-cnn": (1, 28, 28), "cifar-cnn": (3, 32, 32)}


def test_a_pack_is_as_large_as_fits(make_study):
    (run,) = make_study(num_seeds=1).runs
    need = bytes_per_run(run, SHAPES["mnist-mlp"])
    for free, cpu, cuda in [
        (need // 2, 1, 1),
        (int(4.99 * need / memory.SHARE), 4, 4),
        (int(5.01 * need / memory.SHARE), 5, 5),
        (int(50.01 * need / memory.SHARE), memory.CPU_PACK, 50),
        (10**15, memory.CPU_PACK, memory.CUDA_PACK),
        (None, memory.CPU_PACK, memory.CUDA_PACK),
    ]:
        assert fitting_pack(run, SHAPES["mnist-mlp"], CPU, free) == cpu
        assert fitting_pack(run, SHAPES["mnist-mlp"], CUDA, free) == cuda


def test_a_pack_needs_less_than_what_is_free(make_study):
    (run,) = make_study(num_seeds=1, network="cifar-cnn").runs
    need = bytes_per_run(run, SHAPES["cifar-cnn"])
    for free in (2 * need, 5 * need, 300 * need):
        assert 0.5 * free <= fitting_pack(run, SHAPES["cifar-cnn"], CUDA, free) * need < free


def counted(network):
    """Weights of the ordinary module (biases are too few to matter), and each layer's input."""
    module, inputs = build(network, SHAPES[network], resolve("elu")).eval(), []
    for layer in module:
        layer.register_forward_pre_hook(lambda layer, x: inputs.append(x[0].numel()))
    module(torch.zeros(1, *SHAPES[network]))
    weights = 0
    for layer in module:
        tensors = {k: v for k, v in layer.state_dict().items() if k != "num_batches_tracked"}
        if not isinstance(layer, torch.nn.BatchNorm1d | torch.nn.BatchNorm2d):
            tensors.pop("bias", None)
        weights += sum(tensor.numel() for tensor in tensors.values())
    return weights, inputs


@pytest.mark.parametrize("network", SHAPES)
def test_a_run_needs_copies_of_its_weights_and_of_its_values(make_study, network):
    """In float32: of the values of a step, or of the largest layer in evaluation."""
    (run,) = make_study(num_seeds=1, network=network).runs
    weights, inputs = counted(network)
    images = 1024
    while images * max(inputs) > 2**23:
        images //= 2
    for batch_size in (1, 64, 4096):
        step = memory.COPIES_OF_VALUES * batch_size * sum(inputs)
        evaluated = memory.COPIES_OF_EVALUATED * images * max(inputs)
        expected = 4 * (memory.COPIES_OF_WEIGHTS * weights + max(step, evaluated))
        run = dataclasses.replace(run, batch_size=batch_size)
        assert bytes_per_run(run, SHAPES[network]) == expected
    assert step > evaluated  # so both are tested
    moving = dataclasses.replace(run, momentum=0.9)  # velocities, here and in the state
    assert bytes_per_run(moving, SHAPES[network]) == expected + 4 * 2 * weights


@pytest.mark.parametrize(
    ("content", "free"),
    [
        ("MemTotal:  9 kB\nMemAvailable:   7 kB\n", 7 * 1024),
        ("MemTotal:  9 kB\n", None),
        (None, None),
    ],
)
def test_free_memory_is_read_or_unknown(monkeypatch, tmp_path, content, free):
    file = tmp_path / "meminfo"
    if content is not None:
        file.write_text(content)
    monkeypatch.setattr(memory, "Path", lambda name: {"/proc/meminfo": file}[name])
    assert free_bytes(CPU) == free


def test_free_memory_of_this_machine():
    free = free_bytes(CPU)
    assert free is None or 2**20 < free < 2**50


def test_free_memory_of_a_gpu_is_not_all_that_it_has(monkeypatch):
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: {CUDA: (3, 9)}[device])
    assert free_bytes(CUDA) == 3


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_free_memory_of_a_gpu():
    assert 2**20 < free_bytes(CUDA) <= torch.cuda.get_device_properties(CUDA).total_memory
