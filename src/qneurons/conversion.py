"""Replaces the activations of a model by q-activations."""

import dis
import inspect
import logging
import warnings
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import partial
from types import CodeType
from typing import Any

from torch import nn

from qneurons.activations import Activation, from_function, from_module, rows
from qneurons.arguments import Mode
from qneurons.functional import LAM
from qneurons.modules import CLASSES, QActivation, QLimit
from qneurons.schedules import Constant, parse_schedule

logger = logging.getLogger("qneurons")

Selector = str | type[nn.Module]


def convert(
    model: nn.Module,
    lam: float | str = LAM,
    phi: float = 1e-3,
    eval_mode: Mode = "limit",
    *,
    include: Selector | Iterable[Selector] = ("*",),
    exclude: Selector | Iterable[Selector] = (),
) -> nn.Module:
    """Replaces the activations of a model by q-activations, or by their limits, in place.

    At any depth it replaces activation modules, keeping their parameters, and activation functions
    that a module holds as an attribute, as ``nn.TransformerEncoderLayer`` does. A shared module
    stays shared, and ``nn.Identity`` is left alone. Functions that ``forward`` calls in its code,
    the gates of recurrent layers and activations that are not in the table cannot be replaced; a
    warning names them. Each replacement is logged to the logger ``"qneurons"`` at level INFO.

    Args:
        model: the model; it is changed.
        lam: λ, or a setting: ``"c0.1"`` is a constant λ, ``"a1"`` is λ annealed from 1, ``"a1/20"``
            the same over 20 epochs, and ``"limit"`` is :class:`QLimit`, without noise, for which
            ``phi`` and ``eval_mode`` have no meaning. After ``"a1"``, ``LambdaScheduler(model)``
            anneals.
        phi, eval_mode: as in :class:`QActivation`.
        include, exclude: which activations to replace: patterns for their names in the model, as in
            ``"features.*"``; rows of the table, as in ``"relu"``; or module classes.

    Returns:
        the model, or the new module if the model is itself an activation.

    Example:
        >>> model = nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 2), nn.ELU(alpha=0.5))
        >>> convert(model, lam=0.1, exclude=["relu"])
        Sequential(
          (0): Linear(in_features=4, out_features=3, bias=True)
          (1): ReLU()
          (2): Linear(in_features=3, out_features=2, bias=True)
          (3): QELU(alpha=0.5, lam=0.1, phi=0.001, eval_mode='limit')
        )
    """
    if not isinstance(model, nn.Module):
        raise TypeError(
            f"model must be a module, got {type(model).__name__}; for a function use q_activation"
        )
    make = _maker(lam, phi, eval_mode)
    chosen = choose_activations(model, include, exclude)
    unconverted = describe_unconverted(model)
    converted = replace_activations(model, chosen, make)
    if unconverted and converted is model:
        warnings.warn(f"not converted: {'; '.join(unconverted)}", stacklevel=2)
    return converted


def choose_activations(
    model: nn.Module,
    include: Selector | Iterable[Selector] = ("*",),
    exclude: Selector | Iterable[Selector] = (),
) -> "list[FoundActivation]":
    """The activations of a model that :func:`convert` replaces; raises if there are none."""
    found = find_activations(model)
    selectors = _check_selectors("include", include), _check_selectors("exclude", exclude)
    chosen = _select(found, *selectors)
    if not chosen:
        raise ValueError(_nothing_to_convert(found, describe_unconverted(model)))
    return chosen


def replace_activations(
    model: nn.Module,
    chosen: "list[FoundActivation]",
    make: Callable[[Activation], nn.Module],
) -> nn.Module:
    """Puts what ``make`` makes of its row in the place of every chosen activation."""
    device = next((parameter.device for parameter in model.parameters()), None)
    converted: dict[nn.Module, nn.Module] = {}
    for place in chosen:
        new = make(place.row)
        owner = place.old if isinstance(place.old, nn.Module) else place.parent
        new.to(device).train(owner is None or owner.training)
        if isinstance(place.old, nn.Module):
            new = converted.setdefault(place.old, new)
        logger.info("%s: %s becomes %s", place.path or "the model", place.row, new)
        if place.parent is None:
            return new
        _replace(place.parent, place.name, place.old, new)
    _disable_nested_tensors(model)
    return model


def _maker(
    setting: float | str, phi: float, eval_mode: Mode
) -> Callable[[Activation], QActivation | QLimit]:
    """Reads the setting, and gives a function that makes the module of a row in it."""
    if setting == "limit":
        return QLimit
    if isinstance(setting, str):
        try:
            schedule = parse_schedule(setting)
        except ValueError as error:
            raise ValueError(
                f"unknown setting {setting!r}; write 'limit', 'c<lam>' (a constant), 'a<lam0>' "
                "(annealed), 'a<lam0>@<gamma>' or 'a<lam0>/<epochs>', for example 'c0.1', 'a1' or "
                "'a1/20'"
            ) from error
        lam, annealing = schedule(epoch=1), None if isinstance(schedule, Constant) else schedule
    else:
        lam, annealing = setting, None

    def make(row: Activation) -> QActivation:
        own: Callable[..., QActivation] = CLASSES.get(row.name) or partial(QActivation, row.name)
        new = own(lam=lam, phi=phi, eval_mode=eval_mode, **row.parameters)
        new.schedule = annealing
        return new

    return make


@dataclass(frozen=True)
class FoundActivation:
    """An activation in a model: ``old``, at ``parent.name``, computes ``row``."""

    path: str
    parent: nn.Module | None
    name: str
    old: Any
    row: Activation

    def matches(self, selector: Selector) -> bool:
        if isinstance(selector, str):
            return self.row.name == selector or fnmatchcase(self.path, selector)
        return self.row.module is selector  # not isinstance: ReLU6 is a Hardtanh


def find_activations(model: nn.Module) -> list[FoundActivation]:
    """Lists the activations that can be replaced; a shared one is listed once for every parent."""
    own_row = _row(model)
    if own_row is not None:
        return [FoundActivation("", None, "", model, own_row)]
    return [
        FoundActivation(f"{prefix}.{name}" if prefix else name, parent, name, old, row)
        for prefix, parent in _outside_activations(model)
        # named_children would list a shared module only once.
        for name, old in {**parent._modules, **vars(parent)}.items()
        if (row := _row(old)) is not None
    ]


def _row(member: Any) -> Activation | None:
    try:
        row = from_module(member) if isinstance(member, nn.Module) else from_function(member)
    except (TypeError, ValueError):  # unsupported parameters, as in nn.Hardtanh(0, inf)
        return None
    # nn.Identity is a placeholder, and the q-activation of the identity is the identity.
    return row if row is not None and row.name != "identity" else None


def _outside_activations(model: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    """The modules and their paths, without activations, q-activations and their submodules."""
    inside = {
        part
        for module in model.modules()
        if _row(module) or isinstance(module, QActivation | QLimit)
        for part in module.modules()
    }
    return ((path, module) for path, module in model.named_modules() if module not in inside)


def _check_selectors(name: str, selectors: Any) -> list[Selector]:
    single = isinstance(selectors, str | type) or not isinstance(selectors, Iterable)
    selectors = [selectors] if single else list(selectors)
    for selector in selectors:
        if not isinstance(selector, str | type):
            raise TypeError(
                f"{name} takes patterns, names of activations and module classes, "
                f'got {selector!r}; for example "features.*", "relu" or nn.ReLU'
            )
    return selectors


def _select(
    found: list[FoundActivation], include: list[Selector], exclude: list[Selector]
) -> list[FoundActivation]:
    for selector in include + exclude:
        if selector != "*" and found and not any(place.matches(selector) for place in found):
            raise ValueError(f"nothing matches {selector!r}; the model has {_names(found)}")
    return [
        place
        for place in found
        if any(map(place.matches, include)) and not any(map(place.matches, exclude))
    ]


def _names(found: list[FoundActivation]) -> str:
    return ", ".join(f"{place.path or 'the model'} ({place.row.name})" for place in found)


OTHER_ACTIVATIONS = (
    nn.PReLU,
    nn.RReLU,
    nn.Hardsigmoid,
    nn.Hardshrink,
    nn.Softshrink,
    nn.Tanhshrink,
    nn.LogSigmoid,
    nn.Threshold,
)


def describe_unconverted(model: nn.Module) -> list[str]:
    """Describes the activations of a model that cannot be replaced: in code, or not in the table.

    Those in code are recognised by the names in the methods of a class, except attributes of
    ``self``. So any function with the name of an activation is taken for one, and an activation
    that a helper function calls is missed.
    """
    functions = {function.__name__ for row in rows() for function in row.functions}
    of_rows = {row.module for row in rows()} - {nn.Identity}
    reports: dict[Any, str] = {}
    for path, module in _outside_activations(model):
        cls = type(module)
        if isinstance(module, nn.RNNBase | nn.RNNCellBase):
            reports.setdefault(cls, f"the gates of {cls.__name__} ({path or 'the model'})")
        elif cls in of_rows or cls in OTHER_ACTIVATIONS:
            why = "with unsupported parameters" if cls in of_rows else "not in the table"
            reports.setdefault(str(module), f"{module} ({path or 'the model'}), {why}")
        elif not cls.__module__.startswith("torch.nn."):
            for method, code in _methods(cls):
                called = sorted(functions.intersection(_names_used(code, code.co_varnames[:1])))
                if called:
                    reports.setdefault(code, f"{', '.join(called)} in {cls.__name__}.{method}")
        for name, value in vars(module).items():
            held = value.values() if isinstance(value, dict) else value
            is_public = not name.startswith("_") and isinstance(value, list | tuple | dict)
            if is_public and any(_row(member) for member in held):
                kind = type(value).__name__
                reports.setdefault((cls, name), f"the {kind} {name} of {cls.__name__}")
    return list(reports.values())


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


def _nothing_to_convert(found: list[FoundActivation], unconverted: list[str]) -> str:
    if found:
        return f"no activation left to convert; found {_names(found)}: loosen include or exclude"
    message = "the model has no activation module to convert"
    if unconverted:
        message += f", only {'; '.join(unconverted)}: "
        message += "replace each by a module such as nn.ReLU, or call q_relu there"
    modules = dict.fromkeys(row.module for row in rows() if row.module not in (None, nn.Identity))
    return f"{message}. Known modules: {', '.join(module.__name__ for module in modules)}"


def _replace(parent: nn.Module, name: str, old: Any, new: nn.Module) -> None:
    setattr(parent, name, new)
    if isinstance(old, nn.Module):
        vars(new).update({key: hooks for key, hooks in vars(old).items() if "_hooks" in key})
    if hasattr(parent, "activation_relu_or_gelu"):
        # The fused inference path of nn.TransformerEncoderLayer would use the old activation.
        parent.activation_relu_or_gelu = 0  # type: ignore[assignment]


def _disable_nested_tensors(model: nn.Module) -> None:
    # nn.TransformerEncoder does the same when its layers cannot take the fused path.
    for module in model.modules():
        if isinstance(module, nn.TransformerEncoder) and not all(
            getattr(layer, "activation_relu_or_gelu", 0) for layer in module.layers
        ):
            module.use_nested_tensor = False
