"""Moved training images: the table, and the sentences on it."""

import polars as pl
import pytest

from tests.report.published.pages import check_section, ends


def test_the_numbers_on_moved_images(publish, questions, frame):
    moved = questions.read_moved()
    seeds = moved["seed"].n_unique()
    table = {row[:3]: row[3:] for row in questions.moved_images_table(moved).rows}

    def mean(cell, moves, setting="base"):
        return float(table[cell, moves, setting][1].split()[0])

    def gain(cell, moves, setting):
        return table[cell, moves, setting][2].partition(" (")[0]

    cifar, mnist = "cifar-cnn, elu, dropout", "mnist-cnn, elu, dropout"
    free = mnist.replace("dropout", "no dropout")
    mirrored, all_moves = "shift=0.1 flip=horizontal", "rotation=5 shift=0.1 flip=both"
    (of_mnist,) = {moves for cell, moves, _ in table if cell == mnist} - {"none"}
    for cell, moves in ((cifar, mirrored), (mnist, of_mnist), (free, of_mnist)):
        same = dict(zip(("network", "activation"), cell.split(", ")[:2], strict=True))
        plain = publish.endpoint(frame.filter(dropout=cell != free, **same))
        highest = (
            100
            * plain.group_by("setting").agg(pl.col("test_accuracy").mean())["test_accuracy"].max()
        )
        assert mean(cell, moves) > highest
    for setting in ("base", "a9"):
        for cell in (cifar, "cifar-cnn, elu, no dropout"):
            assert mean(cell, all_moves, setting) < mean(cell, mirrored, setting)
    assert max(mean(cell, m, s) for cell, m, s in table if "cifar" in cell) == mean(
        cifar, mirrored, "a9"
    )

    def pairs(rows):
        ends = publish.endpoint(rows.filter(network="cifar-cnn", activation="elu"))
        both = ends.pivot("setting", index=["dropout", "protocol", "seed"], values="test_accuracy")
        return both.with_columns(gain=pl.col("a9") - pl.col("base"))

    def average(pairs):
        by_seed = pairs.group_by("seed").agg(pl.col("gain").mean())["gain"]
        return publish.interval(publish.estimate(by_seed), form="+.2f")

    of_moved, as_they_are = pairs(moved), pairs(frame)
    for cell, moves, setting in table:
        if cell.startswith("mnist-cnn, tanh") and setting == "limit":
            assert table[cell, moves, setting][1] == "learns nothing"
        elif moves == of_mnist and setting != "base":
            low, high = ends(gain(cell, moves, setting))
            assert low <= 0 <= high
    peaks = [
        row[-2:] for key, row in table.items() if key[:2] in ((mnist, of_mnist), (free, of_mnist))
    ]
    assert max(float(mean) for mean, _ in peaks) < 99.65 <= max(float(one) for _, one in peaks)
    last = frame["epoch"].max()
    check_section(
        "With moved images",
        [
            "CIFAR-10",
            f"has the mean over epochs {last - last // 10 + 1} to {last} with its 95 % interval",
            f"Moved images have {seeds} seeds",
            f"with dropout from {mean(cifar, 'none')} to {mean(cifar, mirrored)} %",
            f"in {(of_moved['gain'] > 0).sum()} of {len(of_moved)} pairs of runs: on average "
            f"{average(of_moved)} points; without moves the same three seeds gain "
            f"{average(as_they_are.filter(pl.col('seed') < seeds))} points",
            f"best, at {mean(cifar, mirrored, 'a9')} %",
            f"plain ELU from {mean(mnist, 'none')} to {mean(mnist, of_mnist)} % with dropout and "
            f"from {mean(free, 'none')} to {mean(free, of_mnist)} % without",
            f"visible with {seeds} seeds",
            "the paper's 99.65 %",
        ],
    )


def test_moved_images_are_beside_those_of_the_paper(questions, frame):
    one = frame.filter(network="cifar-cnn", activation="elu", dropout=True, setting="a9")
    moved = one.with_columns(
        pl.col("test_accuracy") + 0.01, augment=pl.lit("shift=0.1"), protocol=pl.lit("moved")
    )
    moved = moved.filter(pl.col("seed") < 3)
    before, after = questions.moved_images_table(moved).rows
    assert before[5] == after[5] == ""
    alike = moved.with_columns(pl.col("test_accuracy") - 0.02, setting=pl.lit("base"))
    *_, with_gain = questions.moved_images_table(pl.concat([moved, alike])).rows
    assert with_gain[:6] == (*after[:5], "+2.00 [+2.00, +2.00] (+2.00)")
    cell = "cifar-cnn, elu, dropout"
    assert before[:4] == (cell, "none", "a9", "10")
    assert after[:4] == (cell, "shift=0.1", "a9", "3")
    assert float(before[-1]) == pytest.approx(100 * one["test_accuracy"].max(), abs=0.005)
    three = one.filter(pl.col("seed") < 3)
    assert float(after[-1]) == pytest.approx(100 * three["test_accuracy"].max() + 1, abs=0.005)
    best = three.group_by("epoch").agg(pl.col("test_accuracy").mean())["test_accuracy"].max()
    assert float(after[-2]) == pytest.approx(100 * best + 1, abs=0.005)
