"""Relative error of the paper's snippet and of qneurons in three precisions, against float64.

    python benchmarks/accuracy.py

The same x ~ N(0, 1) and the same δ go into all of them. Writes benchmarks/results/accuracy.md and
puts the table into docs/accuracy.md.
"""

import platform
from pathlib import Path

import torch
from pages import write_between

import qneurons as qn
from qneurons.noise import draw_delta

ROOT = Path(__file__).parent.parent
ACTIVATIONS = ("tanh", "elu", "softplus", "relu", "gelu", "silu")
LAMBDAS = (0.02, 0.1, 1.0)
DTYPES = (torch.float32, torch.float16, torch.bfloat16)
N = 2**18


def with_slope(function, x):
    x = x.detach().clone().requires_grad_()
    value = function(x)
    (slope,) = torch.autograd.grad(value.sum(), x)
    return value.detach(), slope


def snippet(row, delta):
    return lambda x: (row(x * (1 + delta)) - row(x)) / delta


def stable(row, delta):
    return lambda x: qn.q_difference(x, delta, row)


def error(got, exact):
    return ((got.double() - exact).square().mean() / exact.square().mean()).sqrt().item()


def line(name, lam):
    generator = torch.Generator().manual_seed(0)
    row = qn.resolve(name)
    x = torch.randn(N, dtype=torch.float64, generator=generator)
    delta = draw_delta((N,), lam, 1e-3, dtype=torch.float64, device="cpu", generator=generator)
    cells = []
    for dtype in DTYPES:
        # Rounding x and δ is not counted: the exact result is that of the rounded input.
        rounded_x, rounded_delta = x.to(dtype), delta.to(dtype)
        ours = with_slope(stable(row, rounded_delta), rounded_x)
        theirs = with_slope(snippet(row, rounded_delta), rounded_x)
        exact = with_slope(stable(row, rounded_delta.double()), rounded_x.double())
        for result in (theirs, ours):
            cells.append(
                " / ".join(f"{error(a, b):.0e}" for a, b in zip(result, exact, strict=True))
            )
    return f"| {name} | {lam:g} | " + " | ".join(cells) + " |"


def main():
    heads = [f"{who}, {str(dtype)[6:]}" for dtype in DTYPES for who in ("snippet", "qneurons")]
    lines = ["| f | λ | " + " | ".join(heads) + " |", "| --- | ---: " + "| ---: " * 6 + "|"]
    lines += [line(name, lam) for lam in LAMBDAS for name in ACTIVATIONS]
    text = (
        f"Root mean square error over root mean square value, g / dg/dx, {N} points "
        f"(torch {torch.__version__}, {platform.machine()}, qneurons {qn.__version__}).\n\n"
        + "\n".join(lines)
        + "\n"
    )
    (ROOT / "benchmarks" / "results" / "accuracy.md").write_text(text)
    write_between(ROOT / "docs" / "accuracy.md", "table", text)
    print(text)


if __name__ == "__main__":
    main()
