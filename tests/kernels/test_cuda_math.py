"""The elementary functions for Triton; without a GPU, in Triton's interpreter."""

import pytest
import torch

triton = pytest.importorskip("triton")
tl = pytest.importorskip("triton.language")

from qneurons.kernels import cuda_math

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
each_dtype = pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)


@triton.jit
def kernel(x_ptr, result_ptr, function: tl.constexpr, size: tl.constexpr):
    i = tl.arange(0, size)
    tl.store(result_ptr + i, function(tl.load(x_ptr + i)))


@triton.jit
def one_with_sign(x):
    return cuda_math.copysign(tl.full(x.shape, 1.0, x.dtype), x)


FUNCTIONS = {
    "exp2": (cuda_math.exp2, torch.exp2, 10),
    "reciprocal": (cuda_math.reciprocal, torch.reciprocal, 10),
    "sin": (cuda_math.sin, torch.sin, 1000),
    "cos": (cuda_math.cos, torch.cos, 1000),
    "copysign": (one_with_sign, torch.sign, 10),
}


@each_dtype
@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_function_is_torch_s(name, dtype):
    function, expected, largest = FUNCTIONS[name]
    x = torch.linspace(-largest, largest, 512, dtype=dtype, device=DEVICE)  # without 0
    result = torch.empty_like(x)
    kernel[(1,)](x, result, function, 512)
    tolerance = 2e-6 if dtype == torch.float32 else 1e-13
    torch.testing.assert_close(result, expected(x), rtol=tolerance, atol=tolerance)


@each_dtype
def test_the_tail_of_the_normal_law(dtype):
    """From its coefficients: a wrong digit of one of them would be seen."""
    suffix = "" if dtype == torch.float32 else "_64"
    mills = getattr(cuda_math, f"MILLS{suffix}").value
    y = torch.linspace(0, 5, 100, dtype=torch.float64)
    z = y * cuda_math.GAUSS_SCALE.value
    t = 1 / (z + getattr(cuda_math, f"MILLS_ORIGIN{suffix}").value)
    p = torch.zeros_like(t)
    for coefficient in mills:
        p = p * t + coefficient
    want = 0.5 * torch.erfc(y / 2**0.5)
    tolerance = 2e-6 if dtype == torch.float32 else 2e-13
    torch.testing.assert_close(torch.exp2(-z * z) * t * p, want, rtol=tolerance, atol=0)
