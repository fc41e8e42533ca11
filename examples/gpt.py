"""A small GPT on the source of Python's standard library, byte by byte.

    qneurons compare examples/gpt.py:train --param activation=gelu --param lr=0.001,0.002,0.004
    qneurons compare examples/gpt.py:train --param size=small --seeds 3  # on a CPU

Losses are in nats per byte. Whole files are held out for validation and for the test.
"""

import functools
import math
import os
import warnings
import zlib
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import nn

SKIPPED = {"test", "tests", "idle_test", "site-packages", "dist-packages"}  # not on every machine
TABLES = {"encodings", "pydoc_data"}  # more data than source
WARMUP = 0.1  # part of the steps
BETAS, WEIGHT_DECAY, MOST_NORM = (0.9, 0.95), 0.1, 1.0
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
    layers: int
    width: int
    context: int
    batch: int
    periods: int  # of training, each followed by an evaluation
    steps: int  # of a period
    windows: int  # of an evaluation


SIZES = {
    "full": Size(6, 256, 256, batch=128, periods=12, steps=50, windows=1024),
    "small": Size(2, 64, 64, batch=32, periods=12, steps=150, windows=512),
    "long": Size(2, 64, 64, batch=32, periods=36, steps=150, windows=512),
    "tiny": Size(1, 32, 16, batch=8, periods=2, steps=5, windows=8),
}
HEAD_WIDTH = 32


@functools.cache
def load(device):
    """The bytes of training, validation and test. The name of a file decides where it goes."""
    library = Path(os.__file__).parent
    paths = (path.relative_to(library) for path in library.rglob("*.py"))
    parts = [[], [], []]
    for path in sorted(path for path in paths if not {*path.parts} & (SKIPPED | TABLES)):
        share = zlib.crc32(path.as_posix().encode()) % 10
        parts[{0: 1, 1: 2}.get(share, 0)].append((library / path).read_bytes())
    if not all(parts):
        raise FileNotFoundError(f"{library} has no source files; run a Python that brings them")
    texts = (torch.frombuffer(bytearray(b"".join(part)), dtype=torch.uint8) for part in parts)
    return tuple(text.to(device) for text in texts)


class Block(nn.Module):
    def __init__(self, width, activation):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(
            nn.Linear(width, 4 * width), activation(), nn.Linear(4 * width, width)
        )

    def forward(self, x):
        heads = self.qkv(self.norm1(x)).unflatten(2, (-1, HEAD_WIDTH)).transpose(1, 2)
        mixed = F.scaled_dot_product_attention(*heads.chunk(3, 1), is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).flatten(2))
        return x + self.mlp(self.norm2(x))


class GPT(nn.Module):
    def __init__(self, size, activation):
        super().__init__()
        self.embedding = nn.Embedding(256, size.width)
        self.positions = nn.Embedding(size.context, size.width)
        self.blocks = nn.Sequential(*(Block(size.width, activation) for _ in range(size.layers)))
        self.norm, self.head = nn.LayerNorm(size.width), nn.Linear(size.width, 256)
        for name, part in self.named_parameters():
            if part.ndim == 2:
                into_sum = name.endswith(("out.weight", "mlp.2.weight"))
                nn.init.normal_(part, std=0.02 / math.sqrt(2 * size.layers if into_sum else 1))

    def forward(self, x):
        x = self.embedding(x) + self.positions.weight[: x.shape[1]]
        return self.head(self.norm(self.blocks(x)))


def bfloat16(device):
    """Autocast, except on a CPU: many are slow in bfloat16. A CUDA graph allows it no cache."""
    is_on = device.type != "cpu"
    return torch.autocast(device.type, torch.bfloat16, enabled=is_on, cache_enabled=False)


def loss_of(model, text, starts, context):
    """The mean loss of the bytes after each start, predicted from those before them."""
    window = text[starts[:, None] + torch.arange(context + 1, device=text.device)].long()
    with bfloat16(text.device):
        logits = model(window[:, :-1])
        return F.cross_entropy(logits.flatten(0, 1), window[:, 1:].flatten())


def evaluate(model, text, size):
    """The mean loss in windows that lie at equal distances all over the text."""
    starts = torch.linspace(0, len(text) - size.context - 1, size.windows, device=text.device)
    model.eval()
    with torch.no_grad():
        batches = starts.long().split(size.batch)
        losses = [loss_of(model, text, batch, size.context) for batch in batches]
    model.train()
    return torch.stack(losses).mean()


def train(trial):
    size = SIZES[trial.params.get("size", "full")]
    rate = trial.params.get("lr", 2e-3)
    activation = ACTIVATIONS[trial.params.get("activation", "gelu")]
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    text, validation, test = load(device)

    model = trial.convert(GPT(size, activation)).to(device)
    matrices, others = (
        [p for p in model.parameters() if (p.ndim == 2) == is_2d] for is_2d in (True, False)
    )
    groups = [
        {"params": matrices, "weight_decay": WEIGHT_DECAY},
        {"params": others, "weight_decay": 0.0},
    ]
    optimizer = torch.optim.AdamW(groups, rate, BETAS, fused=True)
    num_steps = size.periods * size.steps
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer,
        lambda step: min(
            (step + 1) / (WARMUP * num_steps), (1 + math.cos(math.pi * step / num_steps)) / 2
        ),
    )

    if device.type == "cuda":  # one launch for all layers: Python is slower than the GPU
        warnings.filterwarnings("ignore", "The AccumulateGrad node's stream")  # torch's own streams
        shape = size.batch, size.context, size.width
        with bfloat16(device):
            torch.cuda.make_graphed_callables(
                model.blocks, (torch.zeros(shape, device=device, requires_grad=True),)
            )

    generator = torch.Generator(device).manual_seed(trial.seed)  # not the one that draws q
    for _ in range(size.periods):
        for _ in range(size.steps):
            starts = torch.randint(
                len(text) - size.context, (size.batch,), generator=generator, device=device
            )
            optimizer.zero_grad()
            loss_of(model, text, starts, size.context).backward()
            nn.utils.clip_grad_norm_(model.parameters(), MOST_NORM)
            optimizer.step()
            schedule.step()
        trial.report(
            val_loss=evaluate(model, validation, size), test_loss=evaluate(model, test, size)
        )
