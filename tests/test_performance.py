"""The numbers of the README's sentences on performance, against the measured rows."""

import sys
from pathlib import Path

import pytest

from qneurons.bench import BOTH

ROOT = Path(__file__).parents[1]
sys.path.append(str(ROOT / "benchmarks"))
performance = pytest.importorskip("performance")


def test_the_readme_has_the_table_of_the_last_rows():
    readme = performance.README.read_text()
    rows_of = {device: performance.last_rows(device) for device in performance.SIZES}
    activations = {name for name, dtype, *key in rows_of["cuda"] if key == ["qneurons", BOTH]}
    assert performance.summary(rows_of) in readme
    assert f"the median of {len(activations)}" in readme


def test_the_readme_says_what_a_small_network_takes():
    rows = performance.last_rows("cuda")
    readme = " ".join(performance.README.read_text().split())
    for which, words in (
        ("evaluation, MNIST-CNN, batch 64", "evaluation of the MNIST-CNN takes {} times as long"),
        (
            "evaluation as a CUDA graph, MNIST-CNN, batch 64",
            "but {} times when it is replayed as a CUDA graph",
        ),
    ):
        ratios = [
            float(row["to_plain"])
            for (*_, variant, found), row in rows.items()
            if (variant, found) == ("qneurons", which)
        ]
        assert words.format(f"{min(ratios):.2f} to {max(ratios):.2f}") in readme


def test_the_page_says_what_a_compiled_step_takes():
    ratios = [
        float(row["to_plain"])
        for (*_, variant, which), row in performance.last_rows("cuda").items()
        if (variant, which) == ("qneurons", "training step, MNIST-CNN, batch 64")
    ]
    assert f"takes {min(ratios):.2f} to {max(ratios):.2f} times" in performance.PAGE.read_text()


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
