"""How often `qneurons.compare` claims an effect where there is none, and finds one that there is.

    python benchmarks/compare_nulls.py [--comparisons 4000]

In every simulated comparison base and all other settings have the same law, with a common part per
seed as in paired trainings; in the second table one setting is better by a known effect. A claim is
a setting that is called better or worse. The tables go to results/compare-nulls.md and, between its
markers, into docs/compare.md. It takes some minutes.
"""

import argparse
import math
import platform
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import torch
from pages import write_between
from scipy import stats

import qneurons
from qneurons.comparison.arms import parse_arms
from qneurons.comparison.metrics import Metrics
from qneurons.comparison.results import Results, seeds_to_show
from qneurons.comparison.store import Finished, Spec
from qneurons.comparison.trial import Measured
from qneurons.report.inference import Estimate

ROOT = Path(__file__).parent.parent
ARMS = parse_arms(["base", "limit", "c0.1", "a1", "silu"])
GRID = [(("lr", value),) for value in (0.02, 0.05, 0.1)]
NOISE = 0.004
SD = NOISE * math.sqrt(2)  # of a difference


def normal(random, shape):
    return random.normal(0, NOISE, shape)


def skewed(random, shape):
    """Some trainings get stuck."""
    return -NOISE * random.exponential(1, shape) - 0.1 * (random.random(shape) < 0.05)


def coarse(random, shape):
    """Accuracies on a test set of 300 examples: many ties."""
    return random.binomial(300, 0.9, shape) / 300 - 0.9


def comparison(random, num_seeds, noise, grid=((),), slope=0.0, effect=0.0, diverging=0.0):
    """Trials with an effect of the first setting; the points of a grid differ by ``slope``.

    A share of them diverges, whatever the setting.
    """
    common = noise(random, (num_seeds, 1, 1))
    own = noise(random, (num_seeds, len(grid), len(ARMS)))
    points = slope * np.arange(len(grid))[:, None]
    test = 0.9 + common + own + points
    test[..., 1] += effect
    val = test + noise(random, own.shape)  # the same models on other data
    trials = []
    for seed, point, arm in np.ndindex(own.shape):
        numbers = {
            "test_accuracy": [test[seed, point, arm]],
            "val_accuracy": [val[seed, point, arm]],
        }
        spec = Spec(ARMS[arm].name, seed, grid[point])
        lost = bool(diverging) and random.random() < diverging
        trials.append(Finished(spec, spec.arm, Measured(numbers, [1.0], None, lost), "", ""))
    return trials


def claims(trials, grid=((),), best=True):
    results = Results(trials, ARMS, list(grid), Metrics())
    rows = results.at_best() if best else results.at_common()
    return any(row.contrast.outcome != "unclear" for row in rows if row.contrast)


def claims_at_some_time(trials, num_seeds):
    """If one stops as soon as the results so far show something."""
    return any(claims([t for t in trials if t.spec.seed < n]) for n in range(2, num_seeds + 1))


CASES = {
    "3 seeds": lambda r: claims(comparison(r, 3, normal)),
    "5 seeds": lambda r: claims(comparison(r, 5, normal)),
    "10 seeds": lambda r: claims(comparison(r, 10, normal)),
    "20 seeds": lambda r: claims(comparison(r, 20, normal)),
    "10 seeds, some trainings get stuck": lambda r: claims(comparison(r, 10, skewed)),
    "20 seeds, some trainings get stuck": lambda r: claims(comparison(r, 20, skewed)),
    "10 seeds, a test set of 300": lambda r: claims(comparison(r, 10, coarse)),
    "10 seeds, own best of 3 equal values": lambda r: claims(comparison(r, 10, normal, GRID), GRID),
    "10 seeds, own best of 3 values that differ a little": lambda r: claims(
        comparison(r, 10, normal, GRID, slope=0.002), GRID
    ),
    "10 seeds, own best of 3 values that differ": lambda r: claims(
        comparison(r, 10, normal, GRID, slope=0.008), GRID
    ),
    "10 seeds, 3 values that differ a little, at base's best": lambda r: claims(
        comparison(r, 10, normal, GRID, slope=0.002), GRID, best=False
    ),
    **{
        f"{seeds} seeds, {share:.0%} of the trials diverge": lambda r, seeds=seeds, share=share: (
            claims(comparison(r, seeds, normal, diverging=share))
        )
        for share in (0.1, 0.3)
        for seeds in (5, 10, 20)
    },
    "stopped at the first claim of up to 10 seeds": lambda r: claims_at_some_time(
        comparison(r, 10, normal), 10
    ),
}


def covers(random, num_seeds, noise):
    """The interval of the first setting holds its effect."""
    results = Results(comparison(random, num_seeds, noise, effect=SD), ARMS, [()], Metrics())
    gain = results.at_best()[1].contrast.gain
    return gain.low <= SD <= gain.high


def announced(effect):
    """The number of seeds that is said to show it in four of five repetitions."""
    measured = Estimate(10, effect, SD, math.nan, math.nan)
    return seeds_to_show(SimpleNamespace(gain=measured), len(ARMS) - 1)


def shows(random, effect):
    trials = comparison(random, announced(effect), normal, effect=effect)
    return Results(trials, ARMS, [()], Metrics()).at_best()[1].contrast.outcome == "better"


EFFECTS = {
    "its interval holds the effect, 3 seeds": (95, lambda r: covers(r, 3, normal)),
    "its interval holds the effect, 10 seeds": (95, lambda r: covers(r, 10, normal)),
    "its interval holds the effect, 20 seeds": (95, lambda r: covers(r, 20, normal)),
    "the same, 10 seeds, some trainings get stuck": (95, lambda r: covers(r, 10, skewed)),
    "the same, 10 seeds, a test set of 300": (95, lambda r: covers(r, 10, coarse)),
} | {
    f"called better, effect of {size:g} sd, {announced(size * SD)} seeds": (
        80,
        lambda r, size=size: shows(r, size * SD),
    )
    for size in (0.5, 1, 1.5, 2)
}


def share(case, run, num):
    """How often something is so, in % with its interval."""
    random = np.random.default_rng(case)
    count = sum(run(random) for _ in range(num))
    interval = stats.binomtest(count, num).proportion_ci()
    return f"{100 * count / num:.1f} % | {100 * interval.low:.1f} to {100 * interval.high:.1f} %"


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--comparisons", type=int, default=4000)
    num = parser.parse_args().comparisons
    lines = [
        f"{num:,} comparisons of {len(ARMS) - 1} settings with base in each row (torch "
        f"{torch.__version__}, {platform.machine()}, qneurons {qneurons.__version__}, `python "
        "benchmarks/compare_nulls.py`).",
        "",
        "| no setting has an effect | false claims | 95 % interval |",
        "| --- | ---: | ---: |",
    ]
    for case, (name, run) in enumerate(CASES.items()):
        lines.append(f"| {name} | {share(case, run, num)} |")
        print(lines[-1], flush=True)
    lines += [
        "",
        "| one setting has an effect | how often | 95 % interval | announced |",
        "| --- | ---: | ---: | ---: |",
    ]
    for case, (name, (promise, run)) in enumerate(EFFECTS.items(), len(CASES)):
        lines.append(f"| {name} | {share(case, run, num)} | {promise} % |")
        print(lines[-1], flush=True)
    text = "\n".join(lines)
    (ROOT / "benchmarks" / "results" / "compare-nulls.md").write_text(text + "\n")
    write_between(ROOT / "docs" / "compare.md", "nulls", text)


if __name__ == "__main__":
    main()
