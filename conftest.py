"""Before anything is imported: Triton's kernels run on the CPU where there is no device."""

import os

import torch

if not torch.cuda.is_available():
    os.environ.setdefault("TRITON_INTERPRET", "1")  # read when a kernel is decorated
