"""The numbers of the README's sentences on performance, against the measured rows."""

import sys
from pathlib import Path

import pytest

from qneurons.bench import BOTH, EVALUATION

ROOT = Path(__file__).parents[1]
sys.path.append(str(ROOT / "benchmarks"))
performance = pytest.importorskip("performance")


@pytest.mark.parametrize(
    ("device", "variant", "which", "words"),
    [
        (
            "cuda",
            "qneurons",
            BOTH,
            "takes {} times as long as the plain activation on an H200 in float32",
        ),
        ("cuda", "qneurons", BOTH, "float32, {} times in bfloat16"),
        ("cpu", "qneurons", BOTH, "and {} times on a CPU. The limit"),
        ("cuda", "limit", BOTH, "is trained in {} times the plain time on an H200"),
        ("cpu", "limit", BOTH, "and {} times on a CPU. Evaluation"),
        (
            "cuda",
            "qneurons",
            EVALUATION,
            "it takes {} times as long as the plain activation on an H200",
        ),
        ("cpu", "qneurons", EVALUATION, "in bfloat16, and {} times on a CPU. These"),
    ],
)
def test_the_readme_says_what_was_measured(device, variant, which, words):
    rows = performance.last_rows(device)
    for dtype in ("float32", "bfloat16"):
        if words.endswith(f"in {dtype}"):
            rows = {key: row for key, row in rows.items() if row["dtype"] == dtype}
    low, high = performance.spread(rows, variant, which)
    readme = " ".join((ROOT / "README.md").read_text().split())
    assert words.format(f"{low:.2f} to {high:.2f}") in readme


def test_the_readme_says_what_a_small_network_takes():
    rows = performance.last_rows("cuda")
    readme = " ".join((ROOT / "README.md").read_text().split())
    for which, words in (
        ("evaluation, MNIST-CNN, batch 64", "takes {} times as long in evaluation"),
        ("evaluation as a CUDA graph, MNIST-CNN, batch 64", "and {} times as a CUDA graph"),
    ):
        ratios = [
            float(row["to_plain"])
            for (*_, variant, found), row in rows.items()
            if (variant, found) == ("qneurons", which)
        ]
        assert words.format(f"{min(ratios):.2f} to {max(ratios):.2f}") in readme


def test_the_page_has_the_table_of_the_last_rows():
    page = performance.PAGE.read_text()
    for device in performance.SIZES:
        rows = performance.last_rows(device)
        assert performance.table(rows) in page
        assert performance.origin(rows, device) in page
    assert performance.table(rows, performance.COMPILED) in page
    assert performance.origin(rows, "cpu", performance.COMPILED) in page


def test_a_table_names_every_commit_of_its_rows():
    row = dict.fromkeys(("device", "threads", "torch"), "x") | {"elements": "8", "to_plain": "1"}
    times = {"commit": "a1", "date": "2026-11-02T09"}, {"commit": "b2", "date": "2026-11-01T09"}
    columns = performance.COMPILED.values()
    rows = {
        ("elu", "float32", variant, which): row | times[number % 2]
        for number, (variant, which, _) in enumerate(columns)
    }
    rows["elu", "float32", "snippet", BOTH] = row | {"commit": "c3", "date": "2026-11-03T09"}
    said = performance.origin(rows, "cpu", performance.COMPILED)
    assert "measured at a1, b2, 2026-11-01, 2026-11-02)" in said
