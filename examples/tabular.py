"""A table in some seconds: a residual MLP on scikit-learn's digits, on a CPU or a GPU.

    qneurons compare examples/tabular.py:train --param activation=gelu --param lr=0.0003,0.001,0.003

The table has 1,797 rows, each with 64 counts of pixels and one of ten classes. Every seed divides
the rows anew: 60 % train, 20 % choose the rate, and 20 % are the test. The network is the ResNet
for tables of Gorishniy et al. (arXiv 2106.11959).
"""

import functools
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import nn

WIDTH, HIDDEN, NUM_BLOCKS, DROPOUT = 128, 256, 3, 0.1
BATCH, WEIGHT_DECAY = 64, 0.01
SHARE = 5  # one part of so many is for validation, and one for the test
ACTIVATIONS = {
    "relu": nn.ReLU,
    "gelu": nn.GELU,
    "silu": nn.SiLU,
    "mish": nn.Mish,
    "elu": nn.ELU,
    "tanh": nn.Tanh,
}


@dataclass(frozen=True)
class Size:
    epochs: int


SIZES = {"full": Size(40), "tiny": Size(2)}


@functools.cache
def load(device):
    """The rows, and their classes."""
    from sklearn.datasets import load_digits

    counts, classes = load_digits(return_X_y=True)
    rows = torch.tensor(counts, dtype=torch.float32, device=device)
    return rows, torch.tensor(classes, device=device)


class Block(nn.Module):
    def __init__(self, activation):
        super().__init__()
        self.layers = nn.Sequential(
            nn.BatchNorm1d(WIDTH),
            nn.Linear(WIDTH, HIDDEN),
            activation(),
            nn.Dropout(DROPOUT),
            nn.Linear(HIDDEN, WIDTH),
            nn.Dropout(DROPOUT),
        )

    def forward(self, x):
        return x + self.layers(x)


def network(num_columns, activation):
    blocks = (Block(activation) for _ in range(NUM_BLOCKS))
    head = nn.BatchNorm1d(WIDTH), activation(), nn.Linear(WIDTH, 10)
    return nn.Sequential(nn.Linear(num_columns, WIDTH), *blocks, *head)


def accuracy(model, rows, classes):
    model.eval()
    with torch.no_grad():
        right = model(rows).argmax(1) == classes
    model.train()
    return right.float().mean()


def train(trial):
    size = SIZES[trial.params.get("size", "full")]
    activation = ACTIVATIONS[trial.params.get("activation", "gelu")]
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    rows, classes = load(device)
    generator = torch.Generator().manual_seed(trial.seed)
    order = torch.randperm(len(rows), generator=generator)
    held = len(rows) // SHARE
    parts = order.split([held, held, len(rows) - 2 * held])
    seen = rows[parts[-1]]
    rows = (rows - seen.mean(0)) / seen.std(0).clamp(min=1.0)  # some columns hardly vary
    test, validation, training = ((rows[part], classes[part]) for part in parts)

    model = trial.convert(network(rows.shape[1], activation)).to(device)
    rate = trial.params.get("lr", 3e-3)
    optimizer = torch.optim.AdamW(model.parameters(), rate, weight_decay=WEIGHT_DECAY, fused=True)
    batches_per_epoch = len(training[0]) // BATCH  # the last, smaller batch is left out
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(
        optimizer, size.epochs * batches_per_epoch
    )
    for _ in range(size.epochs):
        order = torch.randperm(len(training[0]), generator=generator)
        for batch in order.split(BATCH)[:batches_per_epoch]:
            x, y = (part[batch] for part in training)
            loss = F.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
        trial.report(
            val_accuracy=accuracy(model, *validation), test_accuracy=accuracy(model, *test)
        )
