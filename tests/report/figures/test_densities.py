"""The numbers of the figures without training, against the exact laws."""

import math

import pytest
import torch

for package in ("matplotlib", "polars", "scipy"):
    pytest.importorskip(package)

from qneurons import moments
from qneurons.noise import QLaw
from qneurons.report.figures.densities import (
    BANDS,
    check_drawable,
    is_drawable,
    law_of_q,
    neuron_law,
)
from qneurons.study.errors import StudyError


@pytest.mark.parametrize(("lam", "phi"), [(0.02, 1e-3), (1.0, 0.3), (0.5, 0.0)])
def test_the_density_of_q_is_the_laws(lam, phi):
    law = law_of_q(lam, phi, low=-9, high=11)
    assert torch.equal(law.q, law.q.sort().values)
    in_hole = (law.q > 1 - phi) & (law.q < 1 + phi)
    assert in_hole.any() == (phi > 0)
    assert torch.equal(law.density.isnan(), in_hole)  # a line breaks there
    exact = QLaw(torch.tensor(lam).double(), phi, validate_args=False)
    torch.testing.assert_close(law.density[~in_hole], exact.log_prob(law.q[~in_hole]).exp())
    for side in (law.q <= 1 - phi, law.q >= 1 + phi):
        half = torch.trapezoid(law.density[side], law.q[side]).item()
        assert half == pytest.approx(0.5, abs=1e-4)
    assert law.negative == pytest.approx(exact.cdf(torch.tensor(0.0).double()).item())
    assert 0 in law.q


@pytest.mark.parametrize(
    ("activations", "lams", "phi", "message"),
    [
        (["elu"], [0.0], 1e-3, "λ = 0 .* above 0"),
        (["elu"], [math.nan], 1e-3, "λ = nan"),
        (["elu"], [1.0], -1.0, "φ = -1 .* 0 or more"),
        (["el"], [1.0], 1e-3, "unknown activation 'el'; did you mean 'elu'"),
        (["elu", "sin"], [1.0], 1e-3, "cannot draw 'sin'"),
        ([], [1.0], 1e-3, "activations is empty"),
        (["elu"], [], 1e-3, "lams is empty"),
    ],
)
def test_what_has_no_density_is_refused(activations, lams, phi, message):
    with pytest.raises(StudyError, match=message):
        check_drawable(activations, lams, phi)


def test_what_is_drawable():
    assert is_drawable("gelu_tanh")
    assert not is_drawable("sin")
    assert not is_drawable("no such row")


@pytest.mark.parametrize("activation", ["tanh", "elu"])
@pytest.mark.parametrize("lam", [0.02, 5.0])
def test_bands_hold_their_probability(activation, lam):
    law = neuron_law(activation, lam, columns=8)  # no x = 0, where all the mass is in one atom
    for band, low, high in zip(BANDS, law.low, law.high, strict=True):
        for level, y in (((1 - band) / 2, low), ((1 + band) / 2, high)):
            # At an atom the cdf jumps over the level.
            below = moments.cdf(y - 1e-6, law.x, activation, lam)
            above = moments.cdf(y + 1e-6, law.x, activation, lam)
            assert (below < level + 1e-3).all()
            assert (above > level - 1e-3).all()


def test_the_law_has_the_exact_lines_and_atoms():
    law = neuron_law("relu", 1.0, 0.1, reach=2.0, columns=5)
    assert law.x.tolist() == [-2, -1, 0, 1, 2]
    assert law.f.tolist() == law.limit.tolist() == [0, 0, 0, 1, 2]
    assert torch.equal(law.mean, moments.mean(law.x, "relu", 1.0, 0.1))
    values, masses = moments.atoms(law.x, "relu", 1.0, 0.1)
    assert torch.equal(law.atoms, values)
    assert torch.equal(law.masses, masses)


def test_every_argument_has_an_effect():
    plain = neuron_law("elu", 0.5, columns=8)
    assert not torch.equal(plain.low, neuron_law("elu", 0.6, columns=8).low)
    assert not torch.equal(plain.low, neuron_law("elu", 0.5, 0.3, columns=8).low)
    assert neuron_law("elu", 0.5, reach=1.0, columns=8).x[-1] == 1
