"""Tensors that hold plain ones, whose elements a q-activation maps one by one.

They are jagged nested tensors and the ``DTensor`` of ``torch.distributed``.
"""

import sys
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from qneurons.torch_internals import ragged_dim


def is_container(x: Tensor) -> bool:
    return type(x) is not Tensor and (x.layout == torch.jagged or _is_distributed(x))


def map_inside(x: Any, function: Callable[[Tensor], Tensor]) -> Any:
    """Applies a function of elements to the plain tensor in a container."""
    if not _is_distributed(x):
        return torch.nested.nested_tensor_from_jagged(
            function(x.values()), x.offsets(), x.lengths(), ragged_dim(x)
        )
    x = _without_sums(x)
    return type(x).from_local(
        function(x.to_local()), x.device_mesh, x.placements, shape=x.shape, stride=x.stride()
    )


def map_with_seed(
    x: Any, function: Callable[[Tensor, Tensor | None], Tensor], seed: Tensor | None
) -> Any:
    """The same for a function that draws: shards have different seeds, and replicas the same."""
    if not _is_distributed(x):
        return map_inside(x, lambda values: function(values, seed))
    x, mesh = _without_sums(x), x.device_mesh
    if seed is None:
        seed = torch.randint(2**63 - 1, (1,), device=x.to_local().device)
    from torch.distributed.tensor import DTensor, Replicate

    everywhere = [Replicate()] * mesh.ndim
    seed = DTensor.from_local(seed, mesh, everywhere, run_check=True).to_local()  # the first rank's
    shard = 0
    for dim, placement in enumerate(x.placements):
        if placement.is_shard():
            shard = shard * mesh.size(dim) + mesh.get_local_rank(dim)
    return map_inside(x, lambda local: function(local, seed ^ shard))


def _is_distributed(x: Any) -> bool:
    module = sys.modules.get("torch.distributed.tensor")  # nobody has one before it is imported
    return module is not None and isinstance(x, module.DTensor)


def _without_sums(x: Any) -> Any:
    """Partial sums are added up, because a q-activation is not linear."""
    if not any(placement.is_partial() for placement in x.placements):
        return x
    from torch.distributed.tensor import Replicate

    placements = [Replicate() if one.is_partial() else one for one in x.placements]
    return x.redistribute(placements=placements)
