"""Stochastic activations built on Jackson's q-derivative, as drop-in PyTorch modules."""

from typing import TYPE_CHECKING, Any

from qneurons import activations, calculus, functional, modules, moments, schedules
from qneurons.activations import Activation, register, resolve
from qneurons.conversion import convert
from qneurons.functional import q_activation, q_difference, q_limit, q_mean
from qneurons.modules import QActivation
from qneurons.noise import QLaw
from qneurons.scheduler import LambdaScheduler
from qneurons.schedules import Annealed, Constant, Schedule, parse_schedule

__version__ = "0.1.0"

# One function and one class for every row of the table.
_FROM_TABLE = {**functional.SHORT_NAMES, **{cls.__name__: cls for cls in modules.CLASSES.values()}}
globals().update(_FROM_TABLE)

__all__ = [
    "Activation",
    "Annealed",
    "Constant",
    "LambdaScheduler",
    "QActivation",
    "QLaw",
    "Schedule",
    "activations",
    "calculus",
    "convert",
    "functional",
    "modules",
    "moments",
    "parse_schedule",
    "q_activation",
    "q_difference",
    "q_limit",
    "q_mean",
    "register",
    "resolve",
    "schedules",
    *_FROM_TABLE,
]

if TYPE_CHECKING:

    def __getattr__(name: str) -> Any: ...  # the names in _FROM_TABLE
