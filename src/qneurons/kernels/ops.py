"""Custom ops of the q-activation drawn from seeds, for torch.compile, vmap and fake tensors.

``qneurons::sample`` and ``qneurons::sample_backward`` are pure functions of their arguments. Their
gradients are in :mod:`qneurons.kernels.autograd`. ``qneurons::draw_seed`` is one kernel, where
Inductor needs two for ``randint``.
"""

import functools
import math
from typing import Any

import torch
from torch import Tensor

from qneurons import noise
from qneurons.activations import rows
from qneurons.kernels import dispatch
from qneurons.precision import TINY_DELTA
from qneurons.torch_internals import is_plain_memory, is_unobserved

_LAW = "Tensor seed, Tensor lam, Tensor phi, SymInt inner, str name, float[] parameters"


@functools.cache
def _num_parameters() -> dict[str, int]:
    """The number of parameters of every row that has a closed form, by its name there."""
    known = (dispatch.kernel_row(row) for row in rows())
    return {name: len(parameters) for name, parameters in known}


def _check(x: Tensor, seed: Tensor, lam: Tensor, phi: Tensor, inner: int, *row: Any) -> None:
    """Raises for arguments with which a kernel would read foreign memory or divide by zero.

    Anybody may call an op. The callers of :func:`sample` have checked their arguments.
    """
    name, parameters = row
    if _num_parameters().get(name) != len(parameters):
        known = ", ".join(f"{name} ({num})" for name, num in _num_parameters().items())
        raise ValueError(
            f"unknown row {name!r} with {len(parameters)} parameters; "
            f"the known ones with the number of their parameters: {known}"
        )
    if not x.is_floating_point():
        raise TypeError(f"x must be of a floating dtype, got {x.dtype}")
    groups = seed.numel()
    for what, values, dtypes, num in (
        ("seed", seed, [torch.int64], max(groups, 1)),
        ("lam", lam, TINY_DELTA, groups),
        ("phi", phi, TINY_DELTA, 1),
    ):
        if values.dtype not in dtypes or values.dim() != 1 or values.numel() != num:
            raise ValueError(
                f"{what} must be of {' or '.join(map(str, dtypes))} and of shape ({num},), because "
                "seed and lam have one value for each group and phi has one, "
                f"got {values.dtype} of shape {tuple(values.shape)}"
            )
        if values.device != x.device:
            raise ValueError(f"{what} must be on the device of x, {x.device}, got {values.device}")
    if inner < 1 or x.numel() % (groups * inner):
        raise ValueError(
            f"inner, the number of neighbours in a group, must be at least 1, and {groups} groups "
            f"times inner must divide the {x.numel()} elements of x, got {inner}"
        )


def _sample(x: Tensor, *law: Any) -> Tensor:
    _check(x, *law)
    return dispatch.find(dispatch.device_type(x), x.dtype, law[4]).forward(x, *law)


def _sample_backward(grad: Tensor, x: Tensor, *law: Any) -> Tensor:
    _check(x, *law)
    if grad.shape != x.shape or not grad.is_floating_point() or grad.device != x.device:
        raise ValueError(
            f"grad must have a floating dtype and the shape and device of x, {tuple(x.shape)} on "
            f"{x.device}, got {grad.dtype} of shape {tuple(grad.shape)} on {grad.device}"
        )
    return dispatch.find(dispatch.device_type(x), x.dtype, law[4]).backward(grad, x, *law)


def _batched(num_tensors: int, op: Any) -> Any:
    """The vmap rule of an op whose first ``num_tensors`` arguments have the shape of x.

    Every sample has its own groups, so a batch is one draw of more groups.
    """

    def rule(info: Any, in_dims: tuple[int | None, ...], *arguments: Any) -> tuple[Tensor, int]:
        moved = [
            argument.movedim(dim, 0)
            if dim is not None
            else argument.expand(info.batch_size, *argument.shape)
            for argument, dim in zip(arguments[: num_tensors + 3], in_dims, strict=False)
        ]
        *tensors, seed, lam, phi = moved
        inner, name, parameters = arguments[num_tensors + 3 :]
        shape, run = tensors[0].shape, seed.shape[1] * inner
        outer = math.prod(shape[1:]) // run
        # [batch, outer, groups, inner] to [outer, batch, groups, inner]
        tensors = [t.reshape(shape[0], outer, run).transpose(0, 1) for t in tensors]
        result = op(*tensors, seed.flatten(), lam.flatten(), phi[0], inner, name, parameters)
        return result.transpose(0, 1).reshape(shape), 0

    return rule


torch.library.define(
    "qneurons::draw_seed",
    "(SymInt num, *, Device device) -> Tensor",  # checkpoint looks for this argument
    # Otherwise two draws in one graph would be merged.
    tags=(torch.Tag.pt2_compliant_tag, torch.Tag.nondeterministic_seeded),
)
torch.library.define(
    "qneurons::sample", f"(Tensor x, {_LAW}) -> Tensor", tags=torch.Tag.pt2_compliant_tag
)
torch.library.define(
    "qneurons::sample_backward",
    f"(Tensor grad, Tensor x, {_LAW}) -> Tensor",
    tags=torch.Tag.pt2_compliant_tag,
)
torch.library.impl("qneurons::draw_seed", "default", noise.draw_seed)
torch.library.impl("qneurons::sample", "default", _sample)
torch.library.impl("qneurons::sample_backward", "default", _sample_backward)
torch.library.register_fake("qneurons::draw_seed", noise.draw_seed)
torch.library.register_fake("qneurons::sample", lambda x, *_: torch.empty_like(x))
torch.library.register_fake("qneurons::sample_backward", lambda _, x, *__: torch.empty_like(x))

draw_seed = torch.ops.qneurons.draw_seed.default
_sample_op = torch.ops.qneurons.sample.default
_sample_backward_op = torch.ops.qneurons.sample_backward.default
torch.library.register_vmap("qneurons::sample", _batched(1, _sample_op))
torch.library.register_vmap("qneurons::sample_backward", _batched(2, _sample_backward_op))


# Arguments are written out: for a small tensor, *law would take longer than the kernel.


def sample(
    x: Tensor,
    seed: Tensor,
    lam: Tensor,
    phi: Tensor,
    inner: int,
    name: str,
    parameters: list[float],
) -> Tensor:
    if not is_unobserved(x, seed, lam, phi):
        return _sample_op(x, seed, lam, phi, inner, name, parameters)
    backend = dispatch.find(dispatch.device_type(x), x.dtype, name)
    return backend.forward(x, seed, lam, phi, inner, name, parameters)


def sample_backward(
    grad: Tensor,
    x: Tensor,
    seed: Tensor,
    lam: Tensor,
    phi: Tensor,
    inner: int,
    name: str,
    parameters: list[float],
) -> Tensor:
    if not (is_unobserved(x, seed, lam, phi) and is_plain_memory(grad)):
        return _sample_backward_op(grad, x, seed, lam, phi, inner, name, parameters)
    backend = dispatch.find(dispatch.device_type(x), x.dtype, name)
    return backend.backward(grad, x, seed, lam, phi, inner, name, parameters)
