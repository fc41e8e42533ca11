"""The (p,q)-calculus: its rules, its limits, and the paper's misprints, each shown to fail."""

import ast
import math
import re
from fractions import Fraction
from pathlib import Path

import mpmath
import pytest
import sympy as sp
import torch
import torch.nn.functional as F
from hypothesis import assume, given, settings, strategies as st
from torch.autograd import gradcheck, gradgradcheck

from qneurons.calculus import (
    _GAUSS_LEGENDRE,
    bregman_divergence,
    pq_derivative,
    pq_differential,
    pq_gradient,
    q_derivative,
)

quickly = settings(deadline=None, derandomize=True, max_examples=40)
# torch's own forward mode scripts its decompositions on first use.
reals = st.one_of(st.sampled_from([0.0, 1.0, -1.0, 0.5, 2.0]), st.floats(-3, 3))

SMOOTH = {
    "tanh": torch.tanh,
    "sin": torch.sin,
    "sigmoid": torch.sigmoid,
    "softplus": F.softplus,
    "exp": torch.exp,
    "cubic": lambda y: y**3 - 2 * y + 1,
}
functions = st.sampled_from(sorted(SMOOTH)).map(SMOOTH.__getitem__)
# Largest |f''| and |f'''| over the real line, rounded up.
BOUNDS = {"tanh": (0.77, 2.0), "sin": (1.0, 1.0), "sigmoid": (0.0963, 0.125)}


def f64(value):
    return torch.tensor(value, dtype=torch.float64)


def slope(f, y, order=1):
    """f', f'' and so on by plain autograd, as an independent reference."""
    y = f64(y).requires_grad_()
    value = f(y)
    for _ in range(order):
        (value,) = torch.autograd.grad(value.sum(), y, create_graph=True)
    return value.detach()


def assert_equal(actual, expected, tol=1e-11):
    torch.testing.assert_close(
        actual, torch.as_tensor(expected, dtype=actual.dtype), rtol=tol, atol=tol
    )


# Rules of the calculus, the degenerate points included


@quickly
@given(functions, functions, reals, reals, reals, reals)
def test_sum_rule(f, g, x, p, q, c):
    x = f64(x)
    left = pq_derivative(lambda y: f(y) + c * g(y), x, p, q)
    assert_equal(left, pq_derivative(f, x, p, q) + c * pq_derivative(g, x, p, q))


@quickly
@given(functions, functions, reals, reals, reals)
def test_product_rule(f, g, x, p, q):
    x = f64(x)
    df, dg = pq_derivative(f, x, p, q), pq_derivative(g, x, p, q)
    left = pq_derivative(lambda y: f(y) * g(y), x, p, q)
    assert_equal(left, f(p * x) * dg + g(q * x) * df, tol=1e-10)
    assert_equal(left, f(q * x) * dg + g(p * x) * df, tol=1e-10)


@quickly
@given(functions, st.sampled_from([torch.sigmoid, lambda y: 2 + torch.sin(y)]), reals, reals, reals)
def test_ratio_rule(f, g, x, p, q):
    x = f64(x / 3)  # a tame denominator: sigmoid is at least 1/21
    df, dg = pq_derivative(f, x, p, q), pq_derivative(g, x, p, q)
    left = pq_derivative(lambda y: f(y) / g(y), x, p, q)
    product = g(p * x) * g(q * x)
    assert_equal(left, (g(q * x) * df - f(q * x) * dg) / product, tol=1e-10)
    assert_equal(left, (g(p * x) * df - f(p * x) * dg) / product, tol=1e-10)


@quickly
@given(functions, reals, reals, reals)
def test_symmetry_is_exact(f, x, p, q):
    x = f64(x)
    assert torch.equal(pq_derivative(f, x, p, q), pq_derivative(f, x, q, p))


@quickly
@given(functions, reals, reals)
def test_q_derivative_is_the_case_p_equal_1(f, x, q):
    x = f64(x)
    assert torch.equal(pq_derivative(f, x, 1, q), q_derivative(f, x, q))


@quickly
@given(functions, reals, reals, reals)
def test_derivative_is_the_quotient_of_differentials(f, x, p, q):
    x = f64(x)
    by_x = pq_differential(lambda y: y, x, p, q)
    assert_equal(by_x, (q - p) * x)
    assert_equal(pq_derivative(f, x, p, q) * by_x, pq_differential(f, x, p, q))
    assert torch.equal(pq_differential(f, x, p, q), -pq_differential(f, x, q, p))


@quickly
@given(functions, reals, reals, reals)
def test_corollary_bregman_forms(f, x, p, q):
    x = f64(x)
    a, b = p * x, q * x
    left = pq_derivative(f, x, p, q) * (b - a)
    assert_equal(left, slope(f, a.item()) * (b - a) + bregman_divergence(f, b, a))
    assert_equal(-left, slope(f, b.item()) * (a - b) + bregman_divergence(f, a, b))


@quickly
@given(functions, reals, reals, reals)
def test_proposition_2(f, x, p, q):
    assume(abs(p - 1) > 0.05)
    assume(q != 1)
    x = f64(x)
    left = q_derivative(lambda y: y * q_derivative(f, y, q), x, p)
    right = (q_derivative(f, x, q) - p * pq_derivative(f, x, p, p * q)) / (1 - p)
    assert_equal(left, right, tol=1e-9)


@quickly
@given(st.sampled_from(sorted(BOUNDS)), reals, st.floats(-0.5, 0.5))
def test_proposition_1_error_is_linear_in_delta(name, x, delta):
    f, (second, third) = SMOOTH[name], BOUNDS[name]
    y = f64(x).requires_grad_()
    g = y * q_derivative(f, y, 1 + delta)
    (dg,) = torch.autograd.grad(g, y)
    step = abs(delta * x) / 2
    reach = abs(x) * (1 + abs(delta))
    assert abs(g - x * slope(f, x)) <= step * abs(x) * second + 1e-14
    limit = slope(f, x) + x * slope(f, x, order=2)
    assert abs(dg - limit) <= step * (2 * second + reach * third) + 1e-13


def law_of_q(eps, lam, phi):
    return 1 + (2 * (eps >= 0) - 1) * (lam * abs(eps) + phi)


def test_proposition_1_holds_in_probability_and_needs_phi_to_vanish_too():
    eps = torch.randn(4000, dtype=torch.float64, generator=torch.Generator().manual_seed(5))
    x = f64(1.0)
    limit = x * slope(torch.tanh, 1.0)

    def share_outside(lam, phi, radius):
        g = x * q_derivative(torch.tanh, x, law_of_q(eps, lam, phi))
        return ((g - limit).abs() > radius).double().mean().item()

    shares = [share_outside(scale, 1e-3 * scale, radius=0.05) for scale in (1, 0.1, 0.03, 0.01)]
    assert shares == sorted(shares, reverse=True)
    assert shares[0] > 0.5
    assert shares[-1] == 0
    # lam alone is not enough: the noise keeps a distance of phi from 1.
    assert share_outside(0.0, 1e-3, radius=3e-4) == 1
    assert_equal(x * q_derivative(torch.tanh, x, 1.001) - limit, -3.197e-4, tol=1e-7)


@quickly
@given(st.sampled_from(sorted(BOUNDS)), reals, reals, st.floats(-0.1, 0.1))
def test_lemma_limits(name, x, q, gap):
    f, (second, _) = SMOOTH[name], BOUNDS[name]
    near_q = pq_derivative(f, f64(x), q + gap, q)
    assert abs(near_q - slope(f, q * x)) <= abs(gap * x) / 2 * second + 1e-13
    near_0 = pq_derivative(f, f64(gap), x, q)
    assert abs(near_0 - slope(f, 0.0)) <= abs(gap) * max(abs(x), abs(q)) * second + 1e-13


@quickly
@given(st.lists(reals, min_size=3, max_size=3), reals, reals, reals, reals)
def test_gradient_is_linear(x, p, q, c1, c2):
    x, p = f64(x), f64([p, 1.0, q])

    def product(v):
        return torch.sin(v).prod(-1)

    def energy(v):
        return v.square().sum(-1) + torch.exp(v[..., 0] * v[..., 2] / 4)

    left = pq_gradient(lambda v: c1 * product(v) + c2 * energy(v), x, p, q)
    right = c1 * pq_gradient(product, x, p, q) + c2 * pq_gradient(energy, x, p, q)
    assert_equal(left, right, tol=1e-10)


# Short proofs for a general f

X, P, Q, C = sp.symbols("x p q c", nonzero=True)
f_, g_ = sp.Function("f"), sp.Function("g")


def D(f, p=P, q=Q):
    return lambda x: (f(p * x) - f(q * x)) / ((p - q) * x)


def cubic(y):
    return sum(c * y**k for k, c in enumerate(sp.symbols("c0:4")))


def cubic_slope(y):
    return sp.diff(cubic(X), X).subs(X, y)


def bregman(a, b):
    return cubic(a) - cubic(b) - (a - b) * cubic_slope(b)


PROOFS = {
    "symmetry": D(f_)(X) - D(f_, Q, P)(X),
    "p = 1": D(f_, 1, Q)(X) - (f_(X) - f_(Q * X)) / ((1 - Q) * X),
    "sum": D(lambda y: f_(y) + C * g_(y))(X) - D(f_)(X) - C * D(g_)(X),
    "product, line 1": D(lambda y: f_(y) * g_(y))(X) - f_(P * X) * D(g_)(X) - g_(Q * X) * D(f_)(X),
    "product, line 2": D(lambda y: f_(y) * g_(y))(X) - f_(Q * X) * D(g_)(X) - g_(P * X) * D(f_)(X),
    "ratio, line 1": D(lambda y: f_(y) / g_(y))(X)
    - (g_(Q * X) * D(f_)(X) - f_(Q * X) * D(g_)(X)) / (g_(P * X) * g_(Q * X)),
    "ratio, line 2": D(lambda y: f_(y) / g_(y))(X)
    - (g_(P * X) * D(f_)(X) - f_(P * X) * D(g_)(X)) / (g_(P * X) * g_(Q * X)),
    "Proposition 2": D(lambda y: y * D(f_, 1, Q)(y), 1, P)(X)
    - (D(f_, 1, Q)(X) - P * D(f_, P, P * Q)(X)) / (1 - P),
    "Proposition 1": (X * sp.cancel(D(cubic, 1, Q)(X))).subs(Q, 1) - X * cubic_slope(X),
    "Proposition 1, slope": sp.diff(X * sp.cancel(D(cubic, 1, Q)(X)), X).subs(Q, 1)
    - sp.diff(X * cubic_slope(X), X),
    "lemma, p to q": sp.cancel(D(cubic)(X)).subs(P, Q) - cubic_slope(Q * X),
    "lemma, x to 0": sp.cancel(D(cubic)(X)).subs(X, 0) - cubic_slope(0),
    "corollary, line 1": D(cubic)(X) - cubic_slope(P * X) - bregman(Q * X, P * X) / (X * (Q - P)),
    "corollary, line 2": D(cubic)(X) - cubic_slope(Q * X) - bregman(P * X, Q * X) / (X * (P - Q)),
}


@pytest.mark.parametrize("name", PROOFS)
def test_proof(name):
    assert sp.simplify(PROOFS[name]) == 0


def test_slopes_at_the_degenerate_points_proved():
    quotient = sp.cancel(D(cubic)(X))
    second = sp.diff(cubic_slope(X), X)
    at_zero = sp.diff(quotient, X).subs(X, 0) - (P + Q) / 2 * second.subs(X, 0)
    at_equal = sp.diff(quotient, X).subs(P, Q) - Q * second.subs(X, Q * X)
    assert sp.simplify(at_zero) == 0
    assert sp.simplify(at_equal) == 0


# Errata: the printed form fails on a counterexample, ours holds


def test_errata_13_phi_is_the_least_distance_of_q_from_1():
    lam, phi = Fraction(1), Fraction(1, 1000)
    assert law_of_q(Fraction(-999, 1000), lam, phi) == 0 < phi
    distances = [abs(law_of_q(Fraction(k, 100), lam, phi) - 1) for k in range(-500, 501)]
    assert min(distances) == phi


def test_errata_14_support_of_q():
    lam, phi = Fraction(1), Fraction(1, 1000)

    def printed(q):
        return q <= -phi or q >= phi

    def right(q):
        return q <= 1 - phi or q >= 1 + phi

    assert not printed(law_of_q(Fraction(-999, 1000), lam, phi))
    assert all(right(law_of_q(Fraction(k, 100), lam, phi)) for k in range(-500, 501))

    gap = Fraction(10005, 10000)
    assert printed(gap)
    assert not right(gap)
    # Every point of the right set but the left edge, reached in the limit only, is attained.
    for q in (Fraction(-3), Fraction(0), Fraction(998, 1000), 1 + phi, Fraction(7)):
        distance = (abs(q - 1) - phi) / lam
        assert law_of_q(distance if q > 1 else -distance, lam, phi) == q


def test_errata_15_q_avoids_one_not_zero():
    eps = [Fraction(k, 1000) for k in range(-3000, 3001)]
    drawn = {law_of_q(e, Fraction(1), Fraction(1, 1000)) for e in eps}
    assert 0 in drawn
    assert 1 not in drawn


def test_errata_21_derivative_operator_needs_its_operand():
    # The printed right-hand side, d/dx, has no f in it; D f has.
    x = f64(3.0)
    assert_equal(q_derivative(lambda y: y**2, x, 1.0), sp.diff(X**2, X).subs(X, 3).p)
    assert_equal(q_derivative(lambda y: y**3, x, 1.0), sp.diff(X**3, X).subs(X, 3).p)
    assert sp.diff(X**2, X) != sp.diff(X**3, X)


def test_errata_22_value_at_p_equal_q():
    x, printed = f64(3.0), slope(torch.square, 0.0)
    nearby = pq_derivative(torch.square, x, 1.0, 1.0 + 1e-6)
    assert abs(nearby - printed) > 5
    assert abs(nearby - 6) < 1e-5
    assert_equal(pq_derivative(torch.square, x, 1.0, 1.0), 6.0)


@pytest.mark.parametrize(
    ("f", "right"), [(torch.square, 12.0), (torch.sin, math.cos(6))], ids=["square", "sin"]
)
def test_errata_24_lemma_has_no_factor_1_over_q(f, right):
    x, q = f64(3.0), 2.0
    printed = slope(f, 6.0) / q
    nearby = pq_derivative(f, x, q + 1e-7, q)
    assert abs(nearby - printed) > 0.4
    assert abs(nearby - right) < 1e-5
    assert_equal(pq_derivative(f, x, q, q), right)
    # The factor belongs with the derivative of x -> f(qx).
    assert_equal(slope(lambda y: f(q * y), 3.0) / q, right)


@pytest.mark.parametrize(
    ("f", "p", "q", "x", "value", "printed"),
    [
        (torch.square, 1.0, 2.0, 3.0, 9.0, 3.0),
        (torch.tanh, 0.6, -1.7, 0.9, 0.677977, 0.835949),
    ],
    ids=["square", "tanh"],
)
def test_errata_31_corollary_line_1_sign(f, p, q, x, value, printed):
    divergence = bregman_divergence(f, f64(q * x), p * x)
    assert_equal(slope(f, p * x) + divergence / (x * (p - q)), printed, tol=1e-6)
    assert_equal(slope(f, p * x) + divergence / (x * (q - p)), value, tol=1e-6)
    assert_equal(pq_derivative(f, f64(x), p, q), value, tol=1e-6)
    assert abs(printed - value) > 0.1


@pytest.mark.parametrize(
    ("f", "p", "q", "x", "value", "printed"),
    [
        (torch.square, 1.0, 2.0, 3.0, 9.0, 15.0),
        (torch.tanh, 0.6, -1.7, 0.9, 0.677977, -0.335723),
    ],
    ids=["square", "tanh"],
)
def test_errata_32_corollary_line_2_sign(f, p, q, x, value, printed):
    divergence = bregman_divergence(f, f64(p * x), q * x)
    assert_equal(slope(f, q * x) + divergence / (x * (q - p)), printed, tol=1e-6)
    assert_equal(slope(f, q * x) + divergence / (x * (p - q)), value, tol=1e-6)
    assert_equal(pq_derivative(f, f64(x), p, q), value, tol=1e-6)
    assert abs(printed - value) > 0.1


def test_errata_34_product_rule_multiplies():
    x, p, q = f64(3.0), 1.0, 2.0
    d_identity = pq_derivative(lambda y: y, x, p, q)
    assert_equal(p * x + d_identity + q * x * d_identity, 10.0)  # printed, line 1
    assert_equal(q * x + d_identity + p * x * d_identity, 10.0)  # printed, line 2
    assert_equal(p * x * d_identity + q * x * d_identity, 9.0)
    assert_equal(pq_derivative(torch.square, x, p, q), 9.0)


def test_errata_37_partial_derivative_scales_the_step():
    def function(v):
        return v[..., 0] ** 2 * v[..., 1]

    x, e1, p1, q1 = f64([3.0, 5.0]), f64([1.0, 0.0]), 2.0, 0.5

    def second_form(unit):
        high, low = function(x + (p1 - 1) * unit * e1), function(x + (q1 - 1) * unit * e1)
        return (high - low) / ((p1 - q1) * x[0])

    assert_equal(second_form(unit=1), 65 / 6)  # printed
    assert_equal(second_form(unit=x[0]), 75 / 2)
    assert_equal(pq_gradient(function, x, p1, q1)[0], 75 / 2)


def test_errata_41_snippet_does_not_parse():
    header = "def qactivate( x, {}, eps ):\n    return {} * eps"
    with pytest.raises(SyntaxError):
        ast.parse(header.format("lambda", "lambda"))
    ast.parse(header.format("lam", "lam"))


# Loose statements


def test_loose_3_no_chain_rule():
    x, q = f64(1.5), 0.5
    composed = q_derivative(lambda y: (y + 1) ** 2, x, q)
    assert_equal(composed, (1 + q) * 1.5 + 2)
    chained = q_derivative(torch.square, x + 1, q) * q_derivative(lambda y: y + 1, x, q)
    assert_equal(chained, (1 + q) * 2.5)
    assert abs(composed - chained) > 0.1


def test_loose_9_p_derivative_of_a_q_activation_is_not_f():
    x, p, q = f64(1.0), 2.0, 3.0
    derived = q_derivative(lambda y: y * q_derivative(torch.square, y, q), x, p)
    assert_equal(derived, 12.0)  # while f(x) = 1 and D_p f(x) = 3
    assert_equal(q_derivative(torch.square, x, p), 3.0)


def test_loose_18_relu_is_kept_only_by_nonnegative_q():
    x = f64([2.0, -2.0])
    for q in (0.0, 0.3, 1.7):
        assert_equal(x * q_derivative(torch.relu, x, q), [2.0, 0.0])
    assert_equal(x * q_derivative(torch.relu, x, -1.0), [1.0, -1.0])


def test_loose_20_differential_has_the_other_sign():
    assert_equal(pq_differential(lambda y: y, f64(1.0), 2.0, 1.0), -1.0)


def test_loose_23_relu_has_no_derivative_at_0():
    x = f64([1e-3, -1e-3])
    assert_equal(pq_derivative(torch.relu, x, 1.0, 2.0), [1.0, 0.0])
    assert_equal(pq_derivative(torch.relu, x, 1.0, -1.0), [0.5, 0.5])


def test_loose_39_gradient_limit_needs_a_continuous_derivative():
    def wild(v):
        t = v[..., 0] - 1
        return t**2 * torch.sin(1 / t)  # derivative 0 at t = 0, not continuous there

    x, n = f64([1.0]), 1000
    p, q = (1 + 1 / (2 * math.pi * n + side * math.pi / 2) for side in (1, -1))
    assert_equal(pq_gradient(wild, x, p, q), [-2 / math.pi], tol=1e-3)

    smooth = pq_gradient(lambda v: torch.sin(v).prod(-1), f64([1.0, 2.0]), p, q)
    gradient = [math.cos(1) * math.sin(2), math.sin(1) * math.cos(2)]
    assert_equal(smooth, gradient, tol=1e-3)


def test_errata_page_cites_existing_tests_and_every_misprint():
    page = (Path(__file__).parents[1] / "docs" / "errata.md").read_text(encoding="utf-8")
    cited = set(re.findall(r"`(test_\w+)`", page))
    assert cited <= set(globals())
    assert {name for name in globals() if re.match(r"test_(errata|loose)_\d", name)} <= cited


# Accuracy and derivatives


def test_gauss_legendre_rule_is_exact_to_degree_15():
    for degree in range(0, 16, 2):
        moment = sum(2 * weight * node**degree for node, weight in _GAUSS_LEGENDRE)
        assert moment == pytest.approx(0.5**degree / (degree + 1), rel=1e-14)


@pytest.mark.parametrize(
    ("f", "exact", "exact_slope"),
    [
        (torch.tanh, mpmath.tanh, lambda y: mpmath.sech(y) ** 2),
        (torch.exp, mpmath.exp, mpmath.exp),
        (lambda y: 1 - torch.cos(y), lambda y: 1 - mpmath.cos(y), mpmath.sin),
    ],
    ids=["tanh", "exp", "1-cos"],
)
def test_value_and_slope_against_mpmath(f, exact, exact_slope):
    """From far apart to next to each other, where the quotient would have no digit left."""
    signs, sizes = (-1, 1), (1e-200, 1e-20, 1e-9, 1e-4, 0.03, 0.4, 2.0)
    ratios = [(1.0, 1 + d) for d in (-2.0, -1.0, 1e-12, -1e-7, 1e-3, 0.06, 0.7)] + [(0.0, 1.5)]
    grid = [(s * x, p, q) for s in signs for x in sizes for p, q in ratios]
    x, p, q = f64(grid).unbind(-1)
    x.requires_grad_()
    value = pq_derivative(f, x, p, q)
    (gradient,) = torch.autograd.grad(value.sum(), x)
    with mpmath.workdps(450):
        for (xi, pi, qi), v, g in zip(grid, value.tolist(), gradient.tolist(), strict=True):
            a, b = mpmath.mpf(pi) * xi, mpmath.mpf(qi) * xi
            h = b - a
            expected = (exact(b) - exact(a)) / h
            assert v == pytest.approx(float(expected), rel=2e-14, abs=5e-15)
            expected = (qi * exact_slope(b) - pi * exact_slope(a)) / h - expected / xi
            assert g == pytest.approx(float(expected), rel=2e-13, abs=2e-13)


def test_steps_are_short_relative_to_large_points():
    x, q = f64(1e6), f64(1 + 1e-5)
    assert_equal(q_derivative(torch.square, x, q), (1 + q) * x, tol=1e-15)


def test_smooth_function_with_a_singularity_next_to_the_points():
    x = f64([1e-5, 0.01, 0.05])
    assert_equal(q_derivative(torch.log, x, 10.0), math.log(10) / 9 / x, tol=1e-14)
    assert_equal(pq_derivative(torch.sqrt, x, 0.0, 1.0), x**-0.5, tol=1e-14)


@pytest.mark.parametrize("x", [1.0, 0.05, 1e-4, 1e-10])
def test_kinks_and_jumps_between_the_points_count_exactly(x):
    # relu(-x/2) = 0 and relu(x) = x
    assert_equal(q_derivative(torch.relu, f64([x, -x]), -0.5), [2 / 3, 1 / 3], tol=1e-14)
    assert_equal(q_derivative(torch.abs, f64(x), -0.5), 1 / 3, tol=1e-14)
    assert_equal(q_derivative(torch.sign, f64(x), -1.0), 1 / x, tol=1e-14)


def test_kink_at_the_point_takes_the_derivative_of_autograd():
    x = f64([0.0, 0.0]).requires_grad_()
    value = pq_derivative(torch.relu, x, f64([1.0, 2.0]), 2.0)
    value.sum().backward()
    assert_equal(value, [0.0, 0.0])
    assert_equal(x.grad, [0.0, 0.0])


def test_gradients_in_x_p_and_q():
    x = f64([0.0, 0.0, 0.7, -1.2, 0.3, 2.0]).requires_grad_()
    p = f64([1.0, 0.5, 1.0, 2.0, 1.0, 0.3]).requires_grad_()
    q = f64([1.0, -1.5, 1.0, 2.0, 1.01, -1.0]).requires_grad_()
    for f in (torch.tanh, torch.exp):
        assert gradcheck(lambda *a, f=f: pq_derivative(f, *a), (x, p, q), check_forward_ad=True)
        assert gradgradcheck(lambda *a, f=f: pq_derivative(f, *a), (x, p, q))
        assert gradcheck(lambda *a, f=f: pq_differential(f, *a), (x, p, q))
        assert gradcheck(lambda a, b, f=f: bregman_divergence(f, a, b), (x, p))
    assert gradcheck(lambda x, q: q_derivative(torch.sin, x, q), (x, q))


@quickly
@given(functions, reals, reals, reals)
def test_slopes_at_the_degenerate_points(f, x, p, q):
    at_zero = f64(0.0).requires_grad_()
    (gradient,) = torch.autograd.grad(pq_derivative(f, at_zero, p, q), at_zero)
    assert_equal(gradient, (p + q) / 2 * slope(f, 0.0, order=2))
    at_equal = f64(x).requires_grad_()
    (gradient,) = torch.autograd.grad(pq_derivative(f, at_equal, p, p), at_equal)
    assert_equal(gradient, p * slope(f, p * x, order=2))


def test_elements_far_apart_do_not_use_the_derivatives_of_f_prime():
    # f'' is infinite at 0, the first of the two points; the quotient needs f and f' there.
    x = f64([4.0, 9.0]).requires_grad_()
    value = pq_derivative(lambda y: y**1.5, x, f64([0.0, 1.0]), 1.0)
    value.sum().backward()
    assert_equal(value, [2.0, 4.5])
    assert_equal(x.grad, [1 / 4, 1 / 4])


def test_gradient_and_derivatives_of_the_gradient():
    def function(v):
        return torch.sin(v[..., 0]) * torch.exp(v[..., 1] * v[..., 2]) + v[..., 2] ** 2

    x = f64([[0.0, 1.0, 0.5], [0.4, 0.0, -2.0]]).requires_grad_()
    p = f64([1.0, 0.5, 2.0]).requires_grad_()
    q = f64([-0.5, 0.5, 1.2]).requires_grad_()
    gradient = pq_gradient(function, x, p, q)
    assert gradient.shape == x.shape
    for row, i in ((0, 0), (1, 0), (0, 1), (1, 1), (0, 2), (1, 2)):
        line = [f64(v) for v in x[row].tolist()]

        def along(t, line=line, i=i):
            return function(torch.stack([*line[:i], t, *line[i + 1 :]]))

        expected = pq_derivative(along, line[i], p[i], q[i])
        assert_equal(gradient[row, i], expected.detach())
    assert gradcheck(lambda *a: pq_gradient(function, *a), (x, p, q))


def test_gradient_limit_is_the_ordinary_gradient():
    x = f64([[0.3, -0.8], [0.0, 2.0]]).requires_grad_()
    value = torch.sin(x).prod(-1)
    (ordinary,) = torch.autograd.grad(value.sum(), x)
    assert_equal(pq_gradient(lambda v: torch.sin(v).prod(-1), x, 1.0, 1.0), ordinary)
    for gap in (1e-2, 1e-4):
        nearby = pq_gradient(lambda v: torch.sin(v).prod(-1), x, 1 + gap, 1 - gap / 2)
        assert (nearby - ordinary).abs().max() < gap


def test_gradient_accepts_a_function_of_one_point():
    x = f64([3.0, 5.0])
    assert_equal(pq_gradient(lambda v: v[0] ** 2 * v[1], x, 2.0, 0.5), [37.5, 9.0])
    assert_equal(pq_gradient(torch.linalg.vector_norm, x, 1.0, 1.0), x / 34**0.5)


def test_bregman_divergence_near_the_diagonal():
    def entropy(y):
        return y * y.log()

    b = f64(1.0)
    for gap in (1e-3, 1e-6):  # gap^2/2 - gap^3/6 + gap^4/12 - ...
        a = f64(1.0 + gap)
        step = a.item() - 1
        expected = step**2 / 2 - step**3 / 6 + step**4 / 12 - step**5 / 20
        assert bregman_divergence(entropy, a, b).item() == pytest.approx(expected, rel=1e-9)
    assert bregman_divergence(entropy, b, b) == 0


@quickly
@given(st.floats(-3, 3), st.floats(-3, 3))
def test_bregman_divergence_of_a_convex_function(a, b):
    divergence = bregman_divergence(torch.exp, f64(a), b)
    assert_equal(divergence, math.exp(a) - math.exp(b) - (a - b) * math.exp(b))
    assert divergence >= -1e-12


# Tensors: shapes, dtypes, transforms, errors


def test_broadcasting():
    x = torch.rand(5, 1, 3, generator=torch.Generator().manual_seed(0))
    p, q = torch.tensor([[0.5], [1.0]]), torch.tensor([2.0, 1.0, -1.0])
    value = pq_derivative(torch.square, x, p, q)
    assert value.shape == (5, 2, 3)
    torch.testing.assert_close(value, (p + q) * x)
    assert pq_differential(torch.square, x, p, q).shape == (5, 2, 3)
    assert q_derivative(torch.square, 2.0, q).shape == (3,)
    assert bregman_divergence(torch.square, x, p).shape == (5, 2, 3)
    assert pq_gradient(lambda v: v.prod(-1), x, p, q).shape == (5, 2, 3)
    assert q_derivative(torch.tanh, torch.empty(0, 7), 2.0).shape == (0, 7)
    assert pq_gradient(lambda v: v.prod(-1), torch.empty(0, 7), 1.0, 2.0).shape == (0, 7)


def test_dtype_is_that_of_the_tensors_with_dimensions():
    single, double = torch.ones(3), torch.ones(3, dtype=torch.float64)
    assert q_derivative(torch.exp, single, 2.0).dtype == torch.float32
    assert q_derivative(torch.exp, single, f64(2.0)).dtype == torch.float32
    assert q_derivative(torch.exp, single, double).dtype == torch.float64
    assert pq_derivative(torch.exp, 1, 2, 3).dtype == torch.get_default_dtype()
    assert pq_derivative(torch.exp, 1, f64(2.0), 3).dtype == torch.float64
    assert pq_gradient(lambda v: v.sum(-1), single.bfloat16(), 1.0, 2.0).dtype == torch.bfloat16


@pytest.mark.parametrize(
    ("dtype", "tol"), [(torch.float32, 1e-6), (torch.bfloat16, 2e-2), (torch.float16, 3e-3)]
)
@pytest.mark.parametrize("q", [-1.0, 0.0, 1.0, 1.0078125, 1.5])
def test_low_precision(dtype, tol, q):
    x = torch.linspace(-3, 3, 1023).to(dtype)
    for f in (torch.tanh, torch.exp, torch.sin):
        expected = q_derivative(f, x.double(), q)
        value = q_derivative(f, x, q)
        assert value.dtype == dtype
        error = (value.double() - expected).abs() / (1 + expected.abs() + f(x.double()).abs())
        assert error.max() < tol


def test_nan_and_infinity_propagate():
    x = f64([math.nan, math.inf])
    assert q_derivative(torch.tanh, x, 2.0).isnan().all()
    assert q_derivative(torch.sqrt, f64(0.0), 2.0) == math.inf


def test_parameters_of_f_receive_gradients():
    module = torch.nn.PReLU(init=0.25, dtype=torch.float64)
    x = f64([-2.0, -1.0, 3.0])
    q_derivative(module, x, f64([1.0, 2.0, -1.0])).sum().backward()
    assert_equal(module.weight.grad, [2.5])  # 1 + 1 + 1/2


def test_function_that_works_in_place():
    x = f64([1.0, -1.0])
    assert_equal(q_derivative(torch.nn.ReLU(inplace=True), x, -1.0), [0.5, 0.5])
    assert_equal(x, [1.0, -1.0])


def test_under_function_transforms_and_without_grad_mode():
    x = f64([0.0, 0.5, 2.0])
    expected = slope(torch.tanh, [0.0, 0.5, 2.0])
    with torch.no_grad():
        assert_equal(q_derivative(torch.tanh, x, 1.0), expected)
    assert_equal(torch.func.vmap(lambda t: q_derivative(torch.tanh, t, 1.0))(x), expected)
    second = torch.func.jacrev(lambda t: q_derivative(torch.tanh, t, 1.0))(x)
    assert_equal(second, torch.diag(slope(torch.tanh, [0.0, 0.5, 2.0], order=2)))
    assert_equal(torch.func.jacfwd(lambda t: q_derivative(torch.tanh, t, 1.0))(x), second)


@pytest.mark.parametrize(
    ("x", "kind"),
    [
        (torch.arange(3), "torch.int64"),
        (torch.tensor([True]), "torch.bool"),
        (torch.ones(2, dtype=torch.complex64), "torch.complex64"),
        (1j, "complex"),
        ("1", "str"),
        ([1.0], "list"),
    ],
)
def test_inputs_must_be_real(x, kind):
    message = rf"[xpqab] must.* {re.escape(kind)}; .*torch\.as_tensor"
    for call in (
        lambda: q_derivative(torch.square, x, 2.0),
        lambda: pq_derivative(torch.square, 1.0, 1.0, x),
        lambda: pq_differential(torch.square, 1.0, x, 2.0),
        lambda: pq_gradient(torch.sum, x, 1.0, 2.0),
        lambda: bregman_divergence(torch.square, 1.0, x),
    ):
        with pytest.raises(TypeError, match=message):
            call()


def test_inputs_must_broadcast():
    message = r"broadcast.* x of shape \(3,\), p of shape \(\), q of shape \(2,\).*unsqueeze"
    with pytest.raises(ValueError, match=message):
        pq_derivative(torch.square, torch.ones(3), 1.0, torch.ones(2))
    with pytest.raises(ValueError, match=r"a of shape \(3,\), b of shape \(2,\)"):
        bregman_divergence(torch.square, torch.ones(3), torch.ones(2))


@pytest.mark.parametrize(
    ("f", "got"), [(torch.sum, r"\(\)"), (lambda y: 3.0, "float"), (lambda y: y[None], r"\(1, 3\)")]
)
def test_f_must_keep_the_shape(f, got):
    message = rf"keep the shape.* \(3,\), got {got}$"
    for call in (
        lambda: q_derivative(f, torch.ones(3), 2.0),
        lambda: pq_differential(f, torch.ones(3), 1.0, 2.0),
        lambda: bregman_divergence(f, torch.ones(3), 2.0),
    ):
        with pytest.raises(ValueError, match=message):
            call()


def test_gradient_function_must_drop_the_last_dimension():
    message = r"F must.* last dimension.* \(4,\), got \(4, 3\)"
    with pytest.raises(ValueError, match=message):
        pq_gradient(torch.square, torch.ones(4, 3), 1.0, 2.0)
    with pytest.raises(ValueError, match=r"F must.* \(4,\), got \(\)"):
        pq_gradient(torch.sum, torch.ones(4, 3), 1.0, 2.0)


@pytest.mark.parametrize("shape", [(), (4, 0)])
def test_gradient_needs_coordinates(shape):
    message = rf"x.* {re.escape(str(shape))}; .*pq_derivative"
    with pytest.raises(ValueError, match=message):
        pq_gradient(torch.sum, torch.ones(shape), 1.0, 2.0)
