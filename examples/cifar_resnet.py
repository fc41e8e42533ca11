"""CIFAR-10 in some seconds: a small ResNet, made for one GPU.

    qneurons compare examples/cifar_resnet.py:train --param activation=gelu --param lr=0.75,1.5,3
    qneurons compare examples/cifar_resnet.py:train --param size=small --seeds 3  # on a CPU

The recipe follows Keller Jordan's airbench (arXiv 2404.00498): a first convolution that whitens
patches, augmentation on the GPU, larger rates for biases, label smoothing, a rate that rises and
falls in a triangle, weights that are drawn to their running mean, and shifted and mirrored images
in the test. Residual connections are added. The data come from the folder QNEURONS_DATA or from
~/.cache/qneurons, to which they are downloaded.
"""

import functools
import os
import warnings
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import nn

from qneurons.study.data import load_dataset

MEAN, STD = (125.3, 123.0, 113.9), (63.0, 62.1, 66.7)  # of the training images, by colour
PIXELS = 32
SHIFT = 2  # pixels, to each side
NUM_VALIDATION = 5000  # the last training images: they choose the rate, and train nothing
MOMENTUM, WEIGHT_DECAY = 0.85, 1.3e-3
BIAS_RATE = 64  # of normalisations, times the rate of the weights
LABEL_SMOOTHING = 0.2
RISE = 0.23  # the rate peaks after this part of the steps
FIRST_RATE, LAST_RATE = 0.2, 0.07  # times the peak
LOOKAHEAD_STEPS, LOOKAHEAD_HOLD = 5, 0.95**5  # how often, and how firmly at the end
EVALUATED_AT_ONCE = 1000
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
    widths: tuple[int, int, int]
    epochs: int
    batch: int
    num_train: int
    num_test: int


SIZES = {
    "full": Size((64, 256, 256), epochs=18, batch=1000, num_train=45_000, num_test=10_000),
    "small": Size((16, 32, 32), epochs=6, batch=100, num_train=15_000, num_test=5000),
    "tiny": Size((4, 4, 4), epochs=2, batch=50, num_train=200, num_test=50),
}


@functools.cache
def load(device):
    """Images as N × row × column × colour and labels: of training, validation and test."""
    data = load_dataset("cifar10", os.environ.get("QNEURONS_DATA"))
    images, test_images = (
        x.permute(0, 2, 3, 1).contiguous().to(device) for x in (data.x_train, data.x_test)
    )
    labels, test_labels = data.y_train.to(device), data.y_test.to(device)
    split = len(labels) - NUM_VALIDATION
    return (
        (images[:split], labels[:split]),
        (images[split:], labels[split:]),
        (test_images, test_labels),
    )


@functools.cache  # copying them to the GPU again would wait for it
def colours(device):
    return torch.tensor(MEAN, device=device), torch.tensor(STD, device=device)


def normalised(images):
    """uint8 N × row × column × colour to float N × colour × row × column, in channels_last."""
    mean, std = colours(images.device)
    return ((images - mean) / std).permute(0, 3, 1, 2)


def whitening(images):
    """Filters after which 2 × 2 patches of the images are uncorrelated, and their negatives."""
    patches = F.unfold(normalised(images), 2).transpose(1, 2).flatten(0, 1)
    values, vectors = torch.linalg.eigh(patches.T @ patches / len(patches))
    filters = (vectors / (values + 5e-4).sqrt()).T.unflatten(1, (3, 2, 2))
    return torch.cat([filters, -filters])


def convolution(inputs, outputs):
    layer = nn.Conv2d(inputs, outputs, 3, padding=1, bias=False)
    nn.init.dirac_(layer.weight[:inputs])  # passes its input on, as far as there is one
    return layer


def norm(channels):
    layer = nn.BatchNorm2d(channels, momentum=0.4)
    layer.weight.requires_grad_(False)  # the next convolution scales as well
    return layer


class Block(nn.Module):
    """Halves the size of the image, then adds a second convolution to what it has."""

    def __init__(self, inputs, outputs, activation):
        super().__init__()
        self.conv1, self.norm1 = convolution(inputs, outputs), norm(outputs)
        self.conv2, self.norm2 = convolution(outputs, outputs), norm(outputs)
        self.act1, self.act2 = activation(), activation()

    def forward(self, x):
        x = self.act1(self.norm1(F.max_pool2d(self.conv1(x), 2)))
        return x + self.act2(self.norm2(self.conv2(x)))


class ResNet(nn.Module):
    def __init__(self, widths, activation, filters):
        super().__init__()
        self.stem, self.act = nn.Conv2d(3, len(filters), 2), activation()
        self.stem.weight = nn.Parameter(filters, requires_grad=False)
        nn.init.zeros_(self.stem.bias)
        channels = (len(filters), *widths)
        pairs = zip(channels, widths, strict=False)
        self.blocks = nn.Sequential(*(Block(*pair, activation) for pair in pairs))
        self.head = nn.Linear(widths[-1], 10, bias=False)

    def forward(self, x):
        x = self.blocks(self.act(self.stem(x)))
        return self.head(x.amax((2, 3))) / 9  # small logits at the start


def augmented(images, batch, is_flipped, generator):
    """The images of a batch, shifted by chance and mirrored where told, in one gather."""
    size, device = (2, len(batch), 1), batch.device
    shifts = torch.randint(-SHIFT, SHIFT + 1, size, generator=generator, device=device)
    pixels = torch.arange(PIXELS, device=device)
    last = PIXELS - 1
    rows, columns = last - (last - (pixels + shifts).abs()).abs()  # reflected at the borders
    columns = torch.where(is_flipped[batch, None], last - columns, columns)
    return normalised(images[batch[:, None, None], rows[:, :, None], columns[:, None, :]])


def bfloat16(device):
    """Autocast, except on a CPU: many are slow in bfloat16. A CUDA graph allows it no cache."""
    is_on = device.type != "cpu"
    return torch.autocast(device.type, torch.bfloat16, enabled=is_on, cache_enabled=False)


def views(x):
    """The images, shifted by a pixel to either corner, and the mirror images of all three."""
    padded = F.pad(x, (1, 1, 1, 1), "reflect")
    for shift in range(3):
        view = padded[:, :, shift : shift + PIXELS, shift : shift + PIXELS]
        yield from (view, view.flip(3))


def accuracy(model, images, labels, *, is_last):
    """Of the images as they are; after the last epoch of the sum of the logits of their views."""
    model.eval()
    right = 0
    with torch.no_grad(), bfloat16(images.device):
        parts = (part.split(EVALUATED_AT_ONCE) for part in (images, labels))
        for x, y in zip(*parts, strict=True):
            x = normalised(x)
            logits = sum(model(view).float() for view in (views(x) if is_last else [x]))
            right += (logits.argmax(1) == y).sum()
    model.train()
    return right / len(labels)


def state(model):
    """Weights and running statistics."""
    return [part for part in model.state_dict().values() if part.is_floating_point()]


def look_ahead(means, model, hold):
    """Moves the running means towards the model, and the model to them."""
    for mean, part in zip(means, state(model), strict=True):
        part.copy_(mean.lerp_(part, 1 - hold))


def train(trial):
    size = SIZES[trial.params.get("size", "full")]
    rate = trial.params.get("lr", 1.5) * size.batch / 1000  # lr is for a batch of 1000
    activation = ACTIVATIONS[trial.params.get("activation", "gelu")]
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    torch.backends.cudnn.benchmark = True  # all batches have the same shape
    (images, labels), validation, test = load(device)
    images, labels = images[: size.num_train], labels[: size.num_train]
    validation, test = ([part[: size.num_test] for part in parts] for parts in (validation, test))

    model = trial.convert(ResNet(size.widths, activation, whitening(images[:1000]).cpu()))
    model = model.to(device, memory_format=torch.channels_last)
    trained = {name: part for name, part in model.named_parameters() if part.requires_grad}
    biases = [part for name, part in trained.items() if "norm" in name]
    weights = [part for name, part in trained.items() if "norm" not in name]
    groups = [
        {"params": weights, "lr": rate, "weight_decay": WEIGHT_DECAY},
        {"params": biases, "lr": BIAS_RATE * rate, "weight_decay": WEIGHT_DECAY / BIAS_RATE},
    ]
    optimizer = torch.optim.SGD(groups, momentum=MOMENTUM, nesterov=True, fused=True)
    num_steps = size.epochs * (size.num_train // size.batch)
    triangle = torch.optim.lr_scheduler.LambdaLR(
        optimizer,
        lambda step: min(
            FIRST_RATE + (1 - FIRST_RATE) * step / (RISE * num_steps),
            LAST_RATE + (1 - LAST_RATE) * (num_steps - step) / ((1 - RISE) * num_steps),
        ),
    )
    means = [part.clone() for part in state(model)]
    if device.type == "cuda":  # one launch for all kernels: Python is slower than the GPU
        warnings.filterwarnings("ignore", "The AccumulateGrad node's stream")  # torch's own streams
        with bfloat16(device):
            model = torch.cuda.make_graphed_callables(model, (normalised(images[: size.batch]),))

    generator = torch.Generator(device).manual_seed(trial.seed)  # not the one that draws q
    is_flipped = torch.randint(2, labels.shape, generator=generator, device=device) > 0
    for epoch in range(1, size.epochs + 1):
        is_flipped = ~is_flipped  # so that two epochs show every image from both sides
        order = torch.randperm(len(labels), generator=generator, device=device)
        for batch in order.split(size.batch):
            with bfloat16(device):
                logits = model(augmented(images, batch, is_flipped, generator))
                loss = F.cross_entropy(logits, labels[batch], label_smoothing=LABEL_SMOOTHING)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            triangle.step()
            step = triangle.last_epoch
            if step % LOOKAHEAD_STEPS == 0:
                look_ahead(means, model, LOOKAHEAD_HOLD * (step / num_steps) ** 3)
        is_last = epoch == size.epochs
        trial.report(
            val_accuracy=accuracy(model, *validation, is_last=is_last),
            test_accuracy=accuracy(model, *test, is_last=is_last),
        )
