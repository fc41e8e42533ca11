"""Instructions of a q-activation and of the plain one, counted by valgrind.

    python benchmarks/instructions.py [--activations elu gelu ...]

Unlike times, counts do not depend on other programs. Forward + backward is counted in float32 with
one thread, for two sizes: the slope is the cost of an element, the rest that of a call. valgrind
supports AVX2 but not AVX-512, so both torch's kernels and ours run in AVX2. Rows are appended to
results/instructions-cpu.csv.
"""

import argparse
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import torch

import qneurons as qn
from qneurons import bench
from qneurons.activations import resolve, rows
from qneurons.measuring import Call, Row
from qneurons.provenance import provenance

STORE = Path(__file__).parent / "results" / "instructions-cpu.csv"
SIZES = (2**12, 2**15)
FEW, MANY = 2, 12  # calls; the difference leaves out what starting and stopping the count takes


class Counter:
    """callgrind, in which this process runs."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.dumps = folder, 0
        self._tell("--instr=on")

    def count(self, call: Call) -> float:
        """Instructions per call: the least of three counts, because torch does some work once."""
        few, many = (min(self._count(call, number) for _ in range(3)) for number in (FEW, MANY))
        return (many - few) / (MANY - FEW)

    def _count(self, call: Call, number: int) -> int:
        self._tell("--zero")
        for _ in range(number):
            call()
        self._tell("--dump")
        self.dumps += 1
        text = (self.folder / f"out.{self.dumps}").read_text()
        (found,) = re.findall(r"^totals: (\d+)$", text, re.MULTILINE)
        return int(found)

    def _tell(self, option: str) -> None:
        command = ["callgrind_control", option, str(os.getpid())]
        subprocess.run(command, check=True, capture_output=True)


def measure(activation: str, counter: Counter) -> list[Row]:
    variants = {
        "plain": bench.plain(resolve(activation)),
        "qneurons": qn.QActivation(activation),
    }
    found = []
    for name, function in variants.items():
        totals = []
        for size in SIZES:
            x = torch.randn(size, generator=torch.Generator().manual_seed(0)).requires_grad_()
            gradient = torch.ones_like(x)

            def call(function=function, x=x, gradient=gradient) -> None:
                x.grad = None
                function(x).backward(gradient)

            call()
            totals.append(counter.count(call))
        slope = (totals[1] - totals[0]) / (SIZES[1] - SIZES[0])
        found.append(
            {
                "activation": activation,
                "variant": name,
                "pass": bench.BOTH,
                "dtype": "float32",
                "per_element": round(slope, 2),
                "per_call": round(totals[0] - slope * SIZES[0]),
            }
        )
    return found


def main() -> None:
    names = [row.name for row in rows() if row.difference is not None]
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--activations", nargs="+", default=names, choices=names, metavar="NAME")
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)  # set inside of valgrind
    options = parser.parse_args()
    if options.folder is None:
        if shutil.which("callgrind_control") is None:
            sys.exit("valgrind is not installed; on Debian: apt install valgrind")
        with tempfile.TemporaryDirectory() as folder:
            tool = ["valgrind", "-q", "--tool=callgrind", "--instr-atstart=no"]
            tool.append(f"--callgrind-out-file={folder}/out")
            own = [sys.executable, *sys.argv, "--folder", folder]
            subprocess.run([*tool, *own], check=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
        return

    torch.set_num_threads(1)
    counter = Counter(options.folder)
    command = shlex.join(["python", *sys.argv[: sys.argv.index("--folder")]])
    origin = provenance(torch.device("cpu"), command)
    for name in options.activations:
        found = measure(name, counter)
        columns = [*found[0], *origin]
        bench.append_rows(STORE, columns, (row | origin for row in found))
        plain, ours = found
        print(
            f"{name:12} {ours['per_element']:6.1f} an element, plain {plain['per_element']:6.1f};"
            f" {ours['per_call']:8} a call, plain {plain['per_call']:8}",
            flush=True,
        )


if __name__ == "__main__":
    main()
