"""The exact law of the kernels' normal numbers, over all 2^32 words that they come from.

    python benchmarks/noise_law.py [--device cpu]

A word makes two numbers. All of them are counted and compared with N(0, 1): the largest distance of
the cdfs, the total variation in bins of 0.001, moments and tails. The table goes to
results/noise-law.md and, between its markers, into docs/noise.md. It takes some minutes on a CPU.
"""

import argparse
import math
import platform
from pathlib import Path

import torch
from pages import write_between

import qneurons
from qneurons.noise import box_muller

ROOT = Path(__file__).parent.parent
NUM_WORDS, CHUNK = 2**32, 2**22
WIDTH = 2e-5  # of a bin: a cdf is known to 4e-6 between two of them
LIMIT = 6.0
TAILS = (3.0, 4.0, 4.5, 4.8, 5.0)


def normal_tail(z):
    return 0.5 * torch.special.erfc(torch.as_tensor(z, dtype=torch.float64) * math.sqrt(0.5))


def law_and_moments(device):
    """The mass of every bin and the first six moments, of both numbers of a pair."""
    num_bins = round(2 * LIMIT / WIDTH)
    counts = torch.zeros(2, num_bins, dtype=torch.float64, device=device)
    powers = torch.zeros(2, 6, dtype=torch.float64, device=device)
    for start in range(0, NUM_WORDS, CHUNK):
        words = torch.arange(start, start + CHUNK, device=device)
        for half, eps in enumerate(box_muller(words)):
            eps = eps.double()
            counts[half] += torch.histc(eps, num_bins, -LIMIT, LIMIT)
            power = eps.clone()
            for order in range(6):
                powers[half, order] += power.sum()
                power *= eps
    return counts.cpu() / NUM_WORDS, powers.cpu() / NUM_WORDS


def table(law, moments):
    edges = torch.linspace(-LIMIT, LIMIT, law.shape[1] + 1, dtype=torch.float64)
    mass = normal_tail(edges[:-1]) - normal_tail(edges[1:])
    rows = {
        "largest distance of the cdfs": lambda h: (law[h] - mass).cumsum(0).abs().max(),
        "total variation, bins of 0.001": lambda h: (
            (law[h] - mass).reshape(-1, round(1e-3 / WIDTH)).sum(1).abs().sum() / 2
        ),
        "mean": lambda h: moments[h, 0],
        "variance - 1": lambda h: moments[h, 1] - 1,
        "third moment": lambda h: moments[h, 2],
        "fourth moment - 3": lambda h: moments[h, 3] - 3,
        "sixth moment - 15": lambda h: moments[h, 5] - 15,
    }
    lines = ["| | first of a pair | second |", "| --- | ---: | ---: |"]
    for name, value in rows.items():
        lines.append(f"| {name} | {value(0):.1e} | {value(1):.1e} |")
    for z in TAILS:
        bins = round((LIMIT - z) / WIDTH)
        ratios = law[:, -bins:].sum(1) / normal_tail(z), law[:, :bins].sum(1) / normal_tail(z)
        cells = (f"{above:.3f} / {below:.3f}" for above, below in zip(*ratios, strict=True))
        lines.append(f"| mass beyond {z} / -{z}, over the normal | {' | '.join(cells)} |")
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--device", default="cpu")
    device = parser.parse_args().device
    rows = table(*law_and_moments(device))
    text = (
        f"Over {NUM_WORDS} words (torch {torch.__version__}, {device}, {platform.machine()}, "
        f"qneurons {qneurons.__version__}, `python benchmarks/noise_law.py --device {device}`).\n\n"
        f"{rows}\n"
    )
    print(text)
    (ROOT / "benchmarks" / "results" / "noise-law.md").write_text(text)
    write_between(ROOT / "docs" / "noise.md", "table", text)


if __name__ == "__main__":
    main()
