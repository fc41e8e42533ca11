"""The activations of a model: finding them, choosing among them, putting others in their place."""

from collections.abc import Iterable
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

from torch import nn

from qneurons.activations import Activation, from_function, from_module, rows

Selector = str | type[nn.Module]


@dataclass(frozen=True)
class Place:
    """An activation in a model: ``parent.name`` is ``old``, which is a row of the table."""

    path: str
    parent: nn.Module | None
    name: str
    old: Any
    row: Activation

    @property
    def training(self) -> bool:
        owner = self.old if isinstance(self.old, nn.Module) else self.parent
        return bool(owner.training) if owner is not None else True

    def matches(self, selector: Selector) -> bool:
        if isinstance(selector, str):
            return self.row.name == selector or fnmatchcase(self.path, selector)
        return isinstance(self.old, selector)


def activations(model: nn.Module) -> list[Place]:
    """Lists the activations that can be replaced, a shared one once for every place."""
    own_row = from_module(model)
    if own_row is not None:
        return [Place("", None, "", model, own_row)]
    places = []
    for prefix, parent in model.named_modules():
        # Not named_children, which leaves out a module's second place.
        members = {**parent._modules, **vars(parent)}
        for name, old in members.items():
            row = from_module(old) if isinstance(old, nn.Module) else from_function(old, {})
            if row is not None and row.name != "identity":
                path = f"{prefix}.{name}" if prefix else name
                places.append(Place(path, parent, name, old, row))
    return places


def select(
    places: list[Place], include: Iterable[Selector], exclude: Iterable[Selector]
) -> list[Place]:
    include, exclude = _selectors("include", include), _selectors("exclude", exclude)
    return [
        place
        for place in places
        if any(map(place.matches, include)) and not any(map(place.matches, exclude))
    ]


def _selectors(name: str, selectors: Iterable[Selector]) -> list[Selector]:
    if isinstance(selectors, str | type):
        selectors = [selectors]
    selectors = list(selectors)
    for selector in selectors:
        if not isinstance(selector, str | type):
            raise TypeError(
                f"{name} takes patterns, names of activations and module classes, "
                f'got {selector!r}; for example "features.*", "relu" or nn.ReLU'
            )
    return selectors


def put(place: Place, new: nn.Module) -> None:
    setattr(place.parent, place.name, new)
    if hasattr(place.parent, "activation_relu_or_gelu"):
        # The fused inference path of nn.TransformerEncoderLayer would keep its own activation.
        place.parent.activation_relu_or_gelu = 0  # type: ignore[union-attr]


def unseen(model: nn.Module) -> list[str]:
    """Names the activations that a model computes in code, where they cannot be replaced.

    They are recognised by the names that the code of ``forward`` uses: another function of the same
    name is taken for an activation, and one behind a helper function is not seen.
    """
    functions = {function.__name__ for row in rows() for function in row.functions}
    reports: dict[type[nn.Module], str] = {}
    for path, module in model.named_modules():
        cls = type(module)
        if isinstance(module, nn.RNNBase | nn.RNNCellBase):
            reports.setdefault(cls, f"the gates of {cls.__name__} ({path or 'the model'})")
        elif not cls.__module__.startswith(("torch.nn.", "qneurons.")):
            code = getattr(cls.forward, "__code__", None)
            called = sorted(functions.intersection(code.co_names if code else ()))
            if called:
                reports.setdefault(cls, f"{', '.join(called)} in {cls.__name__}.forward")
    return list(reports.values())


def nothing_chosen(found: list[Place], hidden: list[str]) -> str:
    """What to tell someone whose model has nothing to convert."""
    if found:
        names = ", ".join(f"{place.path} ({place.row.name})" for place in found)
        return f"no activation left to convert; found {names}: loosen include or exclude"
    message = "the model has no activation module to convert"
    if hidden:
        message += (
            f", only {'; '.join(hidden)}: make these modules, as nn.ReLU, or call q_relu there"
        )
    known = dict.fromkeys(row.module.__name__ for row in _convertible() if row.module)
    return f"{message}. Known modules: {', '.join(known)}"


def _convertible() -> list[Activation]:
    # nn.Identity is a placeholder, and the q-activation of the identity is the identity.
    return [row for row in rows() if row.name != "identity"]
