"""Frames of tidy rows as a store exports them, made up with effects of the test's choosing."""

from hashlib import sha256
from itertools import product

import numpy as np
import pytest

from qneurons.schedules import parse_schedule

SETTINGS = ("base", "limit", "c0.02", "c0.1", "a1", "a5", "a9")
DIGITS_CELLS = tuple(("digits", "mnist-mlp", False, name) for name in ("elu", "tanh"))
PAPER_CELLS = tuple(
    (dataset, network, dropout, activation)
    for dataset, network in (
        ("mnist", "mnist-mlp"),
        ("mnist", "mnist-cnn"),
        ("cifar10", "cifar-cnn"),
    )
    for dropout, activation in product((False, True), ("tanh", "relu", "elu", "softplus"))
)


@pytest.fixture
def digits_cells():
    """The cells of the quickstart: (dataset, network, dropout, activation)."""
    return DIGITS_CELLS


@pytest.fixture
def paper_cells():
    """The 24 cells of the paper."""
    return PAPER_CELLS


@pytest.fixture(scope="session")
def thin_out():
    """``thin_out(frame, where, planned)`` lacks there what is not recorded after every epoch."""
    pl = pytest.importorskip("polars")
    lacking = r"^train_loss$|^test_.*_(limit|mean)$"

    def thin(frame, where, planned=100):
        epoch = pl.col("epoch")
        is_full = (epoch == 1) | (epoch % 5 == 0) | (epoch > planned - 10)
        return frame.with_columns(pl.when(is_full | ~where).then(pl.col(lacking)).name.keep())

    return thin


@pytest.fixture(scope="session")
def make_frame():
    """``make_frame(...)`` is a polars frame with the columns of ``Store.frame()``; see _make."""
    pytest.importorskip("polars")
    return _make


def _make(
    *,
    cells=DIGITS_CELLS,
    settings=SETTINGS,
    seeds=10,
    epochs=5,
    every=1,
    accuracy=0.98,
    loss=0.05,
    gain=0.0,
    loss_gain=0.0,
    noise=2e-4,
    loss_noise=5e-4,
    spread=1e-3,
    diverged=None,
    incomplete=None,
    rng=0,
):
    """Rows of every run, whose last epoch is ``accuracy`` (``loss``) plus effects.

    Rows are of every ``every``-th epoch: few of them make a long training.
    ``gain`` adds to the test accuracy and ``loss_gain`` takes from the training loss: a number for
    every setting but base and limit, a dict by setting, or a function of (cell, setting).
    ``noise`` and ``loss_noise`` are the standard deviations of one run; ``spread`` is that of what
    the runs of one seed share. ``accuracy`` and ``loss`` are numbers or functions of the cell.
    ``diverged`` and ``incomplete`` map (setting, seed) or (cell, setting, seed) to a last epoch.
    """
    import polars as pl  # not on every machine that runs the other tests

    generator = np.random.default_rng(rng)
    seeds = range(seeds) if isinstance(seeds, int) else seeds
    runs = []
    for cell in cells:
        shared = dict(zip(seeds, generator.normal(size=len(seeds)) * spread, strict=True))
        for setting, seed in product(settings, seeds):
            own = generator.normal(size=2) * (noise, loss_noise)
            died = _last(diverged, cell, setting, seed)
            last = died or _last(incomplete, cell, setting, seed) or epochs
            final = _of(accuracy, cell) + shared[seed] + _effect(gain, cell, setting) + own[0]
            final_loss = _of(loss, cell) - _effect(loss_gain, cell, setting) + own[1]
            name = sha256(repr((cell, setting, seed)).encode()).hexdigest()[:16]
            runs.append((*cell[:4], setting, seed, last, died is not None, final, final_loss, name))
    columns = ("dataset", "network", "dropout", "activation", "setting", "seed")
    columns += ("last", "died", "final", "final_loss", "run")
    frame = pl.DataFrame(runs, schema=columns, orient="row").with_columns(
        epoch=pl.int_ranges(every, pl.col("last") + 1, every)
    )
    return _rows(frame.explode("epoch"), epochs)


def _of(value, *arguments):
    return value(*arguments) if callable(value) else value


def _effect(effect, cell, setting):
    if callable(effect):
        return effect(cell, setting)
    if isinstance(effect, dict):
        return effect.get(setting, 0.0)
    return 0.0 if setting in ("base", "limit") else effect


def _last(table, cell, setting, seed):
    table = table or {}
    return table.get((cell, setting, seed), table.get((setting, seed)))


def _rows(frame, epochs):
    import polars as pl

    lams = {
        (setting, epoch): parse_schedule(setting)(epoch) if setting[0] in "ca" else 0.0
        for setting, epoch in frame.select("setting", "epoch").unique().iter_rows()
    }
    ahead = (-4 * pl.col("epoch") / epochs).exp() - np.exp(-4.0)  # falls to 0 at the last epoch
    diverged = pl.col("died") & (pl.col("epoch") == pl.col("last"))
    lost = pl.when(diverged).then(np.nan).otherwise(0.0)
    accuracy = pl.col("final") - 0.1 * ahead + lost
    test_loss = 4 * (1 - accuracy)
    mode = 1e-4 * pl.col("setting").str.contains("^[ca]")  # the others are alike in all modes
    train_loss = pl.col("final_loss") + ahead + lost
    return frame.select(
        *("dataset", "network", "dropout", "activation"),
        pl.lit("").alias("protocol"),
        *("setting", "seed", "epoch"),
        lam=pl.Series([lams[key] for key in frame.select("setting", "epoch").iter_rows()]),
        train_loss=train_loss,
        test_loss=test_loss,
        test_accuracy=accuracy,
        test_loss_limit=test_loss - mode,
        test_accuracy_limit=accuracy + mode,
        test_loss_mean=test_loss - 2 * mode,
        test_accuracy_mean=accuracy + 2 * mode,
        diverged=diverged,
        train_loss_limit=pl.when(pl.col("epoch") % 10 == 0).then(train_loss - mode),
        seconds=0.5,
        run="run",
        device=pl.lit("cpu"),
        precision=pl.lit("fp32"),
        torch=pl.lit("2.13.0"),
        qneurons=pl.lit("0.1.0"),
        commit=pl.lit("0123abcd"),
    )
