"""The law of q and the densities of q-neurons, drawn."""

import numpy as np
import pytest

for package in ("matplotlib", "polars", "scipy"):
    pytest.importorskip(package)

from qneurons.report.figures import neurons
from qneurons.report.figures.densities import law_of_q, neuron_density
from qneurons.report.figures.neurons import write_figures
from qneurons.study.errors import StudyError


def test_the_law_of_q_is_drawn_as_computed():
    laws = [law_of_q(0.1), law_of_q(1.0)]
    figure = neurons.draw_law(laws, [law_of_q(0.2, 0.3)])
    left, right = figure.axes
    for law, line in zip(laws, left.lines, strict=True):
        assert np.array_equal(line.get_ydata(), law.density)
        assert line.get_label() == f"λ = {law.lam:g}"
    assert right.lines[0].get_label() == "φ = 0.3"
    assert (left.get_title(), right.get_title()) == ("φ = 0.001", "λ = 0.2")


def test_the_shade_is_the_density_and_f_and_the_limit_lie_over_it():
    cells = [
        [neuron_density(a, lam, columns=21, lines=20) for lam in (0.1, 1.0)] for a in ("tanh",)
    ]
    figure = neurons.draw_densities(cells)
    for ax, cell in zip(figure.axes, cells[0], strict=True):
        shade = np.asarray(ax.images[0].get_array())
        order = np.argsort(cell.density.numpy(), axis=None)
        assert (np.diff(shade[..., 3].ravel()[order]) >= 0).all()  # darker is denser
        assert shade[..., 3].max() > 0.5
        assert (shade[..., :3] == 0).all()
        f, limit = ax.lines
        assert np.array_equal(f.get_ydata(), cell.f)
        assert np.array_equal(limit.get_ydata(), cell.limit)
        assert ax.images[0].get_extent() == [-3, 3, *cell.edges[[0, -1]].tolist()]


@pytest.fixture
def asked(monkeypatch):
    """Makes densities coarse, and remembers which were asked for."""
    calls = []

    def coarse(*args):
        calls.append(args)
        return neuron_density(*args, columns=9, lines=8)

    monkeypatch.setattr(neurons, "neuron_density", coarse)
    return calls


def test_figures_without_training_are_written_whole(tmp_path, asked):
    from matplotlib.image import imread

    paths = write_figures(tmp_path / "new", activations=("elu",), lams=(0.1, 1.0))
    names = ["law-of-q.png", "law-of-q.pdf", "density.png", "density.pdf"]
    assert [path.name for path in paths] == names
    assert sorted(path.name for path in (tmp_path / "new").iterdir()) == sorted(names)
    for path in paths[::2]:
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
    assert law.axes[0].get_title() == "φ = 0.5"
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
