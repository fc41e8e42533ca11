"""Launching again without Triton's search: held against a kernel that records its launches."""

import pytest
import torch

pytest.importorskip("triton")

from triton import cdiv as triton_cdiv, knobs

from qneurons.kernels import cuda_launch
from qneurons.kernels.cuda_launch import Launcher, cdiv

GRID = (1, 1, 1)
HANDLES = ("stream", "function", "metadata", None, None, None)


class RecordingKernel:
    """Compiles on every launch of its own, like Triton if nothing it has compiled fits."""

    arg_names = ("x_ptr", "out_ptr", "num", "ROW", "SIZE")

    def __init__(self):
        self.compiled, self.launched, self.hooked = [], [], []

    def __getitem__(self, grid):
        def launch(*arguments, **constants):
            self.compiled.append((grid, *arguments, constants))
            return Compiled(self)

        return launch


class Compiled:
    function, packed_metadata = "function", "metadata"

    def __init__(self, kernel):
        self.kernel = kernel

    def run(self, *arguments):
        assert arguments[:9] == (*GRID, *HANDLES)
        self.kernel.launched.append((GRID, *arguments[9:]))

    def __getitem__(self, grid):
        return lambda *arguments: self.kernel.hooked.append((grid, *arguments))


@pytest.fixture
def kernel(monkeypatch):
    monkeypatch.setattr(cuda_launch, "current_stream", lambda device: "stream")
    return RecordingKernel()


@pytest.fixture
def launch(kernel):
    return Launcher(kernel, lambda x, row: {"ROW": row, "SIZE": 8, "num_warps": x.dim()})


def test_the_first_launch_is_tritons_and_the_second_has_pointers(kernel, launch):
    x, out = torch.zeros(32), torch.zeros(32)
    launch(GRID, (x, out), (32,), "elu")
    assert kernel.compiled == [(GRID, x, out, 32, {"ROW": "elu", "SIZE": 8, "num_warps": 1})]
    assert kernel.launched == []
    launch(GRID, (x, out), (32,), "elu")
    assert len(kernel.compiled) == 1
    assert kernel.launched == [(GRID, x.data_ptr(), out.data_ptr(), 32, None, None)]


def test_a_tensor_that_is_none_stays_none(kernel, launch):
    x = torch.zeros(32)
    for _ in range(2):
        launch(GRID, (x, None), (32,), "elu")
    assert kernel.launched == [(GRID, x.data_ptr(), None, 32, None, None)]


@pytest.mark.parametrize("hooks", [knobs.runtime.launch_enter_hook, knobs.runtime.launch_exit_hook])
def test_hooks_of_a_profiler_are_called(kernel, launch, hooks):
    def hook(metadata):
        pass

    x = torch.zeros(32)
    launch(GRID, (x, None), (32,), "elu")
    hooks.add(hook)
    try:
        launch(GRID, (x, None), (32,), "elu")
    finally:
        hooks.remove(hook)
    assert kernel.hooked == [(GRID, x.data_ptr(), None, 32, None, None)]
    assert kernel.launched == []


@pytest.mark.parametrize("num", [0, 1, 1023, 1024, 1025, 2**40])
def test_cdiv_is_tritons(num):
    assert cdiv(num, 1024) == triton_cdiv(num, 1024)


FLOATS = torch.zeros(64)


@pytest.mark.parametrize(
    ("x", "out", "num", "row"),
    [
        (FLOATS, FLOATS, 32, "tanh"),
        (FLOATS.double(), FLOATS, 32, "elu"),
        (FLOATS, FLOATS.half(), 32, "elu"),
        (FLOATS[1:], FLOATS, 32, "elu"),
        (FLOATS, FLOATS[1:], 32, "elu"),
        (FLOATS, None, 32, "elu"),
        (FLOATS, FLOATS, 1, "elu"),
        (FLOATS, FLOATS, 33, "elu"),
        (FLOATS, FLOATS, 2**31, "elu"),
    ],
    ids=("row", "dtype", "dtype of out", "pointer", "pointer of out", "none", "1", "odd", "large"),
)
def test_what_triton_specialises_is_compiled_anew(kernel, launch, x, out, num, row):
    launch(GRID, (FLOATS, FLOATS), (32,), "elu")
    launch(GRID, (x, out), (num,), row)
    assert len(kernel.compiled) == 2
    assert kernel.launched == []


def test_numbers_of_one_kind_share_what_was_compiled(kernel, launch):
    for num in (32, 48, 2**20):
        launch(GRID, (FLOATS, FLOATS), (num,), "elu")
    assert len(kernel.compiled) == 1
    assert [launched[3] for launched in kernel.launched] == [48, 2**20]
