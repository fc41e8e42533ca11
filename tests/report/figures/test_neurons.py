"""The law of q and the densities of q-activations, drawn."""

import numpy as np
import pytest

for package in ("matplotlib", "polars", "scipy"):
    pytest.importorskip(package)

from qneurons.report.figures import neurons
from qneurons.report.figures.densities import law_of_q, neuron_law
from qneurons.report.figures.neurons import write_figures
from qneurons.study.errors import StudyError

ENDS = (".png", ".pdf", ".svg", "-dark.svg")


def test_the_law_of_q_is_drawn_as_computed_with_the_chance_of_a_negative_q():
    laws = [law_of_q(0.1), law_of_q(1.0)]
    figure = neurons.draw_law(laws, [law_of_q(0.2, 0.3)])
    *panels, last = figure.axes
    for law, ax in zip(laws, panels, strict=True):
        assert np.array_equal(ax.lines[0].get_ydata(), law.density, equal_nan=True)
        assert ax.get_title() == f"λ = {law.lam:g}"
        shaded = ax.collections[0].get_paths()[0].vertices
        assert shaded[:, 0].max() == 0
        assert shaded[:, 1].max() == pytest.approx(law.density[law.q == 0].item())
    words = [ax.texts[0].get_text() for ax in panels]
    assert words == ["P(q < 0)\n< 0.1 %", "P(q < 0)\n= 16 %"]
    assert last.lines[0].get_label() == "φ = 0.3"
    assert panels[0].get_ylabel() == "density of q, φ = 0.001"


def test_bands_f_the_limit_and_the_mean_are_drawn_whole_for_every_lam():
    laws = [neuron_law("elu", lam, columns=21) for lam in (0.1, 5.0)]
    figure = neurons.draw_densities([laws])
    for ax, law in zip(figure.axes, laws, strict=True):
        mean, f, limit = ax.lines
        assert np.array_equal(mean.get_ydata(), law.mean)
        assert np.array_equal(f.get_ydata(), law.f)
        assert np.array_equal(limit.get_ydata(), law.limit)
        bottom, top = ax.get_ylim()
        for band, low, high in zip(ax.collections, law.low, law.high, strict=False):
            y = band.get_paths()[0].vertices[:, 1]
            assert (y.min(), y.max()) == pytest.approx((low.min().item(), high.max().item()))
            assert bottom < y.min() < y.max() < top
    words = [text.get_text() for text in figure.legends[0].get_texts()]
    assert words[3:6] == ["98 % of the draws", "80 % of the draws", "50 % of the draws"]


def test_atoms_are_lines_as_wide_as_their_mass():
    law = neuron_law("relu", 1.0, columns=4)
    figure = neurons.draw_densities([[law]])
    *_, atoms = figure.axes[0].collections
    # x = -3, -1, 1, 3: an atom at 0 on the left, at x on the right, and a step between them.
    assert [s[:, 1].tolist() for s in atoms.get_segments()] == [[0, 0, 1, 3]]
    assert atoms.get_linewidths() == pytest.approx([neurons.ATOM_WIDTH * 0.8411], rel=1e-3)
    assert figure.legends[0].get_texts()[-1].get_text() == "one value, as wide as its probability"
    smooth = neurons.draw_densities([[neuron_law("tanh", 1.0, columns=5)]])
    assert not smooth.axes[0].collections[-1].get_segments()
    assert len(smooth.legends[0].get_texts()) == 6


def test_a_jump_between_two_atoms_is_no_line():
    law = neuron_law("hardtanh", 1.0, columns=61)  # from 0 to 1 at x = 1
    *_, atoms = neurons.draw_densities([[law]]).axes[0].collections
    assert max(abs(np.diff(line[:, 1])).max() for line in atoms.get_segments()) < 0.2


@pytest.fixture
def asked(monkeypatch):
    """Makes densities coarse, and remembers which were asked for."""
    calls = []

    def coarse(*args):
        calls.append(args)
        return neuron_law(*args, columns=9)

    monkeypatch.setattr(neurons, "neuron_law", coarse)
    return calls


def test_figures_without_training_are_written_whole(tmp_path, asked):
    from matplotlib.image import imread

    paths = write_figures(tmp_path / "new", activations=("elu",), lams=(0.1, 1.0))
    names = [f"{name}{end}" for name in ("law-of-q", "density") for end in ENDS]
    assert [path.name for path in paths] == names
    assert sorted(path.name for path in (tmp_path / "new").iterdir()) == sorted(names)
    for path in paths[::4]:
        image = imread(path)[..., :3]
        assert image.shape[1] > 400
        assert image.std() > 0.05


def test_activations_lams_and_phi_reach_the_figure(tmp_path, asked, monkeypatch):
    shown = []
    monkeypatch.setattr(
        neurons.artwork, "figure_files", lambda figure, name: shown.append(figure) or {}
    )
    write_figures(tmp_path, activations=("relu", "celu"), lams=(1.0, 2.0), phi=0.5)
    assert asked == [(name, lam, 0.5) for name in ("relu", "celu") for lam in (1.0, 2.0)]
    law, density = shown
    assert [ax.get_title() for ax in law.axes[:-1]] == ["λ = 1", "λ = 2"]
    assert law.axes[0].get_ylabel() == "density of q, φ = 0.5"
    assert [ax.get_title() for ax in density.axes[:2]] == ["λ = 1", "λ = 2"]
    assert [ax.get_ylabel() for ax in density.axes[::2]] == ["q-relu", "q-celu"]


def test_the_papers_five_activations_are_the_default(tmp_path, asked, monkeypatch):
    monkeypatch.setattr(neurons.artwork, "figure_files", lambda figure, name: {})
    write_figures(tmp_path)
    paper = ["sigmoid", "tanh", "relu", "softplus", "elu"]
    assert list(dict.fromkeys(name for name, *_ in asked)) == paper


def test_what_cannot_be_drawn_writes_nothing(tmp_path):
    with pytest.raises(StudyError, match="cannot draw 'sin'"):
        write_figures(tmp_path / "out", activations=("elu", "sin"))
    assert not (tmp_path / "out").exists()


def test_drawing_leaves_matplotlib_as_it_was():
    import matplotlib

    before = dict(matplotlib.rcParams)
    neurons.draw_law([law_of_q(0.1)], [law_of_q(0.1)])
    assert dict(matplotlib.rcParams) == before
