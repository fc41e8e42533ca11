"""The Gauss rules against exact moments, the rule for δ against mpmath integrals."""

import mpmath as mp
import pytest
import torch

from qneurons.activations import resolve
from qneurons.given_delta import difference
from qneurons.quadrature import (
    GAUSS_LEGENDRE,
    HALF_NORMAL,
    SMALL_LAMBDA,
    crossing_moment,
    delta_rule,
)

FUNCTIONS = {
    "tanh": mp.tanh,
    "softplus": lambda b: mp.log1p(mp.exp(b)),
    "gelu": lambda b: b * mp.ncdf(b),
    "softsign": lambda b: b / (1 + abs(b)),
    "relu": lambda b: max(b, mp.mpf(0)),
    "elu": lambda b: b if b > 0 else mp.expm1(b),
    "hardtanh": lambda b: min(max(b, mp.mpf(-1)), mp.mpf(1)),
    "relu6": lambda b: min(max(b, mp.mpf(0)), mp.mpf(6)),
    "hardswish": lambda b: b * min(max((b + 3) / 6, mp.mpf(0)), mp.mpf(1)),
}
# The hard cases: a kink close to x or in the tail of δ, g ~ 1 / δ far out, and all sizes of λ.
CASES = [
    ("tanh", 1.0, 0.02),
    ("tanh", -2.0, 1.0),
    ("softplus", 0.5, 9.0),
    ("gelu", -3.0, 5.0),
    ("softsign", -0.5, 5.0),
    ("relu", 0.01, 9.0),
    ("relu", -1.0, 0.3),
    ("elu", 0.05, 5.0),
    ("hardtanh", 0.95, 0.1),
    ("hardtanh", 0.95, 1.0),
    ("hardtanh", 1.0, 5.0),
    ("hardtanh", -1.05, 0.02),
    ("relu6", 6.1, 1.0),
    ("hardswish", -3.2, 0.1),
]


def exact_moments(name, x, lam, phi):
    """E g and E g² for g = (f(b) - f(x)) / δ."""
    f, x, lam, phi = FUNCTIONS[name], mp.mpf(x), mp.mpf(lam), mp.mpf(phi)
    points = [0, *resolve(name).kinks(**resolve(name).parameters)]
    moments = [mp.mpf(0), mp.mpf(0)]
    for sign in (1, -1):
        ends = {mp.mpf(z) for z in (0, 0.02, 0.1, 0.3, 1, 2, 3.5, 5, 7, 10)}
        ends |= {(sign * (mp.mpf(p) / x - 1) - phi) / lam for p in points}
        ends = sorted(end for end in ends if 0 <= end <= 10)

        def g(z, sign=sign):
            delta = sign * (lam * z + phi)
            return (f(x * (1 + delta)) - f(x)) / delta

        for power in (1, 2):
            moments[power - 1] += mp.quad(lambda z, p=power: g(z) ** p * mp.npdf(z), ends)
    return moments


def moments_by_rule(name, x, lam, phi):
    row, x = resolve(name), torch.tensor([x], dtype=torch.float64)
    first = second = torch.zeros(1, dtype=torch.float64)
    for delta, weight in delta_rule(x, lam, phi, row.kinks(**row.parameters)):
        g = difference(x, torch.as_tensor(delta, dtype=x.dtype).expand_as(x), row)
        first, second = first + weight * g, second + weight * g.square()
    return first.item(), second.item()


@pytest.mark.parametrize("power", range(16))
def test_both_gauss_rules_are_exact_to_the_degree_15(power):
    with mp.workdps(30):
        uniform = mp.mpf(1) / (power + 1)
        half_normal = (
            mp.mpf(2) ** (mp.mpf(power) / 2) * mp.gamma(mp.mpf(power + 1) / 2) / mp.sqrt(mp.pi)
        )
    for rule, moment in ((GAUSS_LEGENDRE, uniform), (HALF_NORMAL, half_normal)):
        assert sum(w * z**power for z, w in rule) == pytest.approx(float(moment), rel=2e-15)


@pytest.mark.parametrize(("name", "x", "lam"), CASES)
def test_expectations_agree_with_mpmath(name, x, lam):
    with mp.workdps(20):
        mean, square = (float(moment) for moment in exact_moments(name, x, lam, 1e-3))
    for given in (lam, torch.tensor(lam, dtype=torch.float64)):
        first, second = moments_by_rule(name, x, given, 1e-3)
        assert first == pytest.approx(mean, abs=1e-9 * square**0.5)
        assert second == pytest.approx(square, rel=1e-8)


@pytest.mark.parametrize("lam", [0.02, 1.0, torch.tensor(1.0, dtype=torch.float64)])
@pytest.mark.parametrize("phi", [0.0, 1e-3, 0.4])
def test_moments_of_delta(lam, phi):
    x = torch.tensor([-2.0, 0.0, 0.3, 50.0], dtype=torch.float64)
    nodes = list(delta_rule(x, lam, phi))
    lam = float(lam)
    mean_abs = (2 / torch.pi) ** 0.5
    for power, expected in (
        (0, 1.0),
        (1, 0.0),
        (2, lam**2 + 2 * lam * phi * mean_abs + phi**2),
        (3, 0.0),
    ):
        total = sum(weight * delta**power for delta, weight in nodes) + 0 * x
        torch.testing.assert_close(total, torch.full_like(x, expected), rtol=1e-12, atol=1e-12)
    assert all((torch.as_tensor(delta).abs() >= phi).all() for delta, _ in nodes)


def test_lambda_zero_puts_everything_on_phi():
    x = torch.tensor([0.7], dtype=torch.float64)
    for lam in (0.0, torch.tensor(0.0, dtype=torch.float64)):
        for kinks in ((), (1.0,)):
            nodes = list(delta_rule(x, lam, 0.25, kinks))
            assert sum(float(w) for _, w in nodes) == pytest.approx(1, abs=1e-14)
            assert {abs(float(d)) for d, _ in nodes} == {0.25}


def test_a_small_number_lambda_is_cheap_unless_a_kink_can_be_crossed():
    x = torch.ones(3)
    assert len(list(delta_rule(x, SMALL_LAMBDA, 1e-3, (0.0,)))) == 16
    assert len(list(delta_rule(x, torch.tensor(SMALL_LAMBDA), 1e-3))) == 200
    assert len(list(delta_rule(x, SMALL_LAMBDA, 1e-3, (-1.0, 1.0)))) > 200
    assert 100 < len(list(delta_rule(x, 1.0, 1e-3))) < 200


def test_lambda_broadcasts_against_x():
    x = torch.tensor([-1.0, 0.5, 2.0], dtype=torch.float64)
    lam = torch.tensor([[0.3], [4.0]], dtype=torch.float64)
    total = sum(weight * delta.square() for delta, weight in delta_rule(x, lam, 0.0))
    torch.testing.assert_close(total, lam.square().expand(2, 3), rtol=1e-12, atol=0)


def test_float32_stays_float32():
    x = torch.tensor([-1.0, 0.0, 2.0])
    for delta, weight in delta_rule(x, 1.0, 1e-3):
        assert delta.dtype == weight.dtype == torch.float32
        assert delta.isfinite().all()


@pytest.mark.parametrize("phi", [0.0, 1e-3, 0.4, 1.0, 2.5])
@pytest.mark.parametrize("power", [1, 2])
def test_crossing_moment_agrees_with_mpmath(power, phi):
    lams, expected = [0.15, 0.5, 1.0, 9.0, 1000.0], []
    for lam in lams:
        first = max((1 - mp.mpf(phi)) / lam, 0)
        ends = [first, *(end for end in (0.01, 0.1, 0.5, 1, 2, 4, 10) if end > first), first + 10]
        total = mp.quad(
            lambda z, lam=lam: mp.npdf(z) * (lam * z + phi - 1) ** power / (lam * z + phi), ends
        )
        expected.append(float(total))
    for dtype, error in ((torch.float64, 1e-13), (torch.float32, 1e-6)):
        found = crossing_moment(power, torch.tensor(lams, dtype=dtype), phi)
        assert found.dtype == dtype
        assert found.tolist() == pytest.approx(expected, rel=error, abs=error)


def test_crossing_moment_without_noise():
    zero = torch.tensor(0.0, dtype=torch.float64)
    assert crossing_moment(1, zero, 0.5).item() == 0
    assert crossing_moment(1, zero, 2.0).item() == pytest.approx(0.25, abs=1e-14)  # half are at -2
