"""The law of q against closed forms, and the draw of δ against the law."""

import itertools
import math

import mpmath
import pytest
import scipy.integrate
import scipy.special
import torch
from hypothesis import given, settings, strategies as st
from scipy.stats import halfnorm

from qneurons.noise import TINY_DELTA, QLaw, draw_delta, draw_seed, normals, philox, seeded_delta

LAMS = (0.02, 0.1, 1.0, 5.0, 9.0)
PHIS = (0.0, 1e-3, 0.5)
NUM_DRAWS = 10**7
DTYPES = (torch.float32, torch.float64)

lams = st.floats(1e-3, 1e2)
phis = st.floats(0, 2)


def law64(lam: float, phi: float = 1e-3, **kwargs) -> QLaw:
    return QLaw(torch.tensor(lam, dtype=torch.float64), phi, **kwargs)


def grid64(law: QLaw) -> torch.Tensor:
    """Points from far in one tail through the hole to far in the other."""
    distance = torch.tensor([0.0, 1e-3, 0.1, 1.0, 5.0, 30.0], dtype=torch.float64)
    right = 1 + law.phi + law.lam * distance
    left = 1 - law.phi - law.lam * distance
    return torch.cat([left.flip(0), right])


def half_normal_cdf(delta: torch.Tensor, lam: float, phi: float) -> torch.Tensor:
    """P(q - 1 <= delta), from two half-normals of weight one half."""
    below = halfnorm.sf(-delta.numpy(), loc=phi, scale=lam) / 2
    above = halfnorm.cdf(delta.numpy(), loc=phi, scale=lam) / 2
    return torch.from_numpy(below + above)


def absolute_moment(power: int, lam: float, phi: float) -> float:
    """E|δ|^power by the binomial theorem and the absolute moments of a normal."""
    return sum(
        math.comb(power, k)
        * (lam * math.sqrt(2)) ** k
        * math.gamma((k + 1) / 2)
        / math.sqrt(math.pi)
        * phi ** (power - k)
        for k in range(power + 1)
    )


def correlation(a: torch.Tensor, b: torch.Tensor) -> float:
    a, b = a - a.mean(), b - b.mean()
    return float((a * b).mean() / (a.square().mean() * b.square().mean()).sqrt())


class TestLaw:
    @pytest.mark.parametrize(("lam", "phi"), list(itertools.product(LAMS, PHIS)))
    def test_density_and_cdf_are_those_of_two_half_normals(self, lam, phi):
        law = law64(lam, phi)
        q = grid64(law)
        # At the edges of the hole rounding may leave |q - 1| a little below φ.
        distance = ((q - 1).abs() - phi).clamp(min=0)
        log_density = torch.from_numpy(halfnorm.logpdf(distance.numpy(), scale=lam)) - math.log(2)
        torch.testing.assert_close(law.log_prob(q), log_density, rtol=1e-13, atol=1e-13)
        torch.testing.assert_close(
            law.cdf(q), half_normal_cdf(q - 1, lam, phi), rtol=1e-11, atol=0.0
        )

    @pytest.mark.parametrize(("lam", "phi"), list(itertools.product(LAMS, PHIS)))
    def test_float32_agrees_with_float64(self, lam, phi):
        law32 = QLaw(lam, phi)
        law = QLaw(law32.lam.double(), law32.phi.double())
        q = grid64(law).float()
        q = q[(q - 1).abs() > law32.phi + 1e-4 * law32.lam]  # each dtype rounds the edges its way
        assert len(q) == 10
        for function in ("log_prob", "cdf"):
            value, exact = getattr(law32, function)(q), getattr(law, function)(q.double())
            assert value.dtype == torch.float32
            torch.testing.assert_close(value, exact.float(), rtol=1e-5, atol=1e-6)
        tail = q[q < 1]
        torch.testing.assert_close(
            law32.cdf(tail), law.cdf(tail.double()).float(), rtol=1e-5, atol=0.0
        )

    def test_density_has_mass_one_and_is_the_slope_of_the_cdf(self):
        law = law64(0.1, 0.05)

        def density(q: float) -> float:
            return float(law.log_prob(torch.tensor(q, dtype=torch.float64)).exp())

        left, _ = scipy.integrate.quad(density, -1.0, 0.95)
        right, _ = scipy.integrate.quad(density, 1.05, 3.0)
        assert left == pytest.approx(0.5, abs=1e-12)
        assert right == pytest.approx(0.5, abs=1e-12)
        part, _ = scipy.integrate.quad(density, 0.7, 0.9)
        ends = torch.tensor([0.7, 0.9], dtype=torch.float64)
        assert part == pytest.approx(float(law.cdf(ends).diff()), rel=1e-12)

    def test_density_is_largest_at_the_edges_of_the_hole(self):
        law = law64(0.1, 0.25)
        edges = torch.tensor([0.75, 1.25], dtype=torch.float64)
        highest = torch.full((2,), 1 / (0.1 * math.sqrt(2 * math.pi)), dtype=torch.float64)
        torch.testing.assert_close(law.log_prob(edges).exp(), highest)

    def test_hole_has_no_density_and_cdf_one_half(self):
        law = law64(0.1, 0.25, validate_args=False)
        hole = torch.tensor([0.7500001, 1.0, 1.2499999], dtype=torch.float64)
        assert (law.log_prob(hole) == -math.inf).all()
        assert (law.cdf(hole) == 0.5).all()
        assert (
            law64(0.1, 0.25, validate_args=True).cdf(hole) == 0.5
        ).all()  # validation does not forbid it

    def test_nan_and_infinity(self):
        law = QLaw(0.1, validate_args=False)
        ends = torch.tensor([-math.inf, math.inf])
        assert law.cdf(ends).tolist() == [0.0, 1.0]
        assert (law.log_prob(ends) == -math.inf).all()
        assert law.icdf(torch.tensor([0.0, 1.0])).tolist() == [-math.inf, math.inf]
        nan = torch.tensor(math.nan)
        assert law.log_prob(nan).isnan()
        assert law.cdf(nan).isnan()
        assert law.icdf(nan).isnan()
        assert law.icdf(torch.tensor(1.5)).isnan()

    @given(lam=lams, phi=phis, u=st.floats(1e-12, 1 - 1e-12))
    @settings(deadline=None, derandomize=True, max_examples=60)
    def test_quantile_inverts_the_cdf(self, lam, phi, u):
        law, level = law64(lam, phi), torch.tensor(u, dtype=torch.float64)
        q = law.icdf(level)
        assert law.support.check(q)
        # q holds an error of one ulp, which the cdf magnifies by the slope at its steepest.
        ulp = 4 * torch.finfo(torch.float64).eps * max(1, abs(float(q)))
        torch.testing.assert_close(law.cdf(q), level, rtol=1e-12, atol=0.4 / lam * ulp)

    @pytest.mark.parametrize("dtype", DTYPES)
    def test_quantile_in_the_tails(self, dtype):
        law = QLaw(torch.tensor(0.5, dtype=dtype), 0.25)
        u = torch.tensor([1e-30, 1e-10, 1e-3, 0.999, 1 - 2.0**-20], dtype=dtype)
        normal = torch.from_numpy(scipy.special.ndtri(u.double().numpy()))
        exact = 1 + 0.5 * normal + torch.where(u < 0.5, -0.25, 0.25)
        torch.testing.assert_close(law.icdf(u), exact.to(dtype))

    @pytest.mark.parametrize("dtype", DTYPES)
    def test_quantile_at_and_around_one_half(self, dtype):
        law = QLaw(torch.tensor(0.1, dtype=dtype), 0.25)
        half = torch.tensor(0.5, dtype=dtype)
        above, below = half.nextafter(half + 1), half.nextafter(half - 1)
        assert law.icdf(half) == 0.75
        assert law.icdf(below) <= 0.75
        assert law.icdf(above) >= 1.25

    def test_no_phi_is_a_normal(self):
        law, normal = law64(0.3, 0.0), torch.distributions.Normal(torch.ones(()).double(), 0.3)
        q = torch.linspace(-1, 3, 101, dtype=torch.float64)
        torch.testing.assert_close(law.log_prob(q), normal.log_prob(q))
        torch.testing.assert_close(law.cdf(q), normal.cdf(q))
        torch.testing.assert_close(law.variance, normal.variance)
        torch.testing.assert_close(law.entropy(), normal.entropy())

    def test_probability_of_negative_q(self):
        expected = (8.43e-24, 0.158897345641318, 0.420818500663362, 0.4558081733664)
        for lam, probability in zip(LAMS[1:], expected, strict=True):
            computed = float(law64(lam).cdf(torch.zeros((), dtype=torch.float64)))
            assert computed == pytest.approx(probability, rel=1e-12 if lam >= 1 else 1e-3, abs=0)
            exact = mpmath.ncdf(-(1 - mpmath.mpf("1e-3")) / mpmath.mpf(str(lam)))
            assert computed == pytest.approx(float(exact), rel=1e-12, abs=0)
        # At λ = 0.02 it is below the smallest float64, but its logarithm can be had.
        with mpmath.workdps(30):
            exact = mpmath.ncdf(-mpmath.mpf("49.95"))
            assert mpmath.nstr(exact, 2) == "1.3e-544"
        log_probability = torch.special.log_ndtr(torch.tensor(-49.95, dtype=torch.float64))
        assert float(log_probability) == pytest.approx(float(mpmath.log(exact)), rel=1e-12)

    def test_variance(self):
        expected = (4.32915382e-4, 1.01605769e-2, 1.00159677, 25.0079798, 81.0143629)
        for lam, variance in zip(LAMS, expected, strict=True):
            law = law64(lam)
            assert float(law.variance) == pytest.approx(variance, rel=5e-9)
            assert float(law.variance) == pytest.approx(absolute_moment(2, lam, 1e-3), rel=1e-14)
            assert float(law.stddev) == pytest.approx(math.sqrt(variance), rel=5e-9)
            assert law.mean == 1

    @pytest.mark.parametrize("phi", PHIS)
    def test_entropy_is_minus_the_mean_log_density(self, phi):
        law = law64(0.7, phi)

        def integrand(q: float) -> float:
            log_density = float(law.log_prob(torch.tensor(q, dtype=torch.float64)))
            return -log_density * math.exp(log_density)

        half, _ = scipy.integrate.quad(integrand, 1 + phi, 1 + phi + 12 * 0.7)
        assert float(law.entropy()) == pytest.approx(2 * half, rel=1e-10)
        assert law.entropy() == law64(0.7, 0.0).entropy()


class TestDistributionInterface:
    def test_support_is_two_half_lines(self):
        support = QLaw(0.1, 0.25).support
        q = torch.tensor([-9.0, 0.75, 0.76, 1.0, 1.24, 1.25, 9.0, math.nan])
        assert support.check(q).tolist() == [True, True, False, False, False, True, True, False]
        assert not support.is_discrete
        assert support.event_dim == 0
        assert repr(support) == "OutsideInterval(lower_bound=0.75, upper_bound=1.25)"
        assert torch.distributions.constraints.is_dependent(QLaw.support)
        assert QLaw.support.event_dim == 0

    @pytest.mark.parametrize("dtype", DTYPES)
    @pytest.mark.parametrize("phi", [0.0, 1e-9, 1e-3, 0.3])
    def test_samples_lie_in_the_support_after_rounding(self, dtype, phi):
        torch.manual_seed(0)
        law = QLaw(torch.tensor(1e-6, dtype=dtype), phi)  # nearly every sample is at an edge
        q = law.sample((10_007,))
        assert law.log_prob(q).isfinite().all()

    @pytest.mark.parametrize(
        ("lam", "phi", "name", "rule"),
        [
            (0.0, 1e-3, "lam", "GreaterThan(lower_bound=0.0)"),
            (-0.5, 1e-3, "lam", "GreaterThan(lower_bound=0.0)"),
            (math.nan, 1e-3, "lam", "GreaterThan(lower_bound=0.0)"),
            (0.1, -0.5, "phi", "GreaterThanEq(lower_bound=0.0)"),
            (0.1, math.nan, "phi", "GreaterThanEq(lower_bound=0.0)"),
            (torch.tensor([0.1, -0.5]), 1e-3, "lam", "GreaterThan(lower_bound=0.0)"),
        ],
    )
    def test_bad_parameters_are_named_with_their_rule_and_value(self, lam, phi, name, rule):
        with pytest.raises(ValueError, match=f"Expected parameter {name}") as error:
            QLaw(lam, phi, validate_args=True)
        assert rule in str(error.value)
        received = lam if name == "lam" else phi
        assert str(error.value).endswith(f"found invalid values:\n{received}")
        QLaw(lam, phi, validate_args=False)

    @pytest.mark.parametrize(
        ("lam", "phi"), [(torch.tensor(1), 1e-3), (0.1, torch.tensor(0)), (torch.tensor(1j), 0.1)]
    )
    def test_parameters_must_be_floating_point(self, lam, phi):
        with pytest.raises(TypeError, match=r"lam and phi must be floating point, got .*\.float"):
            QLaw(lam, phi)

    def test_log_prob_refuses_values_in_the_hole(self):
        with pytest.raises(ValueError, match=r"within the support \(OutsideInterval"):
            QLaw(0.1, 0.25, validate_args=True).log_prob(torch.tensor([0.5, 1.0]))

    def test_shapes_broadcast(self):
        lam, phi = torch.rand(5, 1) + 0.1, torch.tensor([0.0, 0.1, 0.2])
        law = QLaw(lam, phi)
        assert law.batch_shape == (5, 3)
        assert law.event_shape == ()
        assert law.sample((7, 2)).shape == (7, 2, 5, 3)
        for quantity in (law.mean, law.variance, law.entropy(), law.sample()):
            assert quantity.shape == (5, 3)
        q = torch.tensor(3.0)
        for i, j in itertools.product(range(5), range(3)):
            single = QLaw(lam[i, 0], phi[j])
            assert law.log_prob(q)[i, j] == single.log_prob(q)
            assert law.cdf(q)[i, j] == single.cdf(q)
            assert law.variance[i, j] == single.variance
        assert QLaw(0.1).batch_shape == ()
        assert QLaw(0.1).sample().shape == ()
        assert QLaw(0.1).sample((0,)).shape == (0,)

    def test_expand(self):
        law = QLaw(torch.tensor([[0.1], [0.2]], dtype=torch.float64), 1e-3, validate_args=False)
        wide = law.expand((4, 2, 3))
        assert type(wide) is QLaw
        assert wide.batch_shape == (4, 2, 3)
        assert wide.sample().shape == (4, 2, 3)
        assert wide._validate_args is False
        q = torch.tensor(1.5, dtype=torch.float64)
        assert torch.equal(wide.log_prob(q), law.log_prob(q).expand(4, 2, 3))
        with pytest.raises(RuntimeError, match="expanded size"):
            law.expand((3, 3))

    @pytest.mark.parametrize("dtype", DTYPES)
    def test_every_result_has_the_dtype_of_the_parameters(self, dtype):
        law = QLaw(torch.tensor([0.1, 0.2], dtype=dtype))
        q = law.sample()
        results = (q, law.log_prob(q), law.cdf(q), law.icdf(q.new_tensor(0.3)), law.variance)
        assert {result.dtype for result in (*results, law.mean, law.entropy())} == {dtype}

    def test_repr_shows_the_parameters(self):
        assert repr(QLaw(0.5, 0.25)) == "QLaw(lam: 0.5, phi: 0.25)"

    def test_sample_is_a_function_of_the_seed_and_carries_no_gradient(self):
        law = QLaw(torch.tensor(0.1, requires_grad=True))
        torch.manual_seed(3)
        first, second = law.sample((100,)), law.sample((100,))
        torch.manual_seed(3)
        assert torch.equal(law.sample((100,)), first)
        assert not torch.equal(first, second)
        assert not first.requires_grad

    @pytest.mark.parametrize("phi", [0.0, 0.25])
    def test_rsample_is_differentiable_in_both_parameters(self, phi):
        lam = torch.tensor([0.1, 2.0], dtype=torch.float64, requires_grad=True)
        phi = torch.tensor(phi, dtype=torch.float64, requires_grad=True)

        def draw(lam, phi):
            torch.manual_seed(0)
            return QLaw(lam, phi, validate_args=False).rsample((5,))

        assert torch.autograd.gradcheck(draw, (lam, phi))

    def test_log_prob_and_cdf_are_differentiable_in_both_parameters(self):
        lam = torch.tensor([0.1, 2.0], dtype=torch.float64, requires_grad=True)
        phi = torch.tensor(0.25, dtype=torch.float64, requires_grad=True)
        q = torch.tensor([[0.2], [0.7], [1.0], [1.3], [4.0]], dtype=torch.float64)

        def in_support(lam, phi):
            return QLaw(lam, phi).log_prob(q[[0, 1, 3, 4]])

        def everywhere(lam, phi):
            return QLaw(lam, phi).cdf(q)

        assert torch.autograd.gradcheck(in_support, (lam, phi))
        assert torch.autograd.gradcheck(everywhere, (lam, phi))
        in_hole = QLaw(lam, phi, validate_args=False).log_prob(q).masked_fill(q == 1, 0.0)
        (gradient,) = torch.autograd.grad(in_hole.sum(), lam)
        assert gradient.isfinite().all()


def draw_seeded(shape, lam, phi, *, seed, dtype=torch.float32) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return draw_delta(shape, lam, phi, dtype=dtype, device="cpu", generator=generator)


def sample_seeded(shape, lam, phi, *, seed) -> torch.Tensor:
    torch.manual_seed(seed)
    return QLaw(lam, phi).sample(shape).sub_(1)


class TestDrawsFollowTheLaw:
    @pytest.mark.parametrize(
        ("draw", "lam", "phi"),
        [(draw_seeded, 0.02, 1e-3), (draw_seeded, 5.0, 0.0), (sample_seeded, 0.1, 1e-3)],
    )
    def test_kolmogorov_smirnov_and_moments(self, draw, lam, phi):
        delta = draw((NUM_DRAWS,), lam, phi, seed=20180600)
        for power in range(1, 5):
            # Float32 rounding of q moves δ by at most 2^-24, far below the standard error.
            moments = delta.double().pow(power)
            exact = 0.0 if power % 2 else absolute_moment(power, lam, phi)
            variance = absolute_moment(2 * power, lam, phi) - exact**2
            assert float(moments.mean()) == pytest.approx(
                exact, abs=6 * math.sqrt(variance / NUM_DRAWS)
            )
        delta = delta.sort().values.double()
        # half_normal_cdf written without temporaries: 10^7 elements are many.
        shrunk = torch.nn.functional.softshrink(delta, phi)
        level = torch.from_numpy(scipy.special.ndtr((shrunk / lam).numpy()))
        ranks = torch.arange(NUM_DRAWS, dtype=torch.float64) / NUM_DRAWS
        distance = max(float((level - ranks).max()), float((ranks - level).max()) + 1 / NUM_DRAWS)
        critical = math.sqrt(-math.log(1e-3 / 2) / 2 / NUM_DRAWS)
        assert distance < critical

    def test_sign_and_magnitude_are_independent(self):
        delta = draw_seeded((NUM_DRAWS,), 0.02, 1e-3, seed=1)
        sign, magnitude = delta.sign(), delta.abs()
        bound = 6 / math.sqrt(NUM_DRAWS)
        for statistic in (magnitude, magnitude.square(), magnitude.reciprocal()):
            assert abs(correlation(sign, statistic)) < bound
        # A tenth of the magnitudes at a time: the signs are fair in each.
        edges = torch.tensor([QLaw(0.02).icdf(torch.tensor(0.5 + k / 20)) for k in range(1, 10)])
        bins = torch.bucketize(magnitude, edges - 1)
        num_per_bin = torch.bincount(bins)
        num_positive = torch.bincount(bins, weights=(delta > 0).double())
        assert ((num_positive / num_per_bin - 0.5).abs() < 3 / num_per_bin.sqrt()).all()

    def test_neighbours_calls_and_seeds_are_uncorrelated(self):
        num_draws = 10**6
        generator = torch.Generator().manual_seed(2)
        kwargs = {"dtype": torch.float32, "device": "cpu", "generator": generator}
        first = draw_delta((num_draws,), 0.1, 1e-3, **kwargs)
        second = draw_delta((num_draws,), 0.1, 1e-3, **kwargs)
        other_seed = draw_seeded((num_draws,), 0.1, 1e-3, seed=3)
        pairs = [(first, second), (first, other_seed)]
        pairs += [(first[:-lag], first[lag:]) for lag in (1, 2, 4, 7, 8, 16, 624)]
        for a, b in pairs:
            bound = 6 / math.sqrt(len(a))
            assert abs(correlation(a, b)) < bound
            assert abs(correlation(a.abs(), b.abs())) < bound


class TestDrawDelta:
    def test_is_the_formula_applied_to_the_generators_normals(self):
        for shape, dtype in itertools.product([(), (0,), (3,), (7, 11), (2, 1, 17)], DTYPES):
            eps = torch.randn(shape, dtype=dtype, generator=torch.Generator().manual_seed(5))
            delta = draw_seeded(shape, 0.3, 0.25, seed=5, dtype=dtype)
            assert delta.dtype == dtype
            sign = torch.where(eps < 0, -1, 1)
            torch.testing.assert_close(delta, sign * (0.3 * eps.abs() + 0.25), rtol=1e-6, atol=0)

    def test_uses_the_global_generator_unless_given_one(self):
        kwargs = {"dtype": torch.float32, "device": "cpu"}
        torch.manual_seed(0)
        first, second = (draw_delta((50,), 0.1, 1e-3, **kwargs) for _ in range(2))
        torch.manual_seed(0)
        with torch.random.fork_rng():
            assert torch.equal(draw_delta((50,), 0.1, 1e-3, **kwargs), first)
        assert torch.equal(draw_delta((50,), 0.1, 1e-3, **kwargs), first)
        assert not torch.equal(first, second)
        state = torch.get_rng_state()
        generator = torch.Generator().manual_seed(0)
        assert torch.equal(draw_delta((50,), 0.1, 1e-3, generator=generator, **kwargs), first)
        assert torch.equal(torch.get_rng_state(), state)

    @pytest.mark.parametrize("dtype", DTYPES)
    def test_is_never_zero(self, dtype):
        delta = draw_seeded((1001,), 0.0, 0.0, seed=6, dtype=dtype)
        assert (delta.abs() == TINY_DELTA[dtype]).all()
        assert 400 < (delta > 0).sum() < 600
        delta = draw_seeded((1001,), 0.1, 0.25, seed=6, dtype=dtype)
        assert (delta.abs() >= 0.25).all()

    def test_is_never_zero_where_the_normal_is(self, monkeypatch):
        monkeypatch.setattr(torch, "randn", lambda shape, **_: torch.zeros(shape))
        delta = draw_delta((3,), 0.1, 0.0, dtype=torch.float32, device="cpu")
        assert (delta == TINY_DELTA[torch.float32]).all()

    @pytest.mark.parametrize("lam_dtype", DTYPES)
    def test_lam_broadcasts_and_does_not_change_the_dtype(self, lam_dtype):
        lam = torch.tensor([[0.1], [0.5], [2.0]], dtype=lam_dtype)
        delta = draw_seeded((3, 40), lam, 1e-3, seed=7)
        assert delta.dtype == torch.float32
        for row, value in enumerate(lam.flatten().tolist()):
            alone = draw_seeded((3, 40), value, 1e-3, seed=7)
            torch.testing.assert_close(delta[row], alone[row], rtol=1e-6, atol=0)

    def test_is_differentiable_in_lam(self):
        def draw(lam):
            return draw_seeded((3, 2), lam, 1e-3, seed=8, dtype=torch.float64)

        lam = torch.tensor([0.1, 2.0], dtype=torch.float64, requires_grad=True)
        assert torch.autograd.gradcheck(draw, (lam,))


class TestTransforms:
    @staticmethod
    def draw_like(x, lam):
        return draw_delta(x.shape, lam, 1e-3, dtype=x.dtype, device=x.device)

    @pytest.mark.parametrize("lam", [0.1, torch.tensor(0.1)])
    def test_vmap_treats_it_as_any_random_op(self, lam):
        torch.manual_seed(0)
        x = torch.zeros(4, 5)

        def draw(randomness):
            return torch.vmap(self.draw_like, in_dims=(0, None), randomness=randomness)(x, lam)

        same, different = draw("same"), draw("different")
        assert torch.equal(same, same[:1].expand(4, 5))
        assert len(different.unique()) == 20
        with pytest.raises(RuntimeError, match="randomness error mode"):
            draw("error")

    @pytest.mark.parametrize("randomness", ["same", "different"])
    def test_vmap_over_lam(self, randomness):
        torch.manual_seed(0)
        lam = torch.tensor([0.0, 0.5, 1.0])
        delta = torch.vmap(self.draw_like, in_dims=(None, 0), randomness=randomness)(
            torch.zeros(5), lam
        )
        assert (delta[0].abs() == 1e-3).all()
        eps = (delta.abs() - 1e-3)[1:] / lam[1:, None]
        assert torch.allclose(eps[0], eps[1], atol=1e-5) == (randomness == "same")

    # Importing torch's own inductor raises it.
    def test_compiles_whole_and_draws_afresh_at_every_call(self):
        def two_calls(x, lam):
            return self.draw_like(x, lam), self.draw_like(x, lam)

        torch._dynamo.reset()
        compiled = torch.compile(two_calls, fullgraph=True)
        x = torch.zeros(6, 7)
        torch.manual_seed(0)
        draws = [*compiled(x, torch.tensor(0.1)), *compiled(x, torch.tensor(0.1))]
        for a, b in itertools.combinations(draws, 2):
            assert not torch.isclose(a, b, rtol=1e-6).any()
        torch.manual_seed(0)
        assert torch.equal(compiled(x, torch.tensor(0.1))[0], draws[0])
        assert all((delta.abs() >= 1e-3).all() for delta in draws)


# --- noise as a function of a seed and an index ---------------------------------------------------


def words(*values: int) -> tuple[torch.Tensor, ...]:
    return tuple(torch.tensor(value) for value in values)


class TestCounterBasedDraw:
    @pytest.mark.parametrize(
        ("counter", "key", "expected"),
        [  # Random123's known answers for philox4x32, 7 rounds
            ((0,) * 4, (0,) * 2, "5f6fb709 0d893f64 4f121f81 4f730a48"),
            ((0xFFFFFFFF,) * 4, (0xFFFFFFFF,) * 2, "5207ddc2 45165e59 4d8ee751 8c52f662"),
            (
                (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
                (0xA4093822, 0x299F31D0),
                "4dfccaba 190a87f0 c47362ba b6b5242a",
            ),
        ],
    )
    def test_philox_gives_the_known_answers(self, counter, key, expected):
        got = philox(words(*counter), words(*key))
        assert " ".join(f"{word:08x}" for word in got.tolist()) == expected

    def test_an_element_is_the_slot_of_its_call(self):
        """The docstring's arithmetic, one element at a time."""
        seed = 0x123456789ABCDEF
        draws = normals(torch.tensor(seed), 9000)
        for index in (0, 1, 511, 512, 4095, 4096, 8999):
            call, slot = 512 * (index // 4096) + index % 512, index // 512 % 8
            key = words(seed & 0xFFFFFFFF, seed >> 32)
            word = philox(words(call, 0, 0, 0), key)[slot // 2].item()
            rotated = (word >> 19 | word << 13) & 0xFFFFFFFF
            u = 1 - (rotated & 0x7FFFFF) / 2**23
            angle = math.pi * ((word & 0x7FFFFF) / 2**22 - 1)
            want = math.sqrt(-2 * math.log(u)) * (math.sin if slot % 2 else math.cos)(angle)
            assert draws[index].item() == pytest.approx(want, abs=2e-6)

    def test_a_later_start_goes_on(self):
        seed = torch.tensor([3, -3])
        assert torch.equal(normals(seed, 5000, start=8192), normals(seed, 13192)[:, 8192:])

    def test_far_out_the_counter_has_its_upper_word(self):
        start = 2**35  # call 2^32: the lower word is 0 again
        near, far = (normals(torch.tensor(1), 100, start=at) for at in (0, start))
        assert (near != far).all()

    def test_the_shape_of_the_seed_comes_first(self):
        assert normals(torch.zeros(2, 3, dtype=torch.int64), 5).shape == (2, 3, 5)
        assert normals(torch.tensor(0), 0).shape == (0,)

    def test_both_words_of_the_seed_matter(self):
        seeds = torch.tensor([0, 1, 2**32, -1, -(2**63)])
        draws = normals(seeds, 1000)
        same = (draws[:, None] == draws).float().mean(-1) - torch.eye(5)
        assert same.max() < 0.01

    @pytest.mark.parametrize(("inner", "groups"), [(12, 5), (4, 5), (1, 60), (60, 1)])
    def test_a_group_draws_its_own_stream(self, inner, groups):
        seed, lam = torch.arange(groups), torch.linspace(0.1, 1, groups)
        delta = seeded_delta((60,), seed, lam, torch.zeros(1), inner, dtype=torch.float64)
        of_group = torch.arange(60) // inner % groups
        for group in range(groups):
            want = lam[group].double() * normals(seed[group], 60 // groups).double()
            torch.testing.assert_close(delta[of_group == group], want)

    @pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
    def test_delta_has_the_least_size_phi(self, dtype):
        seed, lam = torch.tensor([1]), torch.tensor([0.02])
        for phi in (0.0, 0.3):
            delta = seeded_delta((5000,), seed, lam, torch.tensor([phi]), 5000, dtype=dtype)
            assert delta.dtype == dtype
            assert (delta.abs() >= max(phi, TINY_DELTA[dtype])).all()
            assert 0.4 < (delta > 0).float().mean() < 0.6

    def test_seeds_are_drawn_from_the_generator(self):
        first = draw_seed(3, "cpu", torch.Generator().manual_seed(1))
        again = draw_seed(3, "cpu", torch.Generator().manual_seed(1))
        assert first.dtype == torch.int64
        assert torch.equal(first, again)
        assert first.unique().numel() == 3
