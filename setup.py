"""Builds the CPU kernel, one library for each instruction set; without a compiler, none."""

import platform

from setuptools import Extension, setup

KERNELS = "src/qneurons/kernels/"
FLAGS = [
    "-std=gnu11",  # GNU's vector types, for the products of Philox
    "-O3",
    # Not -ffast-math: NaN and infinity must keep their meaning, and sums that round to an integer
    # their order.
    "-ffp-contract=fast",  # a * b + c in one rounding
    "-fno-math-errno",  # a square root sets no errno, so it is one instruction
    "-fno-trapping-math",  # exception flags are not read, so both sides of a ?: may be computed
]
HEADERS = ("math", "rows", "limits", "matrices", "means")
AVX2 = ["-mavx2", "-mfma"]
AVX512 = ["-mavx512f", "-mavx512vl", "-mavx512bw", "-mavx512dq", "-mprefer-vector-width=512"]

builds = {"portable": []}
if platform.machine() in ("x86_64", "AMD64"):
    builds |= {"avx2": AVX2, "avx512": AVX2 + AVX512}

setup(
    ext_modules=[
        Extension(
            f"qneurons.kernels._native_{name}",
            [KERNELS + "cpu.c"],
            depends=[KERNELS + f"cpu_{part}.h" for part in HEADERS],
            define_macros=[("BUILD", name)],
            extra_compile_args=FLAGS + flags,
            optional=True,
        )
        for name, flags in builds.items()
    ]
)
