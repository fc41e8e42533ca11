"""The vocabulary of a study: settings, runs, what is recorded of an epoch, studies."""

import dataclasses
import functools
import hashlib
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import resources
from operator import attrgetter
from typing import Any

from qneurons.schedules import EXAMPLES, FORMS, Constant, Schedule, parse_schedule
from qneurons.study.errors import StudyError

# Batch size and learning rate of the paper's networks.
PAPER_PROTOCOL = {"mnist-mlp": (64, 0.05), "mnist-cnn": (64, 0.05), "cifar-cnn": (32, 0.01)}
NO_NORM = "-no-norm"  # ends the name of a network whose batch normalisation is left out
LARGEST = 1e6  # allowed value of λ, φ and η: larger than any useful one, harmless in float32
PACKAGED = resources.files("qneurons") / "studies"
_LATE = 10**9  # an epoch in which every schedule is at its end


@dataclass(frozen=True)
class Setting:
    """How an activation is used; ``str`` gives the canonical notation.

    ======================  =============================================================
    ``base``                f itself
    ``limit``               f'(x) x, the limit of the q-activation as λ and φ vanish
    ``c0.02``, ``a5@0.25``  the q-activation, with λ from that schedule
    ``m5``, ``m5@0.25``     the mean E[g_q(x)] of the q-activation of ``a5``, ``a5@0.25``
    ``n0.001``              f itself, with Gaussian noise of variance η / (1 + t)^0.55 on
                            the gradients of step t = 0, 1, ... (η = 0.001)
    ======================  =============================================================

    Example:
        >>> parse_setting("a1").lam(epoch=3)
        0.5
        >>> str(parse_setting("n1e-3"))
        'n0.001'
    """

    kind: str  # "base", "limit", "mean", "q" or "gradient-noise"
    schedule: Schedule | None = None
    eta: float = 0.0

    def lam(self, epoch: int) -> float:
        """λ at epoch 1, 2, ...; 0 if the activation has none."""
        return 0.0 if self.schedule is None else self.schedule(epoch)

    def __str__(self) -> str:
        if self.kind == "gradient-noise":
            return "n" + str(Constant(self.eta)).removeprefix("c")
        if self.kind == "mean":
            return "m" + str(self.schedule).removeprefix("a")
        return self.kind if self.schedule is None else str(self.schedule)


def parse_setting(text: str) -> Setting:
    """Reads the notation of a setting, the inverse of ``str``."""
    if text in ("base", "limit"):
        return Setting(text)
    try:
        # The numbers of n and m are written as in c0.001 and in a5.
        kind = {"n": "gradient-noise", "m": "mean"}.get(text[:1], "q")
        schedule = parse_schedule({"n": "c", "m": "a"}.get(text[:1], text[:1]) + text[1:])
        if max(schedule(1), schedule.over(2)(_LATE)) > LARGEST:
            raise ValueError
        return Setting(kind, eta=schedule(1)) if text[0] == "n" else Setting(kind, schedule)
    except ValueError:
        raise StudyError(
            f"cannot read the setting {text!r}",
            f"write 'base', 'limit', {FORMS}, 'm<lam0>' (the mean of 'a<lam0>', without noise) or "
            f"'n<eta>' (noise on the gradients), for example {EXAMPLES}, with numbers up to "
            f"{LARGEST:g}",
        ) from None


@dataclass(frozen=True, order=True)
class Run:
    """One training: everything that its results depend on, except the number of epochs."""

    dataset: str
    network: str
    dropout: bool
    activation: str
    setting: str
    seed: int
    batch_size: int
    learning_rate: float
    learning_rate_decay: float = 1e-6
    phi: float = 1e-3
    momentum: float = 0.0
    augment: str = "none"  # how training images are moved, in the notation of an Augmentation
    held_out: int = 0  # so many of the last training images take the place of the test set

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if field.type is float:  # so that runs with 1 and with 1.0 have the same id
                object.__setattr__(self, field.name, float(value))
            elif field.type is str and not str(value).isprintable():  # from the store of another
                raise ValueError(f"{field.name} must be printable text, got {value!r}")

    @functools.cached_property
    def id(self) -> str:
        """16 hexadecimal digits, a hash of the content. Stores rely on it: it must not change."""
        content = json.dumps(self.content(), sort_keys=True)
        return hashlib.sha256(content.encode()).hexdigest()[:16]

    def content(self) -> dict[str, Any]:
        """The fields, without those of ``YOUNGER`` that have their default."""
        fields = dataclasses.asdict(self)
        usual = {name for name in YOUNGER if fields[name] == getattr(Run, name)}
        return {name: value for name, value in fields.items() if name not in usual}

    @property
    def protocol(self) -> str:
        """What differs from the paper's protocol for the network, in words; "" if nothing."""
        network = self.network.removesuffix(NO_NORM)
        batch_size, learning_rate = PAPER_PROTOCOL.get(network, (None, None))
        usual = (
            ("batch size", self.batch_size, batch_size),
            ("learning rate", self.learning_rate, learning_rate),
            ("learning rate decay", self.learning_rate_decay, 1e-6),
            ("φ", self.phi, 1e-3),
            ("momentum", self.momentum, 0.0),
            ("augmentation", self.augment, "none"),
            ("held-out images", self.held_out, 0),
        )
        return ", ".join(f"{name} {ours}" for name, ours, paper in usual if ours != paper)

    @property
    def kind(self) -> str:
        """Network, data, dropout and protocol, in words."""
        about = f"{self.network} on {self.dataset}", "dropout" * self.dropout, self.protocol
        return ", ".join(filter(None, about))

    @property
    def cell(self) -> tuple[str, str, bool, str, str]:
        """Everything that a run depends on, except setting and seed, which a cell compares."""
        return self.dataset, self.network, self.dropout, self.activation, self.protocol


# Fields that are younger than the first stores. Runs from before them keep their ids.
YOUNGER = ("momentum", "augment", "held_out")
# What a run of a pack has for itself.
_OWN = ("activation", "setting", "seed", "learning_rate", "learning_rate_decay", "augment")
_SHARED = attrgetter(*(f.name for f in dataclasses.fields(Run) if f.name not in _OWN))


def packable(run: Run) -> tuple[object, ...]:
    """Runs can share a pack if this is equal."""
    return *_SHARED(run), run.augment == "none"


def kind_of_pack(runs: Sequence[Run]) -> str:
    """The kind of all these runs, or what their kinds have in common."""
    first, *others = dict.fromkeys(run.kind for run in runs)
    if not others:
        return first
    common = (p for p in first.split(", ") if all(p in other.split(", ") for other in others))
    return ", ".join([*common, "several protocols"])


@dataclass(frozen=True)
class Epoch:
    """What is recorded of one run after one epoch.

    Losses and accuracies without suffix are evaluated in mode ``"sample"``, as in the paper's code.
    For settings without noise all modes give the same. Only ``test_loss`` and ``test_accuracy``
    are evaluated after every epoch. The others take most of the time of an evaluation, so they are
    NaN after some epochs (see :class:`.Pack`), and ``train_loss_limit`` after all but every tenth.
    ``seconds`` is the time of the pack's epoch, with evaluation, divided by the number of its
    runs. A run whose training or test loss is evaluated and not finite has diverged and ends there.
    """

    run: str
    epoch: int
    lam: float
    train_loss: float
    test_loss: float
    test_accuracy: float
    test_loss_limit: float
    test_accuracy_limit: float
    test_loss_mean: float
    test_accuracy_mean: float
    diverged: bool
    seconds: float
    train_loss_limit: float = math.nan


@dataclass(frozen=True)
class Study:
    name: str
    title: str
    epochs: int
    runs: tuple[Run, ...]


def study_names() -> list[str]:
    """The studies that come with the package."""
    files = (file.name for file in PACKAGED.iterdir())
    return sorted(name.removesuffix(".toml") for name in files if name.endswith(".toml"))


def counted(count: int, noun: str) -> str:
    """``1 seed``, ``2 seeds``."""
    return f"{count:,} {noun}{'s' * (count != 1)}"
