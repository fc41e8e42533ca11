"""Launches a Triton kernel again without Triton's own search for what it has compiled."""
# mypy: disable-error-code="import-untyped"

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from triton import knobs
from triton.runtime import JITFunction

from qneurons.torch_internals import current_stream


def cdiv(num: int, size: int) -> int:
    """The same as ``triton.cdiv``, which takes 2 µs."""
    return -(-num // size)


class Launcher:
    """A kernel that keeps what was compiled, by all that decides it.

    At each launch Triton binds the arguments to their names, asks the driver about every pointer,
    looks for a key of text and calls hooks. That takes longer than a small kernel.

    Args:
        kernel: its parameters are some tensors, then numbers, then constants.
        constants: returns the constants and options for the first tensor and the rest of the key.
    """

    def __init__(self, kernel: JITFunction[Any], constants: Callable[..., dict[str, Any]]) -> None:
        self._kernel = kernel
        self._constants = constants
        self._compiled: dict[tuple[Any, ...], Any] = {}

    def __call__(
        self,
        grid: tuple[int, int, int],
        tensors: tuple[Any, ...],
        numbers: tuple[int, ...],
        *rest_of_key: Any,
    ) -> None:
        x: Tensor = tensors[0]
        device = x.get_device()  # -1 if the kernel is interpreted
        if device >= 0 and device != torch.cuda.current_device():
            with torch.cuda.device(device):
                return self(grid, tensors, numbers, *rest_of_key)
        # Triton compiles anew for other types, for pointers and numbers that are multiples of 16,
        # for the number 1, and for numbers of 64 bits.
        pointers: list[int | None] = []
        parts: list[Any] = [device, rest_of_key]
        for tensor in tensors:
            if tensor is None:
                pointers.append(None)
                parts.append(None)
            else:
                pointer = tensor.data_ptr()
                pointers.append(pointer)
                parts += tensor.dtype, pointer % 16
        for number in numbers:
            parts += number % 16, number == 1, number < 2**31
        key = tuple(parts)
        compiled = self._compiled.get(key)
        if compiled is None:
            constants = self._constants(x, *rest_of_key)
            self._compiled[key] = self._kernel[grid](*tensors, *numbers, **constants)
            return None
        unread = [None] * (len(self._kernel.arg_names) - len(tensors) - len(numbers))
        arguments = (*pointers, *numbers, *unread)
        if knobs.runtime.launch_enter_hook.calls or knobs.runtime.launch_exit_hook.calls:
            compiled[grid](*arguments)  # a profiler listens
        else:
            handles = current_stream(device), compiled.function, compiled.packed_metadata
            compiled.run(*grid, *handles, None, None, None, *arguments)
        return None
