"""Checks the arguments of q-activations. Errors name the value, the rule and a remedy."""

import math
from numbers import Real
from typing import Literal, TypedDict, get_args

import torch
from torch import Tensor

from qneurons.torch_internals import is_func_tensor

Mode = Literal["limit", "mean", "sample"]  # of evaluation


class Options(TypedDict, total=False):
    """The keywords of :func:`~qneurons.q_activation` that every ``q_elu``, ``q_tanh``, … takes."""

    training: bool
    eval_mode: Mode
    generator: torch.Generator | None
    seed: Tensor | None


def check_x(x: Tensor) -> None:
    if not isinstance(x, Tensor):
        raise TypeError(f"x must be a tensor, got {type(x).__name__}")
    if not x.is_floating_point():
        raise TypeError(
            f"x must be of a floating dtype, got {x.dtype}; a q-activation is a real function"
            + ("" if x.is_complex() else ": convert with x.float()")
        )
    if x.layout not in (torch.strided, torch.jagged):
        raise TypeError(f"x must be a dense tensor, got layout {x.layout}; pass x.to_dense()")
    if x.is_nested and x.layout == torch.strided:
        raise TypeError(
            "x must be a dense or a jagged tensor, got a nested tensor of the strided layout; make "
            "it with torch.nested.as_nested_tensor(tensors, layout=torch.jagged)"
        )


def check_nonnegative(name: str, value: float) -> float:
    is_number = isinstance(value, Real) and not isinstance(value, bool)
    if not is_number or not 0 <= value <= torch.finfo(torch.float32).max:
        raise ValueError(
            f"{name} must be a finite number, 0 or more, got {value!r}; for example {name}=0.01"
        )
    return float(value)


def check_eval_mode(eval_mode: Mode) -> Mode:
    if eval_mode not in get_args(Mode):
        known = ", ".join(get_args(Mode))
        raise ValueError(f"eval_mode must be one of {known}, got {eval_mode!r}")
    return eval_mode


def check_options(training: bool, eval_mode: Mode, generator: torch.Generator | None) -> None:
    if not isinstance(training, bool):
        raise TypeError(f"training must be True or False, got {training!r}")
    check_eval_mode(eval_mode)
    if generator is not None and not isinstance(generator, torch.Generator):
        raise TypeError(
            f"generator must be a torch.Generator, got {generator!r}; for example "
            "torch.Generator().manual_seed(7)"
        )


def check_lam(lam: float | Tensor, x: Tensor) -> float | Tensor:
    if not isinstance(lam, Tensor):
        return check_nonnegative("lam", lam)
    if not lam.is_floating_point() or lam.requires_grad:
        raise TypeError(
            f"lam must be a floating tensor without gradient, got {lam.dtype} with "
            f"requires_grad={lam.requires_grad}; pass lam.detach().float()"
        )
    if not _broadcasts(lam, x):
        raise ValueError(
            f"lam must broadcast to the shape of x, got {tuple(lam.shape)} for {tuple(x.shape)}; "
            "reshape it, to (channels, 1, 1) for example"
        )
    # Reading values would wait for a device, break a trace or fail under a transform.
    if lam.device.type == "cpu" and not torch.compiler.is_compiling() and not is_func_tensor(lam):
        bad = lam[~((lam >= 0) & (lam.float() < math.inf))]
        if bad.numel():
            raise ValueError(
                "every value of lam must be finite in float32, 0 or more, got "
                f"{bad.flatten()[0].item()!r}"
            )
    return lam


def check_seed(
    seed: Tensor, x: Tensor, lam: float | Tensor, generator: torch.Generator | None
) -> None:
    if not isinstance(seed, Tensor) or seed.dtype != torch.int64:
        kind = seed.dtype if isinstance(seed, Tensor) else type(seed).__name__
        raise TypeError(f"seed must be a tensor of int64, got {kind}; for example torch.tensor(7)")
    if generator is not None:
        raise ValueError("got both seed and generator; pass only one of them")
    if seed.device != x.device:
        raise ValueError(
            f"seed must be on the device of x, {x.device}, got {seed.device}; "
            "pass seed.to(x.device)"
        )
    if not _broadcasts(seed, x) or find_grouping(seed, x.shape) is None:
        raise ValueError(
            f"seed must be one value or broadcast to the shape of x, {tuple(x.shape)}, without a "
            f"dimension of size 1 between larger ones, got {tuple(seed.shape)}"
        )
    if not isinstance(lam, Tensor) or lam.numel() == 1:
        return
    if find_grouping(lam, x.shape) != find_grouping(seed, x.shape):
        raise ValueError(
            "lam must have one value, or one for each group as seed has, got shapes "
            f"{tuple(lam.shape)} and {tuple(seed.shape)}"
        )


def _broadcasts(values: Tensor, x: Tensor) -> bool:
    # Not torch.broadcast_shapes, whose first call imports sympy.
    sizes = zip(reversed(values.shape), reversed(x.shape), strict=False)
    return values.dim() <= x.dim() and all(own in (1, size) for own, size in sizes)


def find_grouping(values: Tensor, shape: torch.Size) -> tuple[int, int] | None:
    """The (groups, neighbours) for which element i has the value at (i // neighbours) % groups.

    None if the values are not laid out in this way.
    """
    if values.numel() == 1:
        return 1, math.prod(shape)
    padded = torch.Size([1] * (len(shape) - values.dim())) + values.shape
    varied = [dim for dim, size in enumerate(padded) if size != 1]
    if not varied or padded[varied[0] : varied[-1] + 1] != shape[varied[0] : varied[-1] + 1]:
        return None
    return values.numel(), math.prod(shape[varied[-1] + 1 :])
