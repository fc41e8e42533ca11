"""Stochastic activations built on Jackson's q-derivative, as drop-in PyTorch modules.

A name is imported when it is first used, so that ``import qneurons`` does not import torch.
"""

import importlib
from typing import TYPE_CHECKING

__version__ = "0.1.0"

if TYPE_CHECKING:
    from qneurons import (
        activations as activations,
        calculus as calculus,
        functional as functional,
        modules as modules,
        moments as moments,
        noise as noise,
        schedules as schedules,
    )
    from qneurons.activations import (
        Activation as Activation,
        register as register,
        resolve as resolve,
    )
    from qneurons.comparison import Trial as Trial, compare as compare
    from qneurons.conversion import (
        ConversionPlan as ConversionPlan,
        configure as configure,
        conversion_plan as conversion_plan,
        convert as convert,
        revert as revert,
    )
    from qneurons.functional import (
        q_activation as q_activation,
        q_celu as q_celu,
        q_difference as q_difference,
        q_elu as q_elu,
        q_gelu as q_gelu,
        q_gelu_tanh as q_gelu_tanh,
        q_hardsigmoid as q_hardsigmoid,
        q_hardswish as q_hardswish,
        q_hardtanh as q_hardtanh,
        q_identity as q_identity,
        q_leaky_relu as q_leaky_relu,
        q_limit as q_limit,
        q_mean as q_mean,
        q_mish as q_mish,
        q_quick_gelu as q_quick_gelu,
        q_relu as q_relu,
        q_relu2 as q_relu2,
        q_relu6 as q_relu6,
        q_selu as q_selu,
        q_sigmoid as q_sigmoid,
        q_silu as q_silu,
        q_sin as q_sin,
        q_softplus as q_softplus,
        q_softsign as q_softsign,
        q_tanh as q_tanh,
    )
    from qneurons.modules import (
        QCELU as QCELU,
        QELU as QELU,
        QGELU as QGELU,
        QSELU as QSELU,
        QActivation as QActivation,
        QGELUTanh as QGELUTanh,
        QHardsigmoid as QHardsigmoid,
        QHardswish as QHardswish,
        QHardtanh as QHardtanh,
        QIdentity as QIdentity,
        QLeakyReLU as QLeakyReLU,
        QLimit as QLimit,
        QMish as QMish,
        QQuickGELU as QQuickGELU,
        QReLU as QReLU,
        QReLU2 as QReLU2,
        QReLU6 as QReLU6,
        QSigmoid as QSigmoid,
        QSiLU as QSiLU,
        QSin as QSin,
        QSoftplus as QSoftplus,
        QSoftsign as QSoftsign,
        QTanh as QTanh,
    )
    from qneurons.noise import QLaw as QLaw
    from qneurons.scheduler import LambdaScheduler as LambdaScheduler
    from qneurons.schedules import (
        Annealed as Annealed,
        AnnealedOver as AnnealedOver,
        Constant as Constant,
        Ramp as Ramp,
        Schedule as Schedule,
        parse_schedule as parse_schedule,
    )
else:
    _NAMES = {
        "": "activations calculus functional modules moments noise schedules",  # submodules
        "activations": "Activation register resolve",
        "comparison": "Trial compare",
        "conversion": "ConversionPlan configure conversion_plan convert revert",
        "functional": (
            "q_activation q_celu q_difference q_elu q_gelu q_gelu_tanh q_hardsigmoid q_hardswish "
            "q_hardtanh q_identity q_leaky_relu q_limit q_mean q_mish q_quick_gelu q_relu q_relu2 "
            "q_relu6 q_selu q_sigmoid q_silu q_sin q_softplus q_softsign q_tanh"
        ),
        "modules": (
            "QCELU QELU QGELU QSELU QActivation QGELUTanh QHardsigmoid QHardswish QHardtanh "
            "QIdentity QLeakyReLU QLimit QMish QQuickGELU QReLU QReLU2 QReLU6 QSigmoid QSiLU QSin "
            "QSoftplus QSoftsign QTanh"
        ),
        "noise": "QLaw",
        "scheduler": "LambdaScheduler",
        "schedules": "Annealed AnnealedOver Constant Ramp Schedule parse_schedule",
    }
    _HOMES = {name: home for home, names in _NAMES.items() for name in names.split()}
    __all__ = sorted(_HOMES)

    def __getattr__(name: str) -> object:
        if name not in _HOMES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        home = _HOMES[name]
        module = importlib.import_module(f"{__name__}.{home or name}")
        value = getattr(module, name) if home else module
        globals()[name] = value  # __getattr__ is not called for this name again
        return value

    def __dir__() -> list[str]:
        return [*__all__, "__version__"]
