"""The CUDA C++ of the convolutions in tf32: emulated on a CPU, and on the device."""

import ctypes
import shutil
import subprocess
from pathlib import Path

import pytest
import torch

from qneurons.study.data import DATASETS
from qneurons.study.networks import layers as layers_of
from qneurons.study.packs import layers, tf32_convolutions as tf32
from qneurons.study.spec import load_study

HERE = Path(__file__).parent
EMULATED = """
#include "emulated_cuda.h"
#include SOURCE
extern "C" bool run(const int* grid, int threads, int shared_bytes,
                    float* a, float* b, float* c, float* d,
                    int batch, int stride_r, int stride_c, int stride_b) {
    return launch({grid[0], grid[1], grid[2]}, threads, shared_bytes,
                  [&] { KERNEL(a, b, c, d, batch, stride_r, stride_c, stride_b); });
}
"""
LAYERS = {  # channels, features, height, width, padding
    "odd": (32, 32, 7, 5, 1),
    "wide": (32, 32, 6, 24, 0),
    "more features": (32, 64, 6, 6, 0),
    "gradient of x": (64, 32, 6, 6, 2),
    "two blocks": (64, 64, 7, 7, 1),
    "one channel": (1, 32, 9, 10, 0),
    "three channels": (3, 64, 8, 7, 1),
}


@pytest.fixture
def emulated(monkeypatch, tmp_path):
    """Lets the launching code run on CPU tensors, with gcc in place of NVRTC."""
    if shutil.which("g++") is None:
        pytest.skip("needs g++")

    def compile_emulated(source, kernel, shared_bytes):
        (tmp_path / "source.cu").write_text(source)
        (tmp_path / "run.cpp").write_text(EMULATED)
        library = tmp_path / f"{len(list(tmp_path.iterdir()))}.so"
        flags = ["-O1", "-std=c++17", "-shared", "-fPIC", "-w", f"-I{HERE}", "-o", library]
        defined = [f"-DKERNEL={kernel}", f'-DSOURCE="{tmp_path}/source.cu"']
        subprocess.run(["g++", *flags, *defined, tmp_path / "run.cpp"], check=True)
        run = ctypes.CDLL(library).run
        run.restype = ctypes.c_bool

        def launch(grid, block, args, shared):
            assert shared == shared_bytes
            values = [ctypes.c_void_p(a.data_ptr()) if torch.is_tensor(a) else a for a in args]
            assert run((ctypes.c_int * 3)(*grid), block[0], shared, *values)

        return launch

    monkeypatch.setattr(tf32, "compile_cuda", compile_emulated)
    monkeypatch.setattr(tf32, "_device", lambda device: tf32.Device(processors=1))
    tf32._kernel.cache_clear()
    yield
    tf32._kernel.cache_clear()


def exact_in_tf32(*shape):
    return torch.randint(-512, 513, shape) / 512


def expected(x, weight, bias, padding, grad):
    wide = [t.double().requires_grad_() for t in (weight, bias)]
    out = layers.convolve(x.double(), *wide, padding=padding)
    return out, torch.autograd.grad(out, wide, grad.double())


@pytest.mark.parametrize("name", LAYERS)
def test_emulated_kernels_are_exact(emulated, name):
    channels, features, height, width, padding = LAYERS[name]
    torch.manual_seed(0)
    batch = 3
    x = exact_in_tf32(2, batch, channels, height, width).transpose(1, 2)
    weight, bias = exact_in_tf32(2, features, channels, 3, 3), exact_in_tf32(2, features)
    grad = exact_in_tf32(2, features, batch, height + 2 * padding - 2, width + 2 * padding - 2)
    value, gradients = expected(x, weight, bias, padding, grad)
    torch.testing.assert_close(
        tf32.convolve(x, weight, bias, padding).double(), value, rtol=0, atol=0
    )
    for ours, theirs in zip(tf32.convolve_gradients(x, grad, padding), gradients, strict=True):
        torch.testing.assert_close(ours.double(), theirs, rtol=0, atol=0)


@pytest.mark.parametrize("kilobytes", [227, 163, 99], ids=["Hopper", "Ampere", "Ada"])
@pytest.mark.parametrize("plans", [tf32.forward_plans, tf32.gradient_plans])
def test_plans_fit_into_the_shared_memory(plans, kilobytes):
    device = tf32.Device(100, (kilobytes + 1) * 1024, kilobytes * 1024)
    for network in ("mnist-cnn", "cifar-cnn"):
        run = load_study(f"paper-{network}").runs[0]
        for layer, size in layers_of(network, DATASETS[run.dataset].shape):
            if layer.kind != "convolution":
                continue
            shape = tf32.Convolution(size[0], layer.features, *size[1:], int(layer.same))
            plan = tf32._best(plans, shape, device)
            assert plan.shared_bytes <= kilobytes * 1024
            assert plan.blocks * (plan.shared_bytes + 1024) <= (kilobytes + 1) * 1024


def test_parts_fill_the_device_once():
    assert tf32._parts(tiles=8, blocks=1, at_once=4) == 4
    assert tf32._parts(tiles=8, blocks=4, at_once=4) == 1
    assert tf32._parts(tiles=2, blocks=1, at_once=132) == 2  # no part without a tile


def test_images_must_be_aligned():
    with pytest.raises(AssertionError, match="images must begin"):
        tf32._strides(torch.empty(1 + 32 * 16)[1:].view(1, 32, 1, 4, 4))
    with pytest.raises(AssertionError, match="images must begin"):
        tf32._strides(torch.empty(32 * 17).as_strided((1, 32, 1, 4, 4), (0, 17, 17, 4, 1)))


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
@pytest.mark.parametrize("name", LAYERS)
def test_on_the_device(name, monkeypatch):
    monkeypatch.setattr(torch.backends.cuda.matmul, "allow_tf32", True)
    channels, features, height, width, padding = LAYERS[name]
    torch.manual_seed(0)
    x = torch.randn(3, channels, 5, height, width, device="cuda")
    weight = torch.randn(3, features, channels, 3, 3, device="cuda") / (9 * channels) ** 0.5
    inputs = [t.requires_grad_() for t in (x, weight, torch.randn(3, features, device="cuda"))]
    assert layers._convolutions(x, features) is tf32
    wide = [t.detach().double().requires_grad_() for t in inputs]
    ours, exact = (layers.convolve(*tensors, padding=padding) for tensors in (inputs, wide))
    grad = torch.randn_like(ours)
    results = ours, *torch.autograd.grad(ours, inputs, grad)
    references = exact, *torch.autograd.grad(exact, wide, grad.double())
    for result, reference in zip(results, references, strict=True):
        assert (result - reference).norm() < 2e-3 * reference.norm()
