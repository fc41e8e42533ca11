"""The tests of the C kernel, with every call of it served by an emulated processor.

    apt-get install qemu-user gcc-aarch64-linux-gnu
    python benchmarks/emulated.py [ARCHITECTURE [ARGUMENT OF PYTEST ...]]

Python and torch run as usual. The kernel is compiled for the architecture (aarch64 if none is
named) and runs under qemu. Prints the largest difference from this processor's portable build.
"""

import ctypes
import runpy
import struct
import subprocess
import sys
import tempfile
import threading
from collections import defaultdict
from pathlib import Path
from unittest import mock

import pytest
import torch

from qneurons.activations import rows
from qneurons.kernels import cpu

ROOT = Path(__file__).parent.parent
TESTS = ("tests/kernels/test_cpu.py", "tests/test_limits.py", "tests/test_mean_table.py")
CHOSEN = "not plain and not cuda and not wheel and not compiler"  # what the kernel serves
LAMS, PHI, NUM = (0.0, 0.02, 0.1, 1.0, 9.0), 1e-3, 2**16


class EmulatedKernel:
    """The functions of cpu.c that cpu.py calls, in a process of another architecture."""

    def __init__(self, architecture: str, folder: str) -> None:
        with mock.patch("setuptools.setup"):
            flags = runpy.run_path(str(ROOT / "setup.py"))["FLAGS"]
        program = f"{folder}/emulated"
        source = ROOT / "benchmarks" / "emulated.c"
        compiler = [f"{architecture}-linux-gnu-gcc", "-static", *flags]
        subprocess.run([*compiler, str(source), "-lm", "-o", program], check=True)
        self._process = subprocess.Popen(
            [f"qemu-{architecture}", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        self._lock = threading.Lock()
        self.num_calls = 0

    def apply(self, row, dtype, grad, x, out, seed, lam, phi, num, groups, *rest) -> None:
        """As ``qneurons_apply``."""
        size = num * (4 if dtype == 0 else 2)
        parts = (grad, size), (x, size), (seed, 8 * groups), (lam, 4 * groups), (phi, 4)
        self._call(False, parts, out, size, (row, dtype, num, groups, *rest[:3]), rest[3:5])

    def look_up(self, x, pieces, centres, out, num, num_tables, num_pieces, num_centres, *_):
        """As ``qneurons_look_up``."""
        size = 4 * num
        parts = (x, size), (pieces, 20 * num_tables * num_pieces), (centres, 12 * num_centres)
        integers = (num, num_tables, num_pieces, num_centres, 0, 0, 0)
        self._call(True, (*parts, (0, 0), (0, 0)), out, size, integers, (0.0, 0.0))

    def _call(self, is_look_up, parts, out, out_size, integers, parameters) -> None:
        sent = [ctypes.string_at(address, size) if address else b"" for address, size in parts]
        sizes = (*map(len, sent), out_size)
        header = struct.pack("=14q2d", is_look_up, *sizes, *integers, *parameters)
        with self._lock:
            self._process.stdin.write(b"".join([header, *sent]))
            self._process.stdin.flush()
            result = self._process.stdout.read(out_size)
            self.num_calls += 1
        if len(result) != out_size:
            raise RuntimeError("the emulated kernel has died")
        ctypes.memmove(out, result, out_size)


def results() -> dict[str, dict[str, torch.Tensor]]:
    """The value and the slope of every row in the limit and drawn, by setting and row."""
    generator = torch.Generator().manual_seed(1)
    x = 3 * torch.randn(NUM, generator=generator)
    grad, phi, found = torch.ones(NUM), torch.tensor([PHI]), defaultdict(dict)
    for row in rows():
        name, parameters = f"q_{row.name}", list(row.parameters.values())
        if not cpu.supports(x.dtype, name):
            continue
        limit = cpu.limit(x, name, parameters), cpu.limit_backward(grad, x, name, parameters)
        found["limit"][row.name] = torch.stack(limit)
        for seed, lam in enumerate(LAMS):
            law = torch.tensor([seed]), torch.tensor([lam]), phi, 1, name, parameters
            drawn = cpu.forward(x, *law), cpu.backward(grad, x, *law)
            found[f"λ = {lam}"][row.name] = torch.stack(drawn)
    return found


def main(architecture: str = "aarch64", *arguments: str) -> int:
    if why := cpu.why_unavailable():
        sys.exit(f"the kernel must be built here too: {why}")
    cpu._apply = cpu._bind(cpu._load("portable"))
    here = results()
    with tempfile.TemporaryDirectory() as folder:
        kernel = EmulatedKernel(architecture, folder)
        cpu._BUILDS, cpu._instruction_set = ("portable",), "portable"
        cpu._apply, cpu._bind = kernel.apply, lambda library: kernel.apply
        cpu._library = mock.Mock(qneurons_look_up=kernel.look_up)
        there = results()
        print(f"largest |a - b| / (1 + |a|) of {NUM} values and slopes a here and b there:")
        for setting, of_rows in here.items():
            gaps = {
                row: (a - there[setting][row]).abs() / (1 + a.abs()) for row, a in of_rows.items()
            }
            largest, row = max((gap.max().item(), row) for row, gap in gaps.items())
            print(f"{setting:9} {largest:.1e} ({row}) of {len(gaps)} rows")
        code = pytest.main(["-q", "-p", "no:cacheprovider", *(arguments or (*TESTS, "-k", CHOSEN))])
        print(f"{architecture} served {kernel.num_calls} calls")
    return code


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
