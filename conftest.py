"""Before anything is imported: what the tests can do without a device, and without polars."""

import importlib.util
import os

# Most tensors here are small, and a second thread would only be waited for: on busy cores for
# minutes. The tests of threads ask for their number themselves.
os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch

if not torch.cuda.is_available():
    # Triton's kernels run on the CPU; read when a kernel is decorated.
    os.environ.setdefault("TRITON_INTERPRET", "1")

# Its tests skip themselves, but doctests are collected by importing the source.
collect_ignore_glob = [] if importlib.util.find_spec("polars") else ["src/qneurons/report/*.py"]
