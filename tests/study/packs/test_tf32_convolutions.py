"""The CUDA C++ of the convolutions in tf32: emulated on a CPU, and on the device."""

import ctypes
import shutil
import subprocess
from pathlib import Path

import pytest
import torch

from qneurons.study.packs import layers, tf32_convolutions as tf32

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
    "wide": (32, 32, 6, 23, 0),
    "more features": (32, 64, 6, 6, 0),
    "gradient of x": (64, 32, 6, 6, 2),
    "two blocks": (64, 64, 7, 7, 1),
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
    monkeypatch.setattr(tf32, "_processors", lambda device: 1)
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
