"""Custom ops of the q-activation, drawn from seeds or in the limit, for tracers, vmap and so on.

``qneurons::sample``, ``qneurons::limit`` and their ``_backward`` are pure functions of their
arguments. Their gradients are in :mod:`qneurons.kernels.autograd`. ``qneurons::recorded_sample`` is
``sample`` with a registered gradient, for exported and traced programs, which have no
``autograd.Function`` around it. That costs microseconds a call, so ``sample`` has none.
"""

import math
from typing import Any

import torch
from torch import Tensor

from qneurons.kernels import dispatch
from qneurons.precision import TINY_DELTA
from qneurons.torch_internals import device_type, is_plain_memory, is_unobserved, without_dynamo

_ROW = "str name, float[] parameters"
_LAW = f"Tensor seed, Tensor lam, Tensor phi, SymInt inner, {_ROW}"


# Anybody may call an op, so its arguments are checked: with wrong ones a kernel would read foreign
# memory or divide by zero. Whoever calls the functions of this file has checked them.


def _check(x: Tensor, name: str, parameters: list[float], grad: Tensor | None = None) -> None:
    row = dispatch.known_rows().get(name)
    if row is None or len(row.parameters) != len(parameters):
        rows = dispatch.known_rows().items()
        known = ", ".join(f"{name} ({len(row.parameters)})" for name, row in rows)
        raise ValueError(
            f"unknown row {name!r} with {len(parameters)} parameters; "
            f"the known ones with the number of their parameters: {known}"
        )
    if not x.is_floating_point():
        raise TypeError(f"x must be of a floating dtype, got {x.dtype}")
    if grad is not None and not (
        grad.shape == x.shape and grad.is_floating_point() and grad.device == x.device
    ):
        raise ValueError(
            f"grad must have a floating dtype and the shape and device of x, {tuple(x.shape)} on "
            f"{x.device}, got {grad.dtype} of shape {tuple(grad.shape)} on {grad.device}"
        )


def _check_law(x: Tensor, seed: Tensor, lam: Tensor, phi: Tensor, inner: int) -> None:
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


def _sample(x: Tensor, *arguments: Any) -> Tensor:
    *law, name, parameters = arguments
    _check(x, name, parameters)
    _check_law(x, *law)
    return dispatch.find(device_type(x), x.dtype, name).forward(x, *arguments)


def _sample_backward(grad: Tensor, x: Tensor, *arguments: Any) -> Tensor:
    *law, name, parameters = arguments
    _check(x, name, parameters, grad)
    _check_law(x, *law)
    return dispatch.find(device_type(x), x.dtype, name).backward(grad, x, *arguments)


def _limit(x: Tensor, name: str, parameters: list[float]) -> Tensor:
    _check(x, name, parameters)
    return dispatch.find(device_type(x), x.dtype, name).limit(x, name, parameters)


def _limit_backward(grad: Tensor, x: Tensor, name: str, parameters: list[float]) -> Tensor:
    _check(x, name, parameters, grad)
    backend = dispatch.find(device_type(x), x.dtype, name)
    return backend.limit_backward(grad, x, name, parameters)


def _fake(x: Tensor, *others: Any) -> Tensor:
    for other in others:
        if isinstance(other, Tensor) and other.device != x.device:
            raise ValueError(f"all tensors must be on one device, got {x.device}, {other.device}")
    return torch.empty_like(x)


def _fake_backward(grad: Tensor, x: Tensor, *others: Any) -> Tensor:
    return _fake(x, grad, *others)


def _limit_of_batch(
    info: Any, in_dims: tuple[int, ...], x: Tensor, *row: Any
) -> tuple[Tensor, int]:
    return _limit_op(x, *row), in_dims[0]


def _limit_backward_of_batch(
    info: Any, in_dims: tuple[int | None, ...], grad: Tensor, x: Tensor, *row: Any
) -> tuple[Tensor, int]:
    moved = [
        tensor.unsqueeze(0) if dim is None else tensor.movedim(dim, 0)
        for tensor, dim in zip((grad, x), in_dims, strict=False)
    ]
    return _limit_backward_op(*torch.broadcast_tensors(*moved), *row), 0


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


for _op, _arguments, _implementation, _fake_one in (
    ("sample", f"Tensor x, {_LAW}", _sample, _fake),
    ("recorded_sample", f"Tensor x, {_LAW}", _sample, _fake),
    ("sample_backward", f"Tensor grad, Tensor x, {_LAW}", _sample_backward, _fake_backward),
    ("limit", f"Tensor x, {_ROW}", _limit, _fake),
    ("limit_backward", f"Tensor grad, Tensor x, {_ROW}", _limit_backward, _fake_backward),
):
    _name = f"qneurons::{_op}"
    torch.library.define(_name, f"({_arguments}) -> Tensor", tags=torch.Tag.pt2_compliant_tag)
    torch.library.impl(_name, "default", without_dynamo(_implementation))
    torch.library.register_fake(_name, _fake_one)

_sample_op = torch.ops.qneurons.sample.default
recorded_sample = torch.ops.qneurons.recorded_sample.default
_sample_backward_op = torch.ops.qneurons.sample_backward.default
_limit_op = torch.ops.qneurons.limit.default
_limit_backward_op = torch.ops.qneurons.limit_backward.default
torch.library.register_vmap("qneurons::sample", _batched(1, _sample_op))
torch.library.register_vmap("qneurons::recorded_sample", _batched(1, recorded_sample))
torch.library.register_vmap("qneurons::sample_backward", _batched(2, _sample_backward_op))
torch.library.register_vmap("qneurons::limit", _limit_of_batch)
torch.library.register_vmap("qneurons::limit_backward", _limit_backward_of_batch)


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
    if not (is_unobserved(x) and type(seed) is type(lam) is type(phi) is Tensor):
        return _sample_op(x, seed, lam, phi, inner, name, parameters)
    backend = dispatch.find(device_type(x), x.dtype, name)
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
    if not (
        is_unobserved(x)
        and type(seed) is type(lam) is type(phi) is Tensor
        and is_plain_memory(grad)
    ):
        return _sample_backward_op(grad, x, seed, lam, phi, inner, name, parameters)
    backend = dispatch.find(device_type(x), x.dtype, name)
    return backend.backward(grad, x, seed, lam, phi, inner, name, parameters)


def limit(x: Tensor, name: str, parameters: list[float]) -> Tensor:
    if not is_unobserved(x):
        return _limit_op(x, name, parameters)
    backend = dispatch.find(device_type(x), x.dtype, name)
    return backend.limit(x, name, parameters)


def limit_backward(grad: Tensor, x: Tensor, name: str, parameters: list[float]) -> Tensor:
    if not (is_unobserved(x) and is_plain_memory(grad)):
        return _limit_backward_op(grad, x, name, parameters)
    backend = dispatch.find(device_type(x), x.dtype, name)
    return backend.limit_backward(grad, x, name, parameters)
