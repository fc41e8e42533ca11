"""How often `qneurons.compare` claims an effect where there is none, and what it costs.

    python benchmarks/compare_nulls.py [--comparisons 4000]

In every simulated comparison base and all other settings have the same law, with a common part per
seed as in paired trainings. A claim is a setting that is called better or worse. The table goes to
results/compare-nulls.md and, between its markers, into docs/compare.md. It takes some minutes.
"""

import argparse
import platform
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from pages import write_between
from scipy import stats
from torch import nn

import qneurons
from qneurons.comparison.arms import parse_arms
from qneurons.comparison.results import Metrics, Results
from qneurons.comparison.store import Finished, Spec, TrialStore
from qneurons.comparison.trial import Measured, Trial

ROOT = Path(__file__).parent.parent
ARMS = parse_arms(["base", "limit", "c0.1", "a1", "silu"])
GRID = [(("lr", value),) for value in (0.02, 0.05, 0.1)]


def normal(random, shape):
    return random.normal(0, 0.004, shape)


def skewed(random, shape):
    """Some trainings get stuck."""
    return -0.004 * random.exponential(1, shape) - 0.1 * (random.random(shape) < 0.05)


def coarse(random, shape):
    """Accuracies on a test set of 300 examples: many ties."""
    return random.binomial(300, 0.9, shape) / 300 - 0.9


def comparison(random, num_seeds, noise, grid=((),), slope=0.0):
    """Trials without any effect of the setting; the points of a grid differ by ``slope``."""
    common = noise(random, (num_seeds, 1, 1))
    own = noise(random, (num_seeds, len(grid), len(ARMS)))
    points = slope * np.arange(len(grid))[:, None]
    test = 0.9 + common + own + points
    val = test + noise(random, own.shape)  # the same models on other data
    trials = []
    for seed, point, arm in np.ndindex(own.shape):
        numbers = {
            "test_accuracy": [test[seed, point, arm]],
            "val_accuracy": [val[seed, point, arm]],
        }
        spec = Spec(ARMS[arm].name, seed, grid[point])
        trials.append(Finished(spec, spec.arm, Measured(numbers, [1.0], None, False), "", ""))
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
    "stopped at the first claim of up to 10 seeds": lambda r: claims_at_some_time(
        comparison(r, 10, normal), 10
    ),
}


def costs():
    """Microseconds of a report, and milliseconds of saving a trial of 100 epochs."""
    trial = Trial("a1/1000", 0, {})
    trial.convert(nn.Sequential(*(nn.ELU() for _ in range(50))))
    start = time.perf_counter()
    for _ in range(1000):
        trial.report(test_accuracy=0.9, test_loss=0.3, train_loss=0.2)
    report_us = 1e3 * (time.perf_counter() - start)
    with tempfile.TemporaryDirectory() as folder:
        store = TrialStore.open(Path(folder) / "store", create=True)
        measured = Measured({name: [0.9] * 100 for name in "abc"}, [1.0] * 100, None, False)
        start = time.perf_counter()
        for seed in range(100):
            store.add(Finished(Spec("base", seed), "base", measured, "", ""))
        save_ms = 10 * (time.perf_counter() - start)
    return report_us, save_ms


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
        random = np.random.default_rng(case)
        wrong = sum(run(random) for _ in range(num))
        interval = stats.binomtest(wrong, num).proportion_ci()
        low, high = 100 * interval.low, 100 * interval.high
        lines.append(f"| {name} | {100 * wrong / num:.1f} % | {low:.1f} to {high:.1f} % |")
        print(lines[-1], flush=True)
    report_us, save_ms = costs()
    lines += [
        "",
        f"`trial.report` with three metrics and 50 q-activations takes {report_us:.0f} µs, and "
        f"saving a trial of 100 epochs {save_ms:.1f} ms: {100 * report_us / 5e6:.3f} % of an epoch "
        "of 5 seconds.",
    ]
    text = "\n".join(lines)
    (ROOT / "benchmarks" / "results" / "compare-nulls.md").write_text(text + "\n")
    write_between(ROOT / "docs" / "compare.md", "nulls", text)


if __name__ == "__main__":
    main()
