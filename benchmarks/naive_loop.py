"""Trains part of the paper by an ordinary loop: one module at a time, torch's random numbers.

    python benchmarks/naive_loop.py paper-mnist-mlp --only 'activation=elu,dropout=true' --seeds 0-2

Only the list of layers is shared with packed training. Initialisation, order of the data, batches,
optimizer, dropout and noise are torch's own, or the library's modules. So this is an independent
check of a store's results. ``--jobs`` processes train, with one thread each. Rows are appended to
``--out`` after every run. Existing runs are skipped.
"""

import argparse
import csv
import multiprocessing
import shlex
import sys
import time
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import nn

import qneurons as qn
from qneurons.activations import resolve
from qneurons.provenance import ORIGIN, provenance
from qneurons.study.data import ARRAYS, load_dataset
from qneurons.study.networks import build
from qneurons.study.runs import YOUNGER, parse_setting
from qneurons.study.spec import load_study, select
from qneurons.study.store import RUN

COLUMNS = (*RUN, "epoch", "train_loss", "test_loss", "test_accuracy", "seconds", *ORIGIN)
CHUNK = 2000  # images evaluated at once


def initialise(module):
    if isinstance(module, nn.Linear | nn.Conv2d):
        nn.init.xavier_uniform_(module.weight)
        nn.init.zeros_(module.bias)


def train(run, data, epochs, device):
    """Yields the losses and the accuracy after every epoch."""
    torch.manual_seed(run.seed)
    x_train, y_train, x_test, y_test = (getattr(data, name).to(device) for name in ARRAYS)
    x_train, x_test = x_train / 255, x_test / 255
    setting = parse_setting(run.setting)
    model = build(
        run.network,
        x_train.shape[1:],
        resolve(run.activation),
        setting.kind,
        dropout=run.dropout,
        phi=run.phi,
    )
    model.apply(initialise).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=run.learning_rate)
    decay = torch.optim.lr_scheduler.ExponentialLR(optimizer, 1 - run.learning_rate_decay)
    lam = qn.LambdaScheduler(model, setting.schedule) if setting.schedule else None
    for _ in range(epochs):
        model.train()
        for batch in torch.randperm(len(x_train), device=device).split(run.batch_size):
            optimizer.zero_grad()
            F.cross_entropy(model(x_train[batch]), y_train[batch]).backward()
            optimizer.step()
            decay.step()
        model.eval()
        train_loss, _ = evaluate(model, x_train, y_train)
        yield train_loss, *evaluate(model, x_test, y_test)
        if lam:
            lam.step()


@torch.no_grad()
def evaluate(model, images, labels):
    loss = right = 0.0
    for x, y in zip(images.split(CHUNK), labels.split(CHUNK), strict=True):
        logits = model(x)
        loss += F.cross_entropy(logits, y, reduction="sum").item()
        right += (logits.argmax(1) == y).sum().item()
    return loss / len(images), right / len(images)


def rows_of(task):
    run, epochs, data_dir, device = task
    torch.set_num_threads(1)
    data = load_dataset(run.dataset, data_dir)
    start, rows = time.perf_counter(), []
    for epoch, values in enumerate(train(run, data, epochs, device), 1):
        results = dict(zip(("train_loss", "test_loss", "test_accuracy"), values, strict=True))
        seconds, start = time.perf_counter() - start, time.perf_counter()
        who = {name: getattr(run, name) for name in RUN}
        rows.append({**who, "epoch": epoch, **results, "seconds": f"{seconds:.3f}"})
    return rows


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("study")
    parser.add_argument("--only")
    parser.add_argument("--seeds")
    parser.add_argument("--epochs", type=int)
    parser.add_argument("--data-dir", type=Path)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--out", type=Path, default=Path("naive.csv"))
    options = parser.parse_args()
    study = select(
        load_study(options.study), only=options.only, seeds=options.seeds, epochs=options.epochs
    )
    if any(run.content().keys() & YOUNGER for run in study.runs):
        parser.error(f"this loop knows none of {', '.join(YOUNGER)}; choose other runs by --only")
    device = torch.device(options.device)
    origin = provenance(device, shlex.join(["python", *sys.argv])) | {"threads": 1}
    done = set()
    if options.out.exists():
        with options.out.open(newline="") as file:
            done = {tuple(row[name] for name in RUN) for row in csv.DictReader(file)}
    tasks = [
        (run, study.epochs, options.data_dir, device)
        for run in sorted(study.runs, key=lambda run: run.seed)
        if tuple(str(getattr(run, name)) for name in RUN) not in done
    ]
    with (
        multiprocessing.get_context("spawn").Pool(options.jobs) as pool,
        options.out.open("a", newline="") as file,
    ):
        writer = csv.DictWriter(file, COLUMNS)
        if not done:
            writer.writeheader()
        for number, rows in enumerate(pool.imap_unordered(rows_of, tasks), 1):
            writer.writerows(row | origin for row in rows)
            file.flush()
            last = " ".join(str(rows[-1][name]) for name in (*RUN, "test_accuracy"))
            print(f"{number} of {len(tasks)}: {last}", flush=True)


if __name__ == "__main__":
    main()
