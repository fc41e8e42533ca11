"""A pretrained network gets q-activations: what is lost, and how fine-tuning wins it back.

    python benchmarks/pretrained.py

MLPs are trained on scikit-learn's digits. Then their activations change, all at once or gradually,
while training goes on. Writes benchmarks/results/pretrained.md and puts the table into
docs/training-and-evaluation.md.
"""

import copy
import itertools
import statistics
from pathlib import Path

import torch
from pages import write_between
from sklearn.datasets import load_digits
from torch import nn

import qneurons as qn

ROOT = Path(__file__).parent.parent
ACTIVATIONS = {"softplus": nn.Softplus, "gelu": nn.GELU, "tanh": nn.Tanh}
HIDDEN_LAYERS = 4
SEEDS = 10
PRETRAINING, FINE_TUNING = 30, 10  # epochs
SHOWN = (0, 1, 3, 10)  # epochs after the change
NUM_TRAIN = 1200
BATCH = 32
LEARNING_RATE = 1e-3


class Blend(nn.Module):
    """Goes from the old activation to the new one as ``share`` goes from 0 to 1."""

    def __init__(self, old, new):
        super().__init__()
        self.old, self.new, self.share = old, new, 0.0

    def forward(self, x):
        return torch.lerp(self.old(x), self.new(x), self.share)


def keep(model):
    return lambda epoch: None


def at_once(model):
    qn.convert(model, "c0.1")
    return lambda epoch: None


def rising(model):
    return qn.LambdaScheduler(qn.convert(model, "lin0-1"), epochs=FINE_TUNING).set_epoch


def falling(model):
    return qn.LambdaScheduler(qn.convert(model, "lin1-0"), epochs=FINE_TUNING).set_epoch


def blended(model):
    plain = copy.deepcopy(model)
    qn.convert(model, "c0.1")
    blends = []
    for index, new in enumerate(model):
        if isinstance(new, qn.QActivation):
            blends.append(Blend(plain[index], new))
            model[index] = blends[-1]

    def on_epoch(epoch):
        for blend in blends:
            blend.share = min(1.0, 2 * (epoch - 1) / FINE_TUNING)  # 1 from the middle on

    return on_epoch


WAYS = {
    "f stays": keep,
    "`c0.1` at once": at_once,
    "λ from 0 up to 1": rising,
    "λ from 1 down to 0": falling,
    "blended from f to `c0.1` in 5 epochs": blended,
}


def accuracy(model, x, y):
    with torch.no_grad():
        guesses = model.eval()(x).argmax(1)
    model.train()
    return 100 * (guesses == y).float().mean().item()


def fit(model, x, y, epochs, on_epoch, test):
    """Trains, and gives the test accuracies before the first epoch and after each."""
    optimizer = torch.optim.Adam(model.parameters(), LEARNING_RATE)
    on_epoch(1)
    accuracies = [accuracy(model, *test)]
    for epoch in range(1, epochs + 1):
        on_epoch(epoch)
        for batch in torch.randperm(len(x)).split(BATCH):
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(x[batch]), y[batch]).backward()
            optimizer.step()
        accuracies.append(accuracy(model, *test))
    return accuracies


def curves(make, seed, images, labels):
    """The accuracies of one pretrained network by the way in which it is changed."""
    torch.manual_seed(seed)
    order = torch.randperm(len(images))
    train, test = ((images[part], labels[part]) for part in order.tensor_split([NUM_TRAIN]))
    hidden = itertools.chain(*((nn.Linear(64, 64), make()) for _ in range(HIDDEN_LAYERS)))
    plain = nn.Sequential(*hidden, nn.Linear(64, 10))
    fit(plain, *train, PRETRAINING, keep(plain), test)
    found = {}
    for way, change in WAYS.items():
        model = copy.deepcopy(plain)
        on_epoch = change(model)
        torch.manual_seed(seed)
        found[way] = fit(model, *train, FINE_TUNING, on_epoch, test)
    return found


def main():
    torch.set_num_threads(1)
    images, labels = load_digits(return_X_y=True)
    images, labels = torch.tensor(images, dtype=torch.float32) / 16, torch.tensor(labels)
    lines = [
        f"| f | what changes | {' | '.join(f'epoch {epoch}' for epoch in SHOWN)} |",
        "| --- | --- " + "| ---: " * len(SHOWN) + "|",
    ]
    halves = []
    for name, make in ACTIVATIONS.items():
        runs = [curves(make, seed, images, labels) for seed in range(SEEDS)]
        for way in WAYS:
            values = [[run[way][epoch] for run in runs] for epoch in SHOWN]
            means = (f"{statistics.mean(column):.1f}" for column in values)
            lines.append(f"| {name} | {way} | {' | '.join(means)} |")
            halves += [2.26 * statistics.stdev(column) / SEEDS**0.5 for column in values[1:]]
    text = (
        "\n".join(lines)
        + f"\n\nTest accuracy in %, evaluated in the limit, mean over {SEEDS} seeds. From epoch 1 "
        f"on the halves of the 95 % t-intervals are {statistics.median(halves):.1f} in the median "
        f"and {max(halves):.1f} at most (torch {torch.__version__}, qneurons {qn.__version__}).\n"
    )
    (ROOT / "benchmarks" / "results" / "pretrained.md").write_text(text)
    write_between(ROOT / "docs" / "training-and-evaluation.md", "pretrained", text)
    print(text)


if __name__ == "__main__":
    main()
