"""Writes q-activations into the configuration from which transformers builds a model again.

Without that ``from_pretrained`` would build the plain model and say nothing. A configuration is
recognised by its methods, so that transformers need not be imported.
"""

from collections.abc import Iterator
from typing import Any

from torch import nn

from qneurons.activations import Activation
from qneurons.conversion.finding import row_called
from qneurons.conversion.making import name_of
from qneurons.conversion.plan import ConversionPlan
from qneurons.modules import QActivation, QLimit


def write_configs(model: nn.Module, plan: ConversionPlan) -> list[str]:
    """Names the activations that were replaced in the configurations that are saved with a model.

    Returns:
        the paths of those that cannot be named: no field is for them, or the same field is for
        activations that are left plain, or that an earlier conversion has made something else.
    """
    if not hasattr(model, "save_pretrained"):
        return []
    left = {one.what.partition(",")[0] for one in plan.left}
    left |= {place.row.name for place in plan.excluded}
    written: dict[tuple[int, str], list[tuple[Any, str, str]]] = {}
    unnamed = []
    for place in plan.replaced:
        config: Any = _saved_config(model, place.path)
        new: Any = model.get_submodule(place.path)
        key = id(config), str(place.row)  # most layers share these
        if key not in written:
            alike = [old for old in plan.converted.values() if old.activation == place.row]
            can_name = config is not None and place.row.name not in left
            can_name = can_name and all(name_of(old) == name_of(new) for old in alike)
            fields = _fields(config, place.row, new) if can_name else []
            written[key] = [(config, field, getattr(config, field)) for field in fields]
            for field in fields:
                setattr(config, field, name_of(new))
        vars(new)["_written"] = written[key]
        if not written[key]:
            unnamed.append(place.path)
    return unnamed


def restore_configs(new: QActivation | QLimit) -> None:
    """Puts back the names of the activation that ``new`` had replaced."""
    for config, field, value in vars(new).get("_written", ()):
        setattr(config, field, value)


def _configs(model: nn.Module) -> Iterator[Any]:
    """The configuration of a model and those inside it."""
    waiting = [getattr(model, "config", None)]
    while waiting:
        config = waiting.pop()
        if hasattr(config, "to_dict"):
            yield config
            waiting += vars(config).values()


def _saved_config(model: nn.Module, path: str) -> Any:
    """The configuration of the nearest parent, which may hold a copy of the one that is saved."""
    parents = [model.get_submodule(path[:end]) for end in range(len(path)) if path[end] == "."]
    own = [getattr(parent, "config", None) for parent in [model, *parents]]
    nearest = next((config for config in reversed(own) if config is not None), None)
    alike = [config for config in _configs(model) if type(config) is type(nearest)]
    return max(alike, key=lambda config: config is nearest, default=None)


def _fields(config: Any, row: Activation, new: QActivation | QLimit) -> list[str]:
    """The fields that name the row, and keep the name of the new one when they are read back."""
    return [
        field
        for field, value in vars(config).items()
        if "act" in field  # hidden_act, activation_function, hidden_activation, …
        and isinstance(value, str)
        and row_called(value) == row
        and _is_read_back(config, field, name_of(new))  # a row of the table, so it has a name
    ]


def _is_read_back(config: Any, field: str, name: str) -> bool:
    """False if the configuration refuses the name, or computes the field from others."""
    try:
        again = type(config)(**config.to_dict() | {field: name})
    except Exception:  # whatever a stranger's checks may raise
        return False
    return getattr(again, field) == name
