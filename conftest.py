"""Before anything is imported: what the tests do without a device or an optional library."""

import importlib.util
import os

# Most tensors here are small, and a second thread would only be waited for: on busy cores for
# minutes. The tests of threads ask for their number themselves.
os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch

if not torch.cuda.is_available():
    # Triton's kernels run on the CPU; read when a kernel is decorated.
    os.environ.setdefault("TRITON_INTERPRET", "1")

# Their tests skip themselves, but doctests are collected by importing the source.
_NEEDS = {
    "polars": "src/qneurons/report/*.py",
    "ray": "src/qneurons/*/ray_*.py",
    "transformers": "src/qneurons/integrations/hugging_face.py",
    "timm": "src/qneurons/integrations/timm.py",
    "lightning": "src/qneurons/integrations/lightning.py",
}
collect_ignore_glob = [glob for name, glob in _NEEDS.items() if not importlib.util.find_spec(name)]
