"""Draws what a q-activation does, for the README, as a light and a dark picture.

python docs/draw_q_activation.py
"""

from pathlib import Path
from typing import TYPE_CHECKING

import matplotlib
import torch

import qneurons as qn
from qneurons.report.figures import (
    BANDS,
    F_COLOUR,
    INK,
    LIMIT_COLOUR,
    LOOK,
    draw_bands,
    neuron_law,
    new_figure,
    theme_svgs,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure

NAME, LAM, REACH, NUM_DRAWS = "tanh", 1.0, 3.5, 80
WIDTH = 390 / 72  # inches: a point is a pixel on a phone


def draw() -> "Figure":
    """f, its limit, the mean and the bands of probability of the q-activation, and some draws."""
    law = neuron_law(NAME, LAM, reach=REACH)
    x = torch.linspace(-REACH, REACH, NUM_DRAWS, dtype=torch.float64)
    draws = qn.q_activation(x, NAME, LAM, seed=torch.tensor(1))
    lines = {  # colour, dash and label
        "f": (F_COLOUR, "-", f"f(x) =\n{NAME}(x)"),
        "limit": (LIMIT_COLOUR, "--", "limit\nf'(x)x"),
        "mean": (INK, "-", "mean"),
    }
    with matplotlib.rc_context(LOOK | {"font.size": 12}):
        figure = new_figure(WIDTH, 0.75 * WIDTH)
        ax = figure.subplots()
        draw_bands(ax, law)
        ax.plot(x, draws, "o", ms=3, mew=0, color=INK, gid="draws")
        for name, (colour, dash, label) in lines.items():
            y = getattr(law, name)
            ax.plot(law.x, y, color=colour, ls=dash, lw=2, gid=name)
            ax.text(1.04 * REACH, y[-1], label, color=colour, va="center")
        for band, low, at in zip(BANDS, law.low, (-2.2, -1.6, -1.1), strict=True):
            k = torch.searchsorted(law.x, at)
            text = f"{100 * band:g} % of the draws"
            arrow = {"arrowstyle": "-", "color": INK, "lw": 0.8}
            ax.annotate(text, (at, low[k]), (0.3, low[k]), va="center", arrowprops=arrow)
        far = draws.argmax()
        ax.annotate("draws", (x[far], draws[far]), (0, 7), textcoords="offset points", ha="center")
        ax.set(xlabel="x", title=f"{NAME} as a q-activation, λ = {LAM:g}", xlim=(-REACH, REACH))
    return figure


if __name__ == "__main__":
    for name, content in theme_svgs(draw(), "q-activation").items():
        (Path(__file__).parent / name).write_bytes(content)
