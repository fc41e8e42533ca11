"""What is trained (a setting, a run, and a study, which is a list of runs) and recorded."""

import dataclasses
import functools
import hashlib
import json
import math
from dataclasses import dataclass

from qneurons.schedules import Constant, Schedule, parse_schedule
from qneurons.study.errors import StudyError

# Batch size and learning rate of the paper's networks.
PAPER_PROTOCOL = {"mnist-mlp": (64, 0.05), "mnist-cnn": (64, 0.05), "cifar-cnn": (32, 0.01)}
LARGEST = 1e6  # of λ, φ and η: far beyond any use, and far within float32


@dataclass(frozen=True)
class Setting:
    """How an activation is used; ``str`` is the canonical notation.

    ======================  =========================================================
    ``base``                f itself
    ``limit``               f'(x) x, where the q-activation tends to as λ and φ vanish
    ``c0.02``, ``a5@0.25``  the q-activation with λ by that schedule
    ``n0.001``              f itself, and Gaussian noise of variance η / (1 + t)^0.55
                            on the gradients of step t = 0, 1, ... (η = 0.001)
    ======================  =========================================================

    Example:
        >>> parse_setting("a1").lam(epoch=3)
        0.5
        >>> str(parse_setting("n1e-3"))
        'n0.001'
    """

    kind: str  # "base", "limit", "q" or "gradient-noise"
    schedule: Schedule | None = None
    eta: float = 0.0

    def lam(self, epoch: int) -> float:
        """λ at epoch 1, 2, ...; 0 where nothing is drawn."""
        return 0.0 if self.schedule is None else self.schedule(epoch)

    def __str__(self) -> str:
        if self.kind == "gradient-noise":
            return "n" + str(Constant(self.eta)).removeprefix("c")
        return self.kind if self.schedule is None else str(self.schedule)


def parse_setting(text: str) -> Setting:
    """Reads the notation of a setting; the inverse of ``str``."""
    if text in ("base", "limit"):
        return Setting(text)
    try:
        if text.startswith("n"):  # a number as in c0.001
            setting = Setting("gradient-noise", eta=parse_schedule(f"c{text[1:]}")(1))
        else:
            setting = Setting("q", parse_schedule(text))
        if max(setting.eta, setting.lam(1)) > LARGEST:
            raise ValueError
        return setting
    except ValueError:
        raise StudyError(
            f"cannot read the setting {text!r}; write 'base', 'limit', 'c<lam>' (constant), "
            "'a<lam0>' or 'a<lam0>@<gamma>' (annealed) or 'n<eta>' (noise on the gradients), "
            f"for example 'c0.02', 'a1', 'a2@0.25' or 'n0.001', with numbers up to {LARGEST:g}"
        ) from None


@dataclass(frozen=True, order=True)
class Run:
    """One training, whole: everything that its results depend on but the number of epochs."""

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

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            if field.type is float:  # so that equal runs, of 1 and of 1.0, have one id
                object.__setattr__(self, field.name, float(getattr(self, field.name)))

    @functools.cached_property
    def id(self) -> str:
        """16 hexadecimal digits that name the run by its content, in every store and for good."""
        content = json.dumps(dataclasses.asdict(self), sort_keys=True)
        return hashlib.sha256(content.encode()).hexdigest()[:16]

    @property
    def protocol(self) -> str:
        """In words what departs from the paper's protocol for the network; "" if nothing does."""
        batch_size, learning_rate = PAPER_PROTOCOL.get(self.network, (None, None))
        usual = {
            "batch_size": (batch_size, "batch size"),
            "learning_rate": (learning_rate, "learning rate"),
            "learning_rate_decay": (1e-6, "learning rate decay"),
            "phi": (1e-3, "φ"),
        }
        return ", ".join(
            f"{words} {getattr(self, name)}"
            for name, (value, words) in usual.items()
            if getattr(self, name) != value
        )

    @property
    def cell(self) -> tuple[str, str, bool, str, str]:
        """What settings are compared within: all that a run depends on but setting and seed."""
        return self.dataset, self.network, self.dropout, self.activation, self.protocol


def packable(run: Run) -> tuple[object, ...]:
    """Runs of which this is equal may share a pack."""
    protocol = run.batch_size, run.learning_rate, run.learning_rate_decay, run.phi
    return run.dataset, run.network, run.dropout, *protocol


@dataclass(frozen=True)
class Epoch:
    """What is recorded of one run after one epoch.

    Losses and accuracies without a suffix are in the mode ``"sample"``, as in the paper's code;
    for settings without noise all modes are alike. The training loss in the limit takes as long as
    the training loss itself, so it is recorded in every tenth epoch only, and else NaN.
    ``seconds`` is the time of the pack's epoch, evaluation included, divided among its runs. A run
    whose loss is no longer finite has diverged and ends there.
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
