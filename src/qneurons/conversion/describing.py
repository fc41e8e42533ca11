"""Describes the activations of a model that cannot be replaced: in code, or not in the table."""

import dis
import inspect
from collections.abc import Iterator
from dataclasses import dataclass
from types import CodeType
from typing import Any

from torch import nn

from qneurons.activations import Activation, rows
from qneurons.conversion.finding import Alias, outside_activations, row_of
from qneurons.conversion.uses import functions_called, is_bounded

OTHER_ACTIVATIONS = (
    nn.PReLU,
    nn.RReLU,
    nn.Hardshrink,
    nn.Softshrink,
    nn.Tanhshrink,
    nn.LogSigmoid,
    nn.Threshold,
)


@dataclass(frozen=True)
class Unconverted:
    """An activation that stays: what it is, where in the model or in which code, and why."""

    what: str
    where: str
    why: str


def describe_unconverted(model: nn.Module, alias: Alias) -> list[Unconverted]:
    """Describes the activations of a model that cannot be replaced.

    Functions in code are found by tracing a module. In a ``forward`` that cannot be traced they are
    recognised by the names in the methods of the class, except attributes of ``self``. There any
    function with the name of an activation is taken for one, and an activation that a helper
    function calls is missed. Bounded functions that serve as gates are not described.
    """
    reports: dict[Any, Unconverted] = {}
    of_rows = {row.module for row in rows() if row.module} - {nn.Identity}
    for path, module in outside_activations(model, alias):
        cls, where = type(module), path or "the model"
        if isinstance(module, nn.RNNBase | nn.RNNCellBase):
            what = f"the gates of {cls.__name__}"
            reports[path] = Unconverted(what, where, "part of torch's own layer")
        elif isinstance(module, (*of_rows, *OTHER_ACTIVATIONS)):
            why = "its parameters are not supported" if cls in of_rows else "not in the table"
            reports[path] = Unconverted(str(module), where, why)
        elif not cls.__module__.startswith("torch.nn."):
            for method, names in _functions_in_code(module).items():
                what, place = ", ".join(names), f"{cls.__name__}.{method}"
                reports.setdefault(place, Unconverted(what, place, "called in code"))
        for name, value in vars(module).items():
            held = value.values() if isinstance(value, dict) else value
            is_public = not name.startswith("_") and isinstance(value, list | tuple | dict)
            if is_public and any(row_of(member, alias) for member in held):
                what = f"the {type(value).__name__} {name}"
                report = Unconverted(what, cls.__name__, "held in a container")
                reports.setdefault((cls, name), report)
    return list(reports.values())


def row_in_code(name: str) -> Activation | None:
    """The row of the activation function or module that has this name in code."""
    return next((row for row in rows() if name in _names_in_code(row)), None)


def _names_in_code(row: Activation) -> set[str]:
    own = {row.module.__name__} if row.module and row.name != "identity" else set()
    return own | {function.__name__ for function in row.functions}


def _functions_in_code(module: nn.Module) -> dict[str, list[str]]:
    """The activation functions that each method of a module calls."""
    functions = {function.__name__ for row in rows() for function in row.functions}
    anything = set().union(*map(_names_in_code, rows()))
    found = {}
    for method, code in _methods(type(module)):
        used = set(_names_used(code, code.co_varnames[:1]))
        # Other methods may make modules that are found. Sine with cosine encodes positions.
        known = anything if method == "forward" else functions
        if called := (used & known) - ({"sin"} if "cos" in used else set()):
            found[method] = sorted(called)
    if not found or _is_alone(module):
        return found
    traced = functions_called(module)
    if traced is None:
        return found
    called = {name for name, use in traced if not (use == "gate" and _is_bounded(name))}
    by_method = {method: [n for n in names if n in called] for method, names in found.items()}
    return {method: names for method, names in by_method.items() if names}


def _is_alone(module: nn.Module) -> bool:
    """True for a module that may itself be an activation, as one that computes x sigmoid(x)."""
    return next(module.children(), None) is None and not module.state_dict()


def _is_bounded(name: str) -> bool:
    row = row_in_code(name)
    return row is not None and is_bounded(row)


def _methods(cls: type[nn.Module]) -> Iterator[tuple[str, CodeType]]:
    """``forward`` and the methods that torch does not define, except the constructor."""
    own = (base for base in cls.__mro__ if not base.__module__.startswith("torch."))
    names = dict.fromkeys(["forward", *(name for base in own for name in vars(base))])
    for name in names:
        member = getattr(cls, name, None)
        code = getattr(inspect.unwrap(member) if callable(member) else None, "__code__", None)
        if isinstance(code, CodeType) and name != "__init__":
            yield name, code


def _names_used(code: CodeType, owner: tuple[str, ...]) -> Iterator[str]:
    """The names of globals and attributes in code, except those reached from its ``owner``."""
    of_owner = False
    for step in dis.get_instructions(code):
        is_attribute = step.opname in ("LOAD_ATTR", "LOAD_METHOD")
        loaded = step.argval if isinstance(step.argval, tuple) else (step.argval,)
        of_owner = loaded[-1:] == owner or (of_owner and is_attribute)
        if isinstance(step.argval, CodeType):  # a comprehension or a lambda
            yield from _names_used(step.argval, owner)
        elif step.opname == "LOAD_GLOBAL" or (is_attribute and not of_owner):
            yield step.argval
