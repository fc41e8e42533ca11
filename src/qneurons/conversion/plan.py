"""What ``convert`` will do to a model, before it is done: :func:`conversion_plan`."""

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from torch import nn

from qneurons.activations import rows
from qneurons.conversion.describing import Unconverted, describe_unconverted, row_in_code
from qneurons.conversion.finding import (
    Alias,
    FoundActivation,
    Selector,
    find_activations,
    name_called,
)
from qneurons.conversion.uses import find_use, is_bounded
from qneurons.modules import QActivation, QLimit

_LOOKED_UP = "not called, because forward looks up"
_WHY_LEFT = {
    "gate": "a gate, because its result multiplies another tensor",
    "output": "bounded, and its result leaves the model",
    "probability": "bounded, and a logarithm, a root or a loss needs it between 0 and 1",
    "unknown": "bounded, and whether it is a gate could not be told",
}


@dataclass(frozen=True)
class ConversionPlan:
    """What ``convert`` replaces and what it leaves. ``print(plan)`` shows it as a table.

    Attributes:
        replaced: the activations that are replaced.
        left: gates, outputs and what cannot be replaced, with the reason. ``convert`` warns of it.
        excluded: the activations that ``include`` and ``exclude`` leave.
        converted: the q-activations that the model has already, by their names.
    """

    replaced: list[FoundActivation]
    left: list[Unconverted]
    excluded: list[FoundActivation] = field(default_factory=list)
    converted: dict[str, QActivation | QLimit] = field(default_factory=dict)

    def __str__(self) -> str:
        lines = [
            *_grouped((str(place.row), place.path, "is replaced") for place in self.replaced),
            *_grouped((str(place.row), place.path, "is excluded") for place in self.excluded),
            *_grouped((str(new), path, "is converted") for path, new in self.converted.items()),
            *((*line[:3], f"is left: {line[3]}") for line in self._left_lines()),
        ]
        if not lines:
            return "no activations"
        widths = [max(len(line[column]) for line in lines) for column in range(3)]
        return "\n".join(
            f"{count:>{widths[0]}}  {where:{widths[1]}}  {what:{widths[2]}}  {fate}"
            for count, where, what, fate in lines
        )

    def describe_left(self) -> str:
        """What is left and why, in a sentence."""
        return "; ".join(
            f"{what} ({where}{'' if count == '1' else f', {count} times'}): {why}"
            for count, where, what, why in self._left_lines()
        )

    def _left_lines(self) -> list[tuple[str, str, str, str]]:
        return _grouped((one.what, one.where, one.why) for one in self.left)


def _grouped(entries: Iterable[tuple[str, str, str]]) -> list[tuple[str, str, str, str]]:
    """One line for entries whose places differ in numbers only, which become stars."""
    entries = list(entries)
    groups = Counter((what, re.sub(r"\d+", "*", where), fate) for what, where, fate in entries)
    single = {(what, re.sub(r"\d+", "*", where), fate): where for what, where, fate in entries}
    return [
        (str(count), (where if count > 1 else single[key]) or "the model", what, fate)
        for key, count in groups.items()
        for what, where, fate in [key]
    ]


def conversion_plan(
    model: nn.Module,
    *,
    include: Selector | Iterable[Selector] = ("*",),
    exclude: Selector | Iterable[Selector] = (),
    alias: Alias | None = None,
) -> ConversionPlan:
    """Says what :func:`convert` would do with the same arguments. The model is not changed.

    Args:
        model, include, exclude, alias: as in :func:`convert`.

    Example:
        >>> gated = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 1), nn.Sigmoid())
        >>> print(conversion_plan(gated))
        1  1  relu     is replaced
        1  3  sigmoid  is left: bounded, and its result leaves the model
    """
    if not isinstance(model, nn.Module):
        raise TypeError(
            f"model must be a module, got {type(model).__name__}; for a function use q_activation"
        )
    alias = _check_alias(alias or {})
    chosen_by = _check_selectors("include", include), _check_selectors("exclude", exclude)
    found = find_activations(model, alias)
    chosen, excluded = _select(found, *chosen_by)
    _check_alias_is_used(alias, found)
    asked_for = [selector for selector in chosen_by[0] if selector != "*"]
    replaced, left = [], []
    for place in chosen:
        why = None if any(map(place.matches, asked_for)) else _why_left(model, place)
        if why is None:
            replaced.append(place)
        else:
            left.append(Unconverted(str(place.row), place.path, why))
    left += describe_unconverted(model, alias)
    made = {
        path: module
        for path, module in model.named_modules()
        if isinstance(module, QActivation | QLimit)
    }
    return ConversionPlan(replaced, left, excluded, made)


def _why_left(model: nn.Module, place: FoundActivation) -> str | None:
    if (name := name_called(place)) is not None:
        return f"{_LOOKED_UP} {name}"
    if place.parent is None or not is_bounded(place.row):
        return None
    return _WHY_LEFT.get(find_use(model, place.path, place.old))


def nothing_to_convert(plan: ConversionPlan) -> str:
    """Says why the plan replaces nothing, and what to do."""
    left = f"; left: {plan.describe_left()}. {_advice(plan.left)}" if plan.left else ""
    if plan.converted and not plan.excluded:
        return (
            f"the model is already converted: it has {len(plan.converted)} q-activations; "
            "qneurons.configure(model, lam=...) changes them, qneurons.revert(model) undoes it"
            f"{left}"
        )
    if plan.excluded:
        names = _names(plan.excluded)
        return f"no activation left to convert; found {names}: loosen include or exclude{left}"
    modules = dict.fromkeys(row.module for row in rows() if row.module not in (None, nn.Identity))
    known = ", ".join(module.__name__ for module in modules)
    return f"the model has no activation module to convert{left}. Known modules: {known}"


def _names(places: list[FoundActivation]) -> str:
    return ", ".join(f"{place.path or 'the model'} ({place.row.name})" for place in places)


def _advice(left: list[Unconverted]) -> str:
    for one in left:
        row = row_in_code(one.what.partition(",")[0])
        if one.why == "called in code" and row is not None:
            module = f"nn.{row.module.__name__}" if row.module else f"QActivation({row.name!r})"
            return f"Replace each by a module such as {module}, or call qneurons.q_{row.name} there"
    for one in left:
        if one.why in _WHY_LEFT.values():
            return f"Name those to convert in include, as include={one.where!r}"
        if one.why.startswith(_LOOKED_UP):
            return "For the limit build the model with a name, as hidden_act='limit_silu'"
    return "Give a class of your own in alias, as alias={MySwish: 'silu'}"


def _check_alias(alias: Any) -> Alias:
    for known in alias:
        if not callable(known):
            raise TypeError(
                f"alias maps module classes and functions to activations, got {known!r}; for "
                "example alias={MySwish: 'silu'}"
            )
    return alias


def _check_alias_is_used(alias: Alias, found: list[FoundActivation]) -> None:
    for known in alias:
        if not any(known in (type(place.old), place.old) for place in found):
            raise ValueError(f"alias: the model has no {known.__name__}")


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
) -> tuple[list[FoundActivation], list[FoundActivation]]:
    """The activations that the selectors choose, and the others."""
    for selector in include + exclude:
        if selector != "*" and found and not any(place.matches(selector) for place in found):
            raise ValueError(f"nothing matches {selector!r}; the model has {_names(found)}")
    chosen = [
        place
        for place in found
        if any(map(place.matches, include)) and not any(map(place.matches, exclude))
    ]
    return chosen, [place for place in found if place not in chosen]
