"""The generic path, and the second derivative of every row."""

import mpmath as mp
import pytest
import torch

from qneurons.activations import resolve, rows
from qneurons.given_delta import curvature, difference, difference_and_slope

DELTAS = [1e-12, -1e-7, 1e-3, -0.02, 0.3, -0.7, -0.999, -1.001, -3.0, 20.0]


def inputs(dtype=torch.float64):
    generator = torch.Generator().manual_seed(3)
    x = torch.randn(40, generator=generator, dtype=torch.float64) * 2
    x, delta = torch.meshgrid(x, torch.tensor(DELTAS, dtype=torch.float64), indexing="ij")
    return x.reshape(-1).to(dtype), delta.reshape(-1).to(dtype)


SMOOTH = {
    "atan": (torch.atan, mp.atan),
    "steep": (lambda y: torch.tanh(10 * y), lambda y: mp.tanh(10 * y)),
    "cubic": (lambda y: y**3 - y, lambda y: y**3 - y),
    "gauss": (lambda y: torch.exp(-y * y), lambda y: mp.exp(-y * y)),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("name", SMOOTH)
def test_generic_path_is_right_for_a_smooth_function(name, dtype):
    f, exact_f = SMOOTH[name]
    x, delta = inputs(dtype)
    values = difference(x, delta, resolve(f))
    eps = torch.finfo(dtype).eps
    with mp.workdps(60):
        for xi, di, value in zip(x.tolist(), delta.tolist(), values.tolist(), strict=True):
            a, d = mp.mpf(xi), mp.mpf(di)
            b = a * (1 + d)
            exact = (exact_f(b) - exact_f(a)) / d
            # The points are rounded, which moves f by eps |y f'(y)|, and f is rounded itself.
            conditioning = sum(
                abs(y * mp.diff(exact_f, y)) + abs(exact_f(y)) + 1 for y in (a, b)
            ) / max(abs(d), mp.mpf("0.05"))
            assert abs(value - exact) <= 32 * eps * (conditioning + abs(exact)), (xi, di)


@pytest.mark.parametrize("name", ["relu", "hardtanh", "elu"])
def test_generic_path_agrees_with_the_closed_form_across_kinks(name):
    row = resolve(name)
    x, delta = inputs()
    generic = difference(x, delta, resolve(lambda y: row(y)))
    torch.testing.assert_close(generic, difference(x, delta, row), rtol=1e-7, atol=1e-9)


def test_generic_path_refuses_a_function_that_changes_the_shape():
    x, delta = inputs()
    with pytest.raises(ValueError, match=r"shape.*\(400,\).*\(\)"):
        difference(x, delta, resolve(torch.sum))


@pytest.mark.parametrize("row", rows(), ids=lambda row: row.name)
def test_curvature_is_the_derivative_of_the_slope(row):
    x, delta = inputs()
    edges = torch.tensor([0.0, *row.kinks(**row.parameters)])
    step = 1e-6
    distance = torch.minimum(
        (x[:, None] - edges).abs().amin(1), ((x * (1 + delta))[:, None] - edges).abs().amin(1)
    )
    clear = (distance > 1e-3) & (delta.abs() > 1e-5)
    above = difference_and_slope(x + step, delta, row)[1]
    below = difference_and_slope(x - step, delta, row)[1]
    numeric = (above - below) / (2 * step)
    torch.testing.assert_close(
        curvature(x, delta, row)[clear], numeric[clear], rtol=2e-5, atol=2e-4
    )


def test_curvature_at_small_delta_is_that_of_the_limit():
    x = torch.linspace(-3, 3, 25, dtype=torch.float64)
    tiny = torch.full_like(x, 2.0**-100)
    row = resolve("tanh")
    with mp.workdps(50):
        limit = [mp.diff(lambda y: y * (1 - mp.tanh(y) ** 2), xi, 2) for xi in x.tolist()]
    torch.testing.assert_close(
        curvature(x, tiny, row), torch.tensor([float(v) for v in limit], dtype=torch.float64)
    )
