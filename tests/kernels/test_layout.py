"""Which tensors a kernel reads as they lie in memory."""

import pytest
import torch

from qneurons.kernels.layout import as_matrices


@pytest.mark.parametrize(
    ("make", "matrices"),
    [
        (lambda: torch.empty(3, 4, 5), (1, 1)),
        (lambda: torch.empty(()), (1, 1)),
        (lambda: torch.empty(4, 5).t(), (4, 5)),
        (lambda: torch.empty(2, 3, 4, 5).to(memory_format=torch.channels_last), (20, 3)),
        (lambda: torch.empty(2, 3, 2, 4, 5).to(memory_format=torch.channels_last_3d), (40, 3)),
        (lambda: torch.empty(1, 3, 4, 5).to(memory_format=torch.channels_last), (20, 3)),
        (lambda: torch.empty(6, 4)[::2], None),
        (lambda: torch.empty(1, 4).expand(3, 4), None),
        (lambda: torch.empty(2, 3, 4, 5).permute(3, 1, 0, 2), None),
    ],
)
def test_which_memory_is_a_batch_of_matrices(make, matrices):
    assert as_matrices(make()) == matrices
