"""Random calls of the public functions in every backend, against float64.

    python benchmarks/fuzz.py --cases 100000
    TRITON_INTERPRET=1 python benchmarks/fuzz.py --cases 1000 --backends plain cpu cuda
    python benchmarks/fuzz.py --first 123 --cases 1   # a case again: its number is its seed

A case is a row, a shape, a layout, a dtype, λ, φ, groups and values, some of them hostile. Values,
gradients, dtypes and strides are checked. Exits with 1 if a case is wrong.
"""

import argparse
import dataclasses
import math
import random
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import ModuleType

import torch
from torch import Tensor

from qneurons import q_activation, q_difference, q_limit
from qneurons.activations import Activation, rows
from qneurons.arguments import find_grouping
from qneurons.given_delta import difference_and_slope
from qneurons.kernels import dispatch, plain
from qneurons.noise import seeded_delta
from qneurons.precision import TINY_DELTA, compute_dtype

HOSTILE = (
    0.0,
    -0.0,
    1e-45,
    -1e-38,
    1e-20,
    -1e-8,
    0.5,
    1.0,
    -1.0,
    3.0,
    -3.0,
    6.0,
    17.0,
    -88.8,
    104.0,
    math.inf,
    -math.inf,
)
HOSTILE_WIDE = (*HOSTILE, 1e4, -1e4, 1e6, -1e6, 1e10, -1e10, 3e19, -3e19, 1e30, -1e30)
STRAIGHT_X = 1e3  # beyond, every row but sin and relu2 is a straight line
TINY_X = 1e-30
LAMS = (0.0, 1e-8, 1e-3, 0.02, 0.1, 0.7, 1.0, 3.0, 9.0, 1e3)
PHIS = (0.0, 1e-12, 1e-3, 0.1, 2.0)
DTYPES = (torch.float32, torch.float32, torch.float64, torch.float16, torch.bfloat16)
LAYOUTS = {
    "as it is": lambda x: x,
    "last dimensions swapped": lambda x: x.mT.contiguous().mT if x.dim() > 1 else x,
    "every second": lambda x: torch.stack([x, x + 1], -1)[..., 0],
    "expanded": lambda x: x[:1].expand_as(x) if x.dim() else x,
    "unaligned": lambda x: torch.cat([x.new_ones(1), x.flatten()])[1:].view(x.shape),
    "channels last": lambda x: x.to(memory_format=torch.channels_last) if x.dim() == 4 else x,
}
NOISE_ERROR = 1e-5  # the kernels' normals differ from the specification's by as much


@dataclasses.dataclass(frozen=True)
class Case:
    """One call; ``str`` describes it."""

    number: int
    function: str
    row: Activation
    layout: str
    x: Tensor
    grad: Tensor
    seed: Tensor
    lam: float | Tensor
    phi: float

    def __str__(self) -> str:
        lam = self.lam if isinstance(self.lam, float) else f"{self.lam.numel()} values"
        return (
            f"case {self.number}: {self.function}({self.row.name}), {self.x.dtype}, shape "
            f"{tuple(self.x.shape)} {self.layout}, {self.seed.numel()} seeds, lam {lam}, "
            f"phi {self.phi}"
        )


def make_case(number: int) -> Case:
    draw, generator = random.Random(number), torch.Generator().manual_seed(number)
    dtype = draw.choice(DTYPES)
    shape = [draw.choice((0, 1, 2, 3, 5, 7, 16, 31)) for _ in range(draw.randrange(5))]
    while math.prod(shape) > 3000:
        shape.pop()
    if draw.random() < 0.05:
        shape = [draw.choice((4095, 4097, 9001))]  # around a block of noise
    scale = draw.choice((0.01, 1.0, 1.0, 5.0, 50.0))
    x = scale * torch.randn(shape, generator=generator, dtype=torch.float64)
    hostile = HOSTILE if dtype in (torch.float16, torch.bfloat16) else HOSTILE_WIDE
    picked = torch.randint(len(hostile), shape, generator=generator)
    is_hostile = torch.rand(shape, generator=generator) < draw.choice((0.0, 0.1, 1.0))
    x = torch.where(is_hostile, torch.tensor(hostile, dtype=torch.float64)[picked], x).to(dtype)
    if x.numel() and draw.random() < 0.1:
        x.view(-1)[draw.randrange(x.numel())] = math.nan
    layout = draw.choice(list(LAYOUTS))
    x = LAYOUTS[layout](x)
    grad = torch.randn(shape, generator=generator).to(dtype)
    grad = LAYOUTS[draw.choice(list(LAYOUTS))](grad)
    lam: float | Tensor = draw.choice(LAMS)
    seed = torch.randint(-(2**62), 2**62, (), generator=generator)
    if x.dim() and 1 <= x.shape[0] <= 31 and draw.random() < 0.4:  # a group for each row
        groups = (x.shape[0],) + (1,) * (x.dim() - 1)
        seed = torch.randint(-(2**62), 2**62, groups, generator=generator)
        if draw.random() < 0.5:
            lam = lam * torch.rand(groups, generator=generator, dtype=torch.float64)
    function = draw.choice(("draw", "draw", "draw", "difference", "limit"))
    return Case(
        number, function, draw.choice(rows()), layout, x, grad, seed, lam, draw.choice(PHIS)
    )


def deltas(case: Case) -> tuple[Tensor, Tensor]:
    """δ of every element, in the dtype in which it is computed, and its λ."""
    dtype, shape = compute_dtype(case.x), case.x.shape
    found = find_grouping(case.seed, shape)
    assert found is not None
    groups, inner = found
    lam = torch.as_tensor(case.lam, dtype=dtype)
    phi = torch.tensor([case.phi], dtype=dtype)
    law = case.seed.reshape(-1), lam.reshape(-1).expand(groups), phi, max(inner, 1)
    return seeded_delta(shape, *law, dtype=dtype), lam


def references(case: Case, delta: Tensor, lam: Tensor) -> list[tuple[Tensor, Tensor]]:
    """Results in float64 for δ, and for what errors of the noise make of δ."""
    wide = dataclasses.replace(case, x=case.x.double(), grad=case.grad.double())
    # With both numbers 0 nothing is drawn: see q_activation.
    is_zero = not isinstance(case.lam, Tensor) and case.lam == 0 == case.phi
    if case.function == "limit" or (case.function == "draw" and is_zero):
        return [call(wide, delta)]
    errors = NOISE_ERROR * lam.double() if case.function == "draw" else torch.zeros(())
    least = torch.tensor(max(case.phi, TINY_DELTA[delta.dtype]), dtype=torch.float64)
    found = []
    for part in (0, -1, 1, -0.01, 0.01):  # the small ones for a peak between the large ones
        size = (delta.double().abs() + part * errors).maximum(least)
        value, slope = difference_and_slope(wide.x, size.copysign(delta), case.row)
        found.append((value, slope * wide.grad))
    return found


def call(case: Case, delta: Tensor) -> tuple[Tensor, Tensor]:
    """The result and the gradient of the function under test."""
    x = case.x.detach().requires_grad_()
    if case.function == "limit":
        y = q_limit(x, case.row)
    elif case.function == "difference":
        y = q_difference(x, delta, case.row)
    else:
        y = q_activation(x, case.row, case.lam, case.phi, seed=case.seed)
    (grad,) = torch.autograd.grad(y, x, case.grad)
    return y.detach(), grad


def _layout(x: Tensor) -> list[int]:
    """The strides that have a meaning."""
    sizes = zip(x.shape, x.stride(), strict=True)
    return [stride for size, stride in sizes if size > 1] if x.numel() else []


def problem(case: Case) -> str:
    """What is wrong with a case, or ""."""
    delta, lam = deltas(case)
    try:
        results = call(case, delta)
    except Exception as error:
        return f"{case}: {error!r}"
    if _layout(results[0]) != _layout(torch.empty_like(case.x)):
        return f"{case}: strides {results[0].stride()}"
    x, b = case.x.double().abs(), (case.x.double() * (1 + delta.double())).abs()
    # g is of the size of x, and its error that of b. The argument of sin itself is rounded.
    is_curved = case.row.name in ("sin", "relu2")
    size = (1 + x) * (1 + x + b) if case.row.name == "sin" else 1 + x
    sizes = size.where(x.isfinite(), 1), size.where((x < STRAIGHT_X) | is_curved, 1)
    weights = torch.ones_like(x), case.grad.double().abs()
    eps = torch.finfo(case.x.dtype).eps
    tolerance = 1e-11 if case.x.dtype == torch.float64 else max(eps, 6e-6)
    wanted = zip(*references(case, delta, lam), strict=True)
    scales = [size * weight for size, weight in zip(sizes, weights, strict=True)]
    for what, got, want, scale in zip(("g", "gradient"), results, wanted, scales, strict=True):
        if got.dtype != case.x.dtype or got.shape != case.x.shape:
            return f"{case}: {what} is {got.dtype} of shape {tuple(got.shape)}"
        many = torch.stack(want)
        low, high = many.amin(0), many.amax(0)
        margin = tolerance * (scale + many[0].abs()) + torch.finfo(case.x.dtype).tiny
        is_right = (got.double() >= low - margin) & (got.double() <= high + margin)
        is_right |= (got == many.to(got.dtype)).any(0)  # both may overflow
        is_right |= many[0].isnan() & got.isnan()
        if what == "gradient":  # δx of a tiny x may round onto a kink
            is_right |= x < TINY_X
        if not is_right.all():
            index = tuple((~is_right).nonzero()[0].tolist())
            at = f"x {case.x[index].item()!r}, delta {delta[index].item()!r}"
            return f"{case}: {what} is {got[index].item()!r} for {many[0][index].item()!r} at {at}"
    return ""


@contextmanager
def served_by(backend: ModuleType) -> Iterator[None]:
    """Has one backend serve every row that it supports."""
    usual = dispatch.find
    dispatch.find = lambda _, dtype, name: backend if backend.supports(dtype, name) else plain
    try:
        yield
    finally:
        dispatch.find = usual


def fuzz(numbers: Sequence[int], backends: Sequence[str]) -> list[str]:
    """The problems of the cases with these numbers, in every backend."""
    modules = {name: plain if name == "plain" else dispatch.load(name) for name in backends}
    for name, module in modules.items():
        if isinstance(module, str):
            raise SystemExit(f"no backend {name}: {module}")
    found = []
    for number in numbers:
        case = make_case(number)
        for name, module in modules.items():
            with served_by(module):
                if text := problem(case):
                    found.append(f"{name}, {text}")
            if case.function != "draw":
                break  # no backend takes part
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--cases", type=int, default=10_000)
    parser.add_argument("--first", type=int, default=0, help="the number of the first case")
    parser.add_argument("--backends", nargs="+", default=["plain", "cpu"])
    options = parser.parse_args()
    torch.set_num_threads(1)
    began = time.monotonic()
    found = fuzz(range(options.first, options.first + options.cases), options.backends)
    print(
        f"cases {options.first} to {options.first + options.cases - 1} in "
        f"{', '.join(options.backends)}: {len(found)} wrong, {time.monotonic() - began:.0f} s"
    )
    for text in found[:20]:
        print(f"must not be: {text}", file=sys.stderr)
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main())
