"""The law of g_q(x) against closed forms, mpmath, its own integrals and draws."""

import math

import mpmath as mp
import pytest
import torch
from scipy import special

from qneurons import activations, moments
from qneurons.given_delta import difference
from qneurons.moments import atoms, cdf, density, mean, variance
from qneurons.noise import QLaw, draw_delta

NAMES = [row.name for row in activations.rows() if row.name != "sin"]
LAMS = torch.tensor([0.02, 1.0, 5.0], dtype=torch.float64)
X = torch.tensor([-3.05, 0.7], dtype=torch.float64)


def f64(*values):
    return torch.tensor(values, dtype=torch.float64)


def q_variance(lam, phi):
    return QLaw(f64(lam), f64(phi)).variance.item()


def q_fourth_moment(lam, phi):
    c = math.sqrt(2 / math.pi)
    return 3 * lam**4 + 8 * c * lam**3 * phi + 6 * (lam * phi) ** 2 + 4 * c * lam * phi**3 + phi**4


@pytest.fixture(scope="module")
def draws():
    """g_q(x) for 5·10⁴ draws of ε, the same for every activation, in ascending order."""
    generator = torch.Generator().manual_seed(20)
    eps = draw_delta((1, 50_000), 1.0, 0.0, dtype=torch.float64, device="cpu", generator=generator)

    def draw(name, x, lam, phi=1e-3):
        x, lam = x[:, None], lam[..., None]
        wide, delta = torch.broadcast_tensors(x, torch.copysign(lam * eps.abs() + phi, eps))
        g = difference(wide, delta, activations.resolve(name))
        # A constant g is constant to rounding only.
        for value in atoms(x, name, lam, phi)[0].unbind(-1) if name != "sin" else ():
            g = torch.where((g - value).abs() <= 1e-12 * (1 + value.abs()), value, g)
        return g.sort().values

    return draw


# --- density and cdf ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "x", "lam", "y", "expected"),
    [
        ("tanh", 1.0, 1.0, 0.50634979, 1.0713716),
        ("softplus", 1.0, 1.0, 0.75504859, 4.2744341),
        ("silu", -2.0, 5.0, 0.15991851, 1.7147789),
        ("sigmoid", 3.0, 5.0, 0.14577397, 1.9212163),
    ],
)
def test_density_spot_values(name, x, lam, y, expected):
    assert density(y, x, name, lam).item() == pytest.approx(expected, rel=1e-7)


def test_density_of_relu_in_closed_form():
    # x > 0, δ < -1: g = x / |δ|, so p(y) = p_δ(-x / y) x / y².
    y, x, lam, phi = f64(0.05, 0.3, 0.9, 1.4, 2.0, 2.5), 2.0, 1.5, 1e-3
    z = (x / y - phi) / lam
    expected = torch.exp(-z * z / 2) / (lam * math.sqrt(2 * math.pi)) * x / y**2
    expected = torch.where(y < x, expected, 0.0)
    torch.testing.assert_close(density(y, x, "relu", lam, phi), expected, rtol=1e-12, atol=0)


def test_density_next_to_delta_zero_does_not_cancel():
    # dg/dδ at δ = 0 is x² f''(x) / 2, and the density of δ is at its peak.
    x, lam = 1.0, 1e-9
    y = difference(f64(x), f64(1e-10), activations.resolve("tanh")).item()
    slope = -math.tanh(x) / math.cosh(x) ** 2
    value = density(y, x, "tanh", lam, phi=0.0).item() * abs(slope) * lam * math.sqrt(2 * math.pi)
    assert 0.9 < value <= 1 + 1e-9


def test_the_hole():
    # Around x f'(x) nothing is reached with |δ| < φ.
    x, phi = f64(-1.5, 1.0), 0.2
    limit = x * activations.resolve("softplus").derivative(x, beta=1.0)
    assert (density(limit, x, "softplus", 1.0, phi) == 0).all()
    torch.testing.assert_close(cdf(limit, x, "softplus", 1.0, phi), f64(0.5, 0.5))
    assert (density(limit, x, "softplus", 1.0, phi=0.0) > 0).all()


@pytest.mark.parametrize("name", NAMES)
def test_cdf_is_the_integral_of_the_density_and_the_atoms(name):
    x, lam, phi = X[:, None], LAMS[:, None, None], 0.1
    law, *_ = moments._law(X, name, LAMS[:, None], phi)
    z = f64(-12, -5, -3, -1.5, -0.5, -0.0, 0.0, 0.5, 1.5, 3, 5, 12)
    spread = torch.copysign(lam * z.abs() + phi, z).expand(-1, len(X), -1)
    y = law.g(torch.cat([law.pieces(law.cells()).start, spread], -1)).sort(dim=-1).values
    # Between neighbours y = low + (high - low) sin²(θ / 2), which is smooth at singular ends.
    nodes, weights = (torch.from_numpy(part) for part in special.roots_legendre(20))
    theta = (nodes + 1) * math.pi / 2
    u, weight = torch.sin(theta / 2).square(), weights * math.pi / 4 * torch.sin(theta)
    low, high = y[..., :-1, None], y[..., 1:, None]
    value = density(low + (high - low) * u, x[..., None], name, lam[..., None], phi)
    # Gaps of rounding size are the constant parts.
    value = torch.where(high - low > 1e-12, value, 0.0)
    integrals = (value * weight * (high - low)).sum(-1)
    values, masses = atoms(x, name, lam, phi)
    total = integrals.sum(-1, keepdim=True) + masses.sum(-1)
    torch.testing.assert_close(total, torch.ones_like(total), rtol=0, atol=1e-6)
    jumps = torch.where(values <= y[..., None], masses, 0.0).sum(-1)
    continuous = cdf(y, x, name, lam, phi) - jumps
    torch.testing.assert_close(continuous.diff(), integrals, rtol=0, atol=1e-6)


@pytest.mark.parametrize("name", NAMES)
def test_the_law_agrees_with_draws(name, draws):
    lam = LAMS[:, None]
    g = draws(name, X, lam)
    count = g.shape[-1]
    y = g[..., :: count // 100].contiguous()
    empirical = torch.searchsorted(g, y, right=True) / count
    distance = (cdf(y, X[:, None], name, lam[..., None]) - empirical).abs().max()
    assert distance * math.sqrt(count) < 1.95  # Kolmogorov's law is beyond with probability 1e-3
    values, masses = (part[..., 0] for part in atoms(X, name, lam))
    frequency = (g == values[..., None]).double().mean(-1)
    deviation = (masses * (1 - masses)).clamp(min=0).sqrt() / math.sqrt(count)
    assert ((frequency - masses).abs() <= 4.5 * deviation + 1e-12).all()
    deviation = variance(X, name, lam).sqrt()
    error = (g.mean(-1) - mean(X, name, lam)).abs()
    assert (error <= 4.5 * deviation / math.sqrt(count) + 1e-12).all()
    # Where a kink is hardly ever reached, few draws make the deviation.
    spread = (g - g.mean(-1, keepdim=True)).square().std(-1) / math.sqrt(count)
    error = (g.var(-1) - deviation.square()).abs()
    assert (error <= 4.5 * spread + 1e-12).all()


@pytest.mark.parametrize("name", ["softplus", "silu", "gelu", "gelu_tanh"])
def test_reflection_shifts_the_law(name):
    x, y = f64(0.3, 1.0, 2.5), torch.linspace(-1, 1, 41, dtype=torch.float64)[:, None]
    torch.testing.assert_close(cdf(x + y, x, name, 1.0), cdf(y, -x, name, 1.0))
    torch.testing.assert_close(
        density(x + y, x, name, 1.0), density(y, -x, name, 1.0), rtol=1e-6, atol=1e-9
    )
    torch.testing.assert_close(mean(x, name, 1.0) - mean(-x, name, 1.0), x, rtol=1e-9, atol=0)
    torch.testing.assert_close(variance(x, name, 1.0), variance(-x, name, 1.0), rtol=1e-7, atol=0)


@pytest.mark.parametrize("name", ["sigmoid", "tanh", "softsign"])
def test_odd_activations_mirror_the_law(name):
    x, y = f64(0.3, 1.0, 2.5), torch.linspace(-1, 1, 41, dtype=torch.float64)[:, None]
    torch.testing.assert_close(cdf(y, x, name, 2.0), 1 - cdf(-y, -x, name, 2.0))
    torch.testing.assert_close(density(y, x, name, 2.0), density(-y, -x, name, 2.0))
    torch.testing.assert_close(mean(x, name, 2.0), -mean(-x, name, 2.0))
    torch.testing.assert_close(variance(x, name, 2.0), variance(-x, name, 2.0))


# --- atoms ----------------------------------------------------------------------------------------


def normal_cdf(z):
    return 0.5 * math.erfc(-z / math.sqrt(2))


@pytest.mark.parametrize(
    ("name", "x", "expected"),
    [
        ("relu", 2.0, 2.0),
        ("relu", -2.0, 0.0),
        ("leaky_relu", 2.0, 2.0),
        ("leaky_relu", -2.0, -0.02),
        ("elu", 2.0, 2.0),
        ("celu", 2.0, 2.0),
        ("selu", 2.0, 2.1014019747),
    ],
)
def test_one_sided_atoms(name, x, expected):
    lam, phi = 1.5, 0.1
    values, masses = atoms(x, name, lam, phi)
    assert values[0].item() == pytest.approx(expected, rel=1e-10)
    assert masses.tolist() == pytest.approx([normal_cdf((1 - phi) / lam), 0.0], rel=1e-13)


def test_atoms_of_hardtanh():
    lam, phi = 2.0, 0.1

    def between(low, high):
        return normal_cdf((high - phi) / lam) - normal_cdf((low + phi) / lam)

    values, masses = atoms(f64(0.5, 3.0, -3.0, 1.0), "hardtanh", lam, phi)
    assert values[:3, 0].tolist() == [0.5, 0.0, 0.0]
    assert masses[0].tolist() == pytest.approx([between(-3, 1), 0.0], rel=1e-12)
    assert masses[1].tolist() == pytest.approx([normal_cdf((2 / 3 - phi) / lam), 0.0], rel=1e-12)
    assert masses[2].tolist() == pytest.approx([normal_cdf((2 / 3 - phi) / lam), 0.0], rel=1e-12)
    # On the kink: δ > 0 saturates, and -2 < δ < 0 stays on the slope.
    assert values[3].tolist() == [0.0, 1.0]
    assert masses[3].tolist() == pytest.approx([0.5, 0.5 - normal_cdf((-2 + phi) / lam)], rel=1e-12)


@pytest.mark.parametrize("name", NAMES)
def test_at_x_zero_the_law_is_one_atom(name):
    values, masses = atoms(0.0, name, 1.0)
    assert values.tolist() == [0.0, 0.0]
    assert masses.tolist() == [1.0, 0.0]
    assert cdf(f64(-1e-9, 0.0, 1.0), 0.0, name, 1.0).tolist() == [0.0, 1.0, 1.0]
    assert density(f64(-1.0, 0.0, 1.0), 0.0, name, 1.0).tolist() == [0.0, 0.0, 0.0]
    assert variance(0.0, name, 1.0) == 0


def test_identity_is_all_atom():
    values, masses = atoms(X, "identity", 5.0)
    torch.testing.assert_close(values[:, 0], X)
    assert masses.tolist() == [[1.0, 0.0]] * len(X)
    assert (density(X, X, "identity", 5.0) == 0).all()


def test_parameters_move_the_atoms():
    x = f64(-2.0, 0.5)
    assert atoms(x, torch.nn.LeakyReLU(0.3), 1.0)[0][:, 0].tolist() == [-0.6, 0.5]
    assert atoms(x, torch.nn.LeakyReLU(1.0), 1.0)[1].tolist() == [[1.0, 0.0]] * 2
    assert atoms(x, torch.nn.ELU(0.5), 1.0)[1][0, 0] == 0
    narrow, wide = (
        atoms(x[1], torch.nn.Hardtanh(-limit, limit), 1.0)[1][0] for limit in (0.7, 4.0)
    )
    assert narrow < wide


# --- mean and variance ----------------------------------------------------------------------------


@pytest.mark.parametrize(("lam", "phi"), [(0.02, 1e-3), (1.0, 0.0), (5.0, 0.4)])
def test_powers_as_callables(lam, phi):
    m2, m4 = q_variance(lam, phi), q_fourth_moment(lam, phi)
    closed = {"rtol": 1e-9, "atol": 0}
    torch.testing.assert_close(mean(X, torch.square, lam, phi), 2 * X**2, **closed)
    torch.testing.assert_close(variance(X, torch.square, lam, phi), X**4 * m2, **closed)
    torch.testing.assert_close(mean(X, lambda x: x**3, lam, phi), X**3 * (3 + m2), **closed)
    expected = X**6 * (9 * m2 + m4 - m2**2)
    torch.testing.assert_close(variance(X, lambda x: x**3, lam, phi), expected, **closed)


@pytest.mark.parametrize(
    ("f", "lam"), [*(("sin", lam) for lam in (0.02, 0.1, 1.0, 5.0, 9.0)), (lambda x: x.sin(), 2.0)]
)
def test_mean_of_sin_in_closed_form(f, lam):
    x = f64(-8.0, -2.0, 0.3, 3.0)
    root = math.sqrt(math.pi / 2)
    expected = x.cos() * x.sign() * root * torch.erf(lam * x.abs() / math.sqrt(2)) / lam
    rms = (variance(x, f, lam, 0.0) + expected**2).sqrt()
    assert ((mean(x, f, lam, phi=0.0) - expected).abs() <= 1e-9 * rms).all()


@pytest.mark.parametrize(("x", "lam"), [(1000.0, 0.1), (-3000.0, 0.02)])
def test_mean_and_variance_of_sin_far_out(x, lam):
    # The mean over ±d, d = |δ|, is cos(x) sin(dx) / d for g, and for g² what ``second`` sums.
    phi, step = 1e-3, 3e-6
    z = torch.arange(0, 9, step, dtype=torch.float64) + step / 2
    weight = torch.exp(-z * z / 2) * math.sqrt(2 / math.pi) * step
    d, wave = lam * z + phi, torch.cos((lam * z + phi) * x)
    first = math.cos(x) * (weight * torch.sin(d * x) / d).sum()
    second = (weight * (1 + math.cos(2 * x) * wave) * (1 - wave) / d**2).sum()
    assert abs(mean(x, "sin", lam, phi) - first) <= 1e-9 * second.sqrt()
    assert abs(variance(x, "sin", lam, phi) / (second - first**2) - 1) <= 1e-8


@pytest.mark.parametrize("function", [mean, variance])
@pytest.mark.parametrize("f", ["sin", torch.sin])
def test_an_oscillation_too_far_out_is_refused(function, f):
    with pytest.raises(ValueError, match=r"sin oscillates.*at most 4096, got 9255.*draws"):
        function(f64(0.0, 5000.0), f, 0.1)
    assert function(math.inf, f, 0.1).isnan()
    assert function(5000.0, "tanh", 0.1).isfinite()


@pytest.mark.parametrize("x", [1e3, 1e7])
def test_the_slow_tail_of_softsign_far_out(x):
    lam, phi = 1.0, 1e-3

    def g(b):
        return (b / (1 + abs(b)) - x / (1 + x)) / (b / x - 1)

    def law(b):
        return mp.npdf((abs(b / x - 1) - phi) / lam) / (lam * x)

    # The ends triple towards zero, and the hole around x is left out.
    scales = [x * mp.mpf(3) ** -k for k in range(20)]
    right = [x * (1 + phi), *(x * (1 + phi + z) for z in (1, 3, 6, 10))]
    middle = [0, *reversed([scale for scale in scales if scale < x / 2]), x / 2, x * (1 - phi)]
    left = sorted(-x * mp.mpf(end) for end in (10, 5, 2)) + [-s for s in scales] + [0]
    parts = left, middle, right
    with mp.workdps(20):
        first, second = (
            float(sum(mp.quad(lambda b, p=p: g(b) ** p * law(b), ends) for ends in parts))
            for p in (1, 2)
        )
    assert abs(mean(x, "softsign", lam, phi) - first) <= 1e-9 * math.sqrt(second)
    assert abs(variance(x, "softsign", lam, phi) / (second - first**2) - 1) <= 1e-8


def test_variance_of_sin_against_draws(draws):
    x, lam = f64(-8.0, 0.3, 3.0), LAMS[:, None]
    deviation = draws("sin", x, lam).std(-1)
    torch.testing.assert_close(deviation, variance(x, "sin", lam).sqrt(), rtol=0.02, atol=0)


@pytest.mark.parametrize("lam", [0.3, 1.0, 5.0, 9.0])
def test_relu_in_closed_form(lam):
    z = 1 / lam
    pdf, above, below = math.exp(-z * z / 2) / math.sqrt(2 * math.pi), normal_cdf(z), normal_cdf(-z)
    a = special.exp1(z * z / 2) / (2 * lam * math.sqrt(2 * math.pi))
    b = (pdf / z - below) / lam**2
    for sign, first, second in ((1, above + a, above + b), (-1, below - a, below - 2 * a + b)):
        x = sign * f64(0.01, 2.0)
        torch.testing.assert_close(mean(x, "relu", lam, 0.0), x * first, rtol=2e-9, atol=0)
        expected = x**2 * (second - first**2)
        torch.testing.assert_close(variance(x, "relu", lam, 0.0), expected, rtol=2e-8, atol=0)


def test_small_lambda_expansion():
    x, lam, phi = 1.0, 0.02, 1e-3
    with mp.workdps(40):
        d = [float(mp.diff(mp.tanh, x, n)) for n in range(6)]
    m2, m4 = q_variance(lam, phi), q_fourth_moment(lam, phi)
    three_terms = x * d[1] + x**3 * d[3] * m2 / 6 + x**5 * d[5] * m4 / 120
    assert three_terms - mean(x, "tanh", lam, phi).item() == pytest.approx(-2.7e-12, abs=1e-12)
    assert variance(x, "tanh", lam, phi).item() == pytest.approx((d[2] / 2) ** 2 * m2, rel=2e-2)


def test_lambda_zero_leaves_two_values():
    row = activations.resolve("tanh")
    low, high = (difference(X, torch.full_like(X, d), row) for d in (-0.5, 0.5))
    for lam in (0.0, f64(0.0)):
        torch.testing.assert_close(mean(X, "tanh", lam, 0.5), (low + high) / 2)
        torch.testing.assert_close(variance(X, "tanh", lam, 0.5), (high - low) ** 2 / 4)


def test_fine_scales_are_resolved():
    x = f64(-0.03, 0.002, 0.05)
    scaled = mean(100 * x, "softplus", 1.0) / 100
    torch.testing.assert_close(mean(x, torch.nn.Softplus(100.0), 1.0), scaled, rtol=1e-8, atol=0)


# --- shapes, dtypes, bad input --------------------------------------------------------------------


def test_everything_broadcasts():
    y, x, lam = f64(0.1, 0.4)[:, None, None], f64(-1.0, 0.0, 2.0, 5.0), f64(0.5, 3.0)[:, None]
    for name in ("hardtanh", "gelu"):
        for function in (density, cdf):
            table = function(y, x, name, lam)
            assert table.shape == (2, 2, 4)
            for i, j in ((0, 1), (1, 0)):
                single = function(y[i].item(), x, name, lam[j].item())
                torch.testing.assert_close(table[i, j], single, rtol=1e-12, atol=1e-15)
        values, masses = atoms(x, name, lam)
        assert values.shape == masses.shape == (2, 4, 2)
        torch.testing.assert_close(masses[1], atoms(x, name, 3.0)[1])
        for function in (mean, variance):
            table = function(x, name, lam)
            torch.testing.assert_close(table[0], function(x, name, 0.5), rtol=1e-9, atol=1e-15)
            torch.testing.assert_close(table[1], function(x, name, 3.0), rtol=1e-9, atol=1e-15)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_the_result_has_the_dtype_of_the_input(dtype):
    x = torch.tensor([0.5, 1.5], dtype=dtype, requires_grad=True)
    results = [
        density(0.25, x, "tanh", 1.0),
        cdf(0.25, x, "tanh", 1.0),
        mean(x, "tanh", f64(1.0)),
        variance(x, "tanh", 1.0),
        *atoms(x, "tanh", 1.0),
    ]
    wide = [
        density(0.25, x.double(), "tanh", 1.0),
        cdf(0.25, x.double(), "tanh", 1.0),
        mean(x.double(), "tanh", 1.0),
        variance(x.double(), "tanh", 1.0),
        *atoms(x.double(), "tanh", 1.0),
    ]
    for result, expected in zip(results, wide, strict=True):
        assert result.dtype == dtype
        assert not result.requires_grad
        assert torch.equal(result, expected.to(dtype))


def test_numbers_give_float64_and_tensors_their_common_dtype():
    assert density(0.5, 1.0, "tanh", 1.0).dtype == torch.float64
    assert mean(1.0, "tanh", torch.tensor(1.0)).dtype == torch.float64
    y, x = torch.tensor([0.5], dtype=torch.float16), torch.tensor([1.0])
    assert cdf(y, x, "tanh", 1.0).dtype == torch.float32
    assert cdf(y, 1.0, "tanh", 1.0).dtype == torch.float16


def test_empty_scalar_and_non_contiguous_input():
    empty = torch.empty(0, 3)
    assert density(empty, 1.0, "gelu", 1.0).shape == (0, 3)
    assert mean(empty, "gelu", 1.0).shape == (0, 3)
    assert atoms(empty, "gelu", 1.0)[0].shape == (0, 3, 2)
    x = torch.arange(1.0, 13.0, dtype=torch.float64).reshape(3, 4).T
    torch.testing.assert_close(mean(x, "gelu", 1.0), mean(x.contiguous(), "gelu", 1.0))
    assert cdf(0.5, 1.0, "gelu", 1.0).shape == ()


def test_nan_and_infinity():
    nan, inf = math.nan, math.inf
    for function in (density, cdf):
        result = function(f64(nan, 0.1, 0.1, 0.1), f64(1.0, nan, inf, -inf), "tanh", 1.0)
        assert result.isnan().all()
        result = function(f64(-inf, inf), 1.0, "tanh", 1.0)
        assert result.tolist() == ([0.0, 1.0] if function is cdf else [0.0, 0.0])
    assert mean(f64(nan, 1.0), "tanh", 1.0).isnan().tolist() == [True, False]


@pytest.mark.parametrize("function", [density, cdf, lambda y, *rest: atoms(*rest)])
@pytest.mark.parametrize(
    ("activation", "message"),
    [
        (
            "sin",
            "sin.*infinitely many.*mean and variance",
        ),
        (torch.exp, "exp.*callable.*mean and variance.*q_activation"),
    ],
)
def test_laws_that_are_not_known(function, activation, message):
    with pytest.raises(ValueError, match=message):
        function(0.1, 1.0, activation, 1.0)


def test_bad_arguments():
    for lam in (0.0, -1.0, math.nan, math.inf):
        with pytest.raises(ValueError, match=f"lam.* positive.* {lam}"):
            density(0.1, 1.0, "tanh", lam)
    for lam in (-1.0, math.nan, math.inf):
        with pytest.raises(ValueError, match=f"lam.* 0 or more.* {lam}"):
            mean(1.0, "tanh", lam)
    with pytest.raises(ValueError, match=r"phi.* -0\.1"):
        variance(1.0, "tanh", 1.0, phi=-0.1)
    for dtype in (torch.int64, torch.complex64):
        with pytest.raises(TypeError, match=rf"{dtype}.*\.double\(\)"):
            cdf(0.1, torch.ones(2, dtype=dtype), "tanh", 1.0)
    with pytest.raises(ValueError, match=r"'tanhh'.*'tanh'"):
        atoms(1.0, "tanhh", 1.0)
