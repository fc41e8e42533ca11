"""Draws docs/density.png: the exact density of q-activations, darker where denser.

    python docs/draw_density.py

The probability of each pixel comes from qneurons.moments.cdf, not from samples; f and the limit
f'(x)x are drawn over it.
"""

from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import torch

import qneurons as qn
from qneurons import moments

ACTIVATIONS = {"tanh": (-1.2, 1.2), "elu": (-1.2, 3.0), "softplus": (-0.6, 3.6)}
LAMBDAS = (0.1, 1.0, 5.0)
X_MAX = 3.0


def darkness(name, lam, low, high, *, columns=301, lines=361):
    x = torch.linspace(-X_MAX, X_MAX, columns, dtype=torch.float64)
    edges = torch.linspace(low, high, lines + 1, dtype=torch.float64)
    mass = moments.cdf(edges[:, None], x, name, lam).diff(dim=0)
    return 1 - torch.exp(-mass / (edges[1] - edges[0]))


def main():
    plt.rcParams.update({"font.size": 9, "axes.spines.top": False, "axes.spines.right": False})
    figure, axes = plt.subplots(
        len(ACTIVATIONS), len(LAMBDAS), figsize=(8.4, 7.0), sharex=True, layout="constrained"
    )
    x = torch.linspace(-X_MAX, X_MAX, 601)
    for k, (name, (low, high)) in enumerate(ACTIVATIONS.items()):
        for ax, lam in zip(axes[k], LAMBDAS, strict=True):
            ax.imshow(
                darkness(name, lam, low, high),
                extent=(-X_MAX, X_MAX, low, high),
                origin="lower",
                aspect="auto",
                cmap="Greys",
                interpolation="bilinear",
            )
            ax.plot(x, qn.resolve(name)(x), color="tab:blue", lw=1, label="f(x)")
            limit = qn.q_limit(x, name)
            ax.plot(x, limit, color="tab:red", lw=1, ls="--", label="limit f'(x)x")
            ax.set(xlim=(-X_MAX, X_MAX), ylim=(low, high))
            if k == 0:
                ax.set_title(f"λ = {lam:g}")
        axes[k, 0].set_ylabel(f"q-{name}")
    axes[0, 0].legend(frameon=False, loc="upper left")
    figure.supxlabel("x")
    figure.savefig(Path(__file__).parent / "density.png", dpi=110)


if __name__ == "__main__":
    main()
