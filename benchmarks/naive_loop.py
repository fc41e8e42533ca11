"""Trains part of the paper by an ordinary loop: one module at a time, torch's random numbers.

    python benchmarks/naive_loop.py paper-mnist-mlp --seeds 0-19 --jobs 16 \\
        --only 'activation=elu,dropout=true,setting=base|limit|a5|a9' \\
        --only 'activation=tanh,dropout=false,setting=base|limit|a5|a9'

Only the list of layers is shared with packed training. Initialisation, order of the data, batches,
optimizer, dropout and noise are torch's own, or the library's modules. So this is an independent
check of a store's results. ``--jobs`` processes train, with one thread each. Rows are added to
``--out`` after every run, and existing runs are skipped. It may be stopped at any time: beside
``--out`` is a folder with the state of every unfinished run after its last epoch.
"""

import argparse
import csv
import multiprocessing
import shlex
import signal
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
KINDS = ("base", "limit", "q")  # of settings, in the ordinary modules


def initialise(module):
    if isinstance(module, nn.Linear | nn.Conv2d):
        nn.init.xavier_uniform_(module.weight)
        nn.init.zeros_(module.bias)


def train(run, data, epochs, device, state):
    """Both losses, the accuracy and the time of every epoch; continues from the file ``state``."""
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
    parts = {"model": model, "optimizer": optimizer, "decay": decay}
    parts |= {"lam": lam} if lam else {}
    results = []
    if state.exists():
        saved = torch.load(state)
        for name, part in parts.items():
            part.load_state_dict(saved[name])
        torch.set_rng_state(saved["cpu"])
        torch.cuda.set_rng_state_all(saved["cuda"])
        results = saved["results"]
    eager = model.forward
    if device.type == "cuda":  # one launch for all kernels: Python is slower than the GPU
        torch.cuda.make_graphed_callables(model.train(), (x_train[: run.batch_size],))
    while len(results) < epochs:
        start = time.perf_counter()
        model.train()
        for batch in torch.randperm(len(x_train), device=device).split(run.batch_size):
            optimizer.zero_grad()
            forward = model if len(batch) == run.batch_size else eager  # a graph has one size
            F.cross_entropy(forward(x_train[batch]), y_train[batch]).backward()
            optimizer.step()
            decay.step()
        model.eval()
        train_loss, _ = evaluate(model, x_train, y_train)
        test = evaluate(model, x_test, y_test)
        results.append((train_loss, *test, round(time.perf_counter() - start, 3)))
        if lam:
            lam.step()
        saved = {name: part.state_dict() for name, part in parts.items()} | {"results": results}
        saved |= {"cpu": torch.get_rng_state(), "cuda": torch.cuda.get_rng_state_all()}
        torch.save(saved, new := state.with_suffix(".new"))
        new.replace(state)
    return results


@torch.no_grad()
def evaluate(model, images, labels):
    loss = right = 0.0
    for x, y in zip(images.split(CHUNK), labels.split(CHUNK), strict=True):
        logits = model(x)
        loss += F.cross_entropy(logits, y, reduction="sum").item()
        right += (logits.argmax(1) == y).sum().item()
    return loss / len(images), right / len(images)


def rows_of(task):
    run, epochs, data_dir, device, state = task
    torch.set_num_threads(1)
    results = train(run, load_dataset(run.dataset, data_dir), epochs, device, state)
    who = [getattr(run, name) for name in RUN]
    rows = [
        dict(zip(COLUMNS, (*who, epoch, *values), strict=False))
        for epoch, values in enumerate(results, 1)
    ]
    return rows, state


def write(path, rows):
    with (new := path.with_suffix(".new")).open("w", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS)
        writer.writeheader()
        writer.writerows(rows)
    new.replace(path)


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("study")
    parser.add_argument("--only", action="append", default=[], help="may be given several times")
    parser.add_argument("--seeds")
    parser.add_argument("--epochs", type=int)
    parser.add_argument("--data-dir", type=Path)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--out", type=Path, default=Path("naive.csv"))
    options = parser.parse_args()
    study = load_study(options.study)
    study = select(study, only=options.only, seeds=options.seeds, epochs=options.epochs)
    runs = study.runs
    if any(run.content().keys() & YOUNGER for run in runs):
        parser.error(f"this loop knows none of {', '.join(YOUNGER)}; choose other runs by --only")
    if unknown := {run.setting for run in runs if parse_setting(run.setting).kind not in KINDS}:
        parser.error(f"this loop cannot train {', '.join(unknown)}; choose settings by --only")
    device = torch.device(options.device)
    origin = provenance(device, shlex.join(["python", *sys.argv])) | {"threads": 1}
    rows = []
    if options.out.exists():
        with options.out.open(newline="") as file:
            rows = list(csv.DictReader(file))
    done = {tuple(row[name] for name in RUN) for row in rows}
    states = options.out.with_suffix(".states")
    states.mkdir(parents=True, exist_ok=True)
    tasks = [
        (run, study.epochs, options.data_dir, device, states / f"{run.id}.pt")
        for run in sorted(runs, key=lambda run: run.seed)
        if tuple(str(getattr(run, name)) for name in RUN) not in done
    ]
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("stopped"))  # which ends the processes
    with multiprocessing.get_context("spawn").Pool(options.jobs) as pool:
        for number, (new, state) in enumerate(pool.imap_unordered(rows_of, tasks), 1):
            rows += [row | origin for row in new]
            write(options.out, rows)
            state.unlink()
            last = " ".join(str(new[-1][name]) for name in (*RUN, "test_accuracy"))
            print(f"{number} of {len(tasks)}: {last}", flush=True)


if __name__ == "__main__":
    main()
