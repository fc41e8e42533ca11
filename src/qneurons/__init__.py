"""Stochastic activations built on Jackson's q-derivative, as drop-in PyTorch modules.

Names are imported on first use, so that ``import qneurons`` does not import torch.
"""

import importlib.util
from typing import TYPE_CHECKING

__version__ = "0.1.0"

if TYPE_CHECKING:
    from qneurons import activations, calculus, functional, modules, moments, noise, schedules
    from qneurons.activations import Activation, register, resolve
    from qneurons.conversion import convert
    from qneurons.functional import (
        q_activation,
        q_celu,
        q_difference,
        q_elu,
        q_gelu,
        q_gelu_tanh,
        q_hardswish,
        q_hardtanh,
        q_identity,
        q_leaky_relu,
        q_limit,
        q_mean,
        q_mish,
        q_relu,
        q_relu6,
        q_selu,
        q_sigmoid,
        q_silu,
        q_sin,
        q_softplus,
        q_softsign,
        q_tanh,
    )
    from qneurons.modules import (
        QCELU,
        QELU,
        QGELU,
        QSELU,
        QActivation,
        QGELUTanh,
        QHardswish,
        QHardtanh,
        QIdentity,
        QLeakyReLU,
        QMish,
        QReLU,
        QReLU6,
        QSigmoid,
        QSiLU,
        QSin,
        QSoftplus,
        QSoftsign,
        QTanh,
    )
    from qneurons.noise import QLaw
    from qneurons.scheduler import LambdaScheduler
    from qneurons.schedules import Annealed, Constant, Schedule, parse_schedule
else:
    # The modules that define the names of __all__, in order of search; the first needs no torch.
    _HOMES = (
        "schedules",
        "activations",
        "noise",
        "functional",
        "modules",
        "conversion",
        "scheduler",
    )

    def __getattr__(name: str) -> object:
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        if name.islower() and importlib.util.find_spec(f"{__name__}.{name}"):
            return importlib.import_module(f"{__name__}.{name}")
        homes = (importlib.import_module(f"{__name__}.{home}") for home in _HOMES)
        value = next(getattr(home, name) for home in homes if hasattr(home, name))
        globals()[name] = value  # __getattr__ is not called for this name again
        return value

    def __dir__() -> list[str]:
        return sorted({*globals(), *__all__})


__all__ = [
    "QCELU",
    "QELU",
    "QGELU",
    "QSELU",
    "Activation",
    "Annealed",
    "Constant",
    "LambdaScheduler",
    "QActivation",
    "QGELUTanh",
    "QHardswish",
    "QHardtanh",
    "QIdentity",
    "QLaw",
    "QLeakyReLU",
    "QMish",
    "QReLU",
    "QReLU6",
    "QSiLU",
    "QSigmoid",
    "QSin",
    "QSoftplus",
    "QSoftsign",
    "QTanh",
    "Schedule",
    "activations",
    "calculus",
    "convert",
    "functional",
    "modules",
    "moments",
    "noise",
    "parse_schedule",
    "q_activation",
    "q_celu",
    "q_difference",
    "q_elu",
    "q_gelu",
    "q_gelu_tanh",
    "q_hardswish",
    "q_hardtanh",
    "q_identity",
    "q_leaky_relu",
    "q_limit",
    "q_mean",
    "q_mish",
    "q_relu",
    "q_relu6",
    "q_selu",
    "q_sigmoid",
    "q_silu",
    "q_sin",
    "q_softplus",
    "q_softsign",
    "q_tanh",
    "register",
    "resolve",
    "schedules",
]
