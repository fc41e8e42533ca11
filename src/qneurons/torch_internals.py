"""All private API of torch that the package uses, behind functions with clear names."""

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import torch
from torch import _C, Tensor
from torch._compile import _disable_dynamo
from torch.autograd import forward_ad
from torch.compiler import is_compiling

F = TypeVar("F", bound=Callable[..., Any])

# True inside vmap, grad, jvp and the other transforms of torch.func; there is no public equivalent.
in_func_transform = _C._are_functorch_transforms_active

# Nonzero inside a dispatch mode, such as one that makes all tensors fake.
in_dispatch_mode = _C._len_torch_dispatch_stack

# None unless torch.jit.trace runs; torch.jit.is_tracing takes twice as long.
jit_tracing_state = _C._get_tracing_state

# The handle of the present stream of a CUDA device, by its number; None without CUDA.
current_stream: Any = getattr(_C, "_cuda_getCurrentRawStream", None)

# The file whose dependencies include the OpenMP library that torch runs on.
EXTENSION_FILE: str = _C.__file__


def is_exporting() -> bool:
    """As torch.compiler.is_exporting, which torch 2.11 also takes for true under torch.compile."""
    return torch.compiler._is_exporting_flag


def is_func_tensor(tensor: Tensor) -> bool:
    """True for a tensor inside a transform of torch.func, whose values cannot be read."""
    return _C._functorch.is_functorch_wrapped_tensor(tensor)


def is_transformed() -> bool:
    """True if a transform of torch.func or a level of forward mode is active."""
    return in_func_transform() or forward_ad._current_level >= 0


def is_unobserved(x: Tensor) -> bool:
    """True if no tracer, transform or dispatch mode is active and x is plain memory.

    Then a kernel may be called without the dispatcher, which takes 5 µs of Python.
    """
    return (
        not is_compiling()
        and not in_func_transform()
        and not in_dispatch_mode()
        and jit_tracing_state() is None
        and is_plain_memory(x)  # last: at its first use it makes tensors, which others would see
    )


def is_plain_memory(tensor: Tensor) -> bool:
    """True if a kernel may read its memory: no subclass, wrapper, lazy negative or lazy zero."""
    if type(tensor) is not Tensor:
        return False
    keys = _C._dispatch_keys(tensor).raw_repr()
    return keys in _cpu_keys or keys in _plain_keys(device_type(tensor))


def device_type(x: Tensor) -> str:
    """The same as ``x.device.type``, which takes half a microsecond."""
    return "cpu" if x.is_cpu else "cuda" if x.is_cuda else x.device.type


def ragged_dim(x: Any) -> int:
    """The dimension of a jagged nested tensor whose size varies."""
    return x._ragged_idx


@functools.cache
def _plain_keys(device_type: str) -> set[int]:
    with torch.inference_mode(False):  # which may be on at the first use of the package
        ordinary = torch.empty(0, device=device_type)
    with torch.inference_mode():
        inference = torch.empty(0, device=device_type)
    return {_C._dispatch_keys(tensor).raw_repr() for tensor in (ordinary, inference)}


_cpu_keys = _plain_keys("cpu")


def eager_apply(function: type[torch.autograd.Function]) -> Any:
    """``function.apply`` without support for torch.func, which takes as long as a small kernel."""
    return super(torch.autograd.Function, function).apply  # type: ignore[misc]


def constant_for_dynamo(function: F) -> F:
    """Like ``torch.compiler.assume_constant_result``, but does not import Dynamo."""
    function._dynamo_marked_constant = True  # type: ignore[attr-defined]
    return function


def without_dynamo(function: F) -> F:
    """The function, which Dynamo never traces; Dynamo is not imported for it.

    After a graph break Dynamo compiles the Python functions that eager code calls, even the
    implementation of an op. Compiled, it may free a tensor of which a kernel has the address.
    """
    untraced = _disable_dynamo(function)

    @functools.wraps(function)
    def call(*arguments: Any) -> Any:
        is_on = is_compiling() or _C._dynamo.eval_frame.get_eval_frame_callback() is not None
        return (untraced if is_on else function)(*arguments)  # the former takes a microsecond

    return call  # type: ignore[return-value]


@contextmanager
def outer_forward_mode(*duals: Tensor | None) -> Iterator[list[Any]]:
    """Switches forward mode on in a jvp rule, and yields its tensors without their tangents.

    torch runs the rule with forward mode off, which would make ``jacfwd(jacfwd(f))`` zero.
    """
    with forward_ad._set_fwd_grad_enabled(True):
        yield [dual if dual is None else _primal(dual) for dual in duals]


def _primal(x: Tensor) -> Tensor:
    functorch = _C._functorch
    if not functorch.is_batchedtensor(x):
        return forward_ad.unpack_dual(x).primal
    # vmap has no rule for unpack_dual, so the tensor inside is unpacked.
    inside, level = _primal(functorch.get_unwrapped(x)), functorch.maybe_get_level(x)
    return functorch._add_batch_dim(inside, functorch.maybe_get_bdim(x), level)


def compile_cuda(source: str, kernel: str, shared_bytes: int) -> Callable[..., None]:
    """A kernel of CUDA C++ for the present device, compiled by NVRTC, which comes with torch.

    Args:
        kernel: its name, with the arguments of a template.
        shared_bytes: how much shared memory it is launched with.
    """
    from unittest.mock import patch

    from torch.utils import cpp_extension

    # torch insists on a folder of headers, although a source may include none.
    with patch.object(cpp_extension, "CUDA_HOME", cpp_extension.CUDA_HOME or "/usr/local/cuda"):
        compiled = torch.cuda._compile_kernel(source, kernel)
    compiled.set_shared_memory_config(shared_bytes)
    return compiled
