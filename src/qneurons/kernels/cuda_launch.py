"""Launches a Triton kernel again without Triton's own search for what it has compiled."""
# mypy: disable-error-code="import-untyped"

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from triton.runtime import JITFunction


class Launcher:
    """A kernel that keeps what was compiled, by all that decides it.

    At each launch Triton binds the arguments to their names, asks the driver about every pointer
    and looks for a key of text. That takes longer than a small kernel.

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
        pointers, key = [], [device, *rest_of_key]
        for tensor in tensors:
            pointer = None if tensor is None else tensor.data_ptr()
            pointers.append(pointer)
            key += (None,) if pointer is None else (tensor.dtype, pointer % 16 == 0)
        for number in numbers:
            key += (number == 1, number % 16 == 0, number < 2**31)
        found = tuple(key)
        compiled = self._compiled.get(found)
        if compiled is None:
            constants = self._constants(x, *rest_of_key)
            self._compiled[found] = self._kernel[grid](*tensors, *numbers, **constants)
        else:
            unread = [None] * (len(self._kernel.arg_names) - len(tensors) - len(numbers))
            compiled[grid](*pointers, *numbers, *unread)
        return None
