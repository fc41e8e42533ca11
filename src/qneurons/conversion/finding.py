"""Finds the activations of a model: torch's, those of other libraries, and a user's own."""

import itertools
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

import torch
from torch import nn

from qneurons.activations import (
    Activation,
    ActivationLike,
    from_function,
    from_module,
    resolve,
    rows,
)
from qneurons.modules import QActivation, QLimit

Selector = str | type[nn.Module]
Alias = Mapping[type[nn.Module] | Callable[..., Any], ActivationLike]

# How other libraries (transformers, timm, …) call rows of the table, in the spelling of _spelling.
_OTHER_NAMES = {
    "swish": "silu",
    "newgelu": "gelu_tanh",
    "gelunew": "gelu_tanh",
    "fastgelu": "gelu_tanh",
    "gelufast": "gelu_tanh",
    "accurategelu": "gelu_tanh",
    "pytorchgelutanh": "gelu_tanh",
    "gelupytorchtanh": "gelu_tanh",
    "gelupythontanh": "gelu_tanh",
    "geluaccurate": "gelu_tanh",
    "gelupython": "gelu",
    "relusquared": "relu2",
    "squaredrelu": "relu2",
}


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
        return selector in (self.row.module, type(self.old))  # not isinstance: ReLU6 is a Hardtanh


def find_activations(model: nn.Module, alias: Alias) -> list[FoundActivation]:
    """Lists the activations that can be replaced; a shared one is listed once for every parent."""
    own_row = row_of(model, alias)
    if own_row is not None:
        return [FoundActivation("", None, "", model, own_row)]
    return [
        FoundActivation(f"{prefix}.{name}" if prefix else name, parent, name, old, row)
        for prefix, parent in outside_activations(model, alias)
        # named_children would list a shared module only once.
        for name, old in {**parent._modules, **vars(parent)}.items()
        if (row := row_of(old, alias)) is not None
    ]


def outside_activations(model: nn.Module, alias: Alias) -> Iterator[tuple[str, nn.Module]]:
    """The modules and their paths, without activations, q-activations and their submodules."""
    inside = {
        part
        for module in model.modules()
        if row_of(module, alias) or isinstance(module, QActivation | QLimit)
        for part in module.modules()
    }
    return ((path, module) for path, module in model.named_modules() if module not in inside)


def row_of(member: Any, alias: Alias) -> Activation | None:
    """The row that a module or a function computes, if it is an activation that is known."""
    row: Activation | None
    key = type(member) if isinstance(member, nn.Module) else member
    if any(key is known for known in alias):
        row = resolve(alias[key])
        if not _computes(member, row):
            raise ValueError(
                f"alias says that {_name_of(member)} computes {row}, but it does not; name the "
                "activation that it computes, or add your own with qneurons.register"
            )
        return row
    try:
        row = from_module(member) if isinstance(member, nn.Module) else from_function(member)
    except (TypeError, ValueError):  # unsupported parameters, as in nn.Hardtanh(0, inf)
        return None
    row = row or _by_foreign_name(member)
    if row is not None and isinstance(member, nn.Module) and _holds_tensors(member):
        return None  # they would be lost
    # nn.Identity is a placeholder, and the q-activation of the identity is the identity.
    return row if row is not None and row.name != "identity" else None


def _by_foreign_name(member: Any) -> Activation | None:
    """The row whose name an activation of another library has, if it computes that row.

    The name alone decides which row is tried, so that no library need be imported.
    """
    if not callable(member) or isinstance(member, type):
        return None
    row = row_called(_name_of(member))
    return row if row is not None and _computes(member, row) else None


def name_called(place: FoundActivation) -> str | None:
    """The attribute by which a module of transformers calls its activation, if it does so by name.

    Mamba and its like hold a module too, but call ``ACT2FN[self.activation]``.
    """
    libraries = {cls.__module__.partition(".")[0] for cls in type(place.parent).__mro__}
    if "transformers" not in libraries:
        return None
    for name, value in vars(place.parent).items():
        if isinstance(value, str) and row_called(value) == place.row:
            return f"{name}={value!r}"
    return None


def _holds_tensors(module: nn.Module) -> bool:
    tensors = itertools.chain(module.parameters(), module.buffers())
    return next(tensors, None) is not None


def row_called(name: str) -> Activation | None:
    """The row that another library calls so, as ``"gelu_new"`` or ``"SiLUActivation"``."""
    spelling = _spelling(name)
    spelling = _OTHER_NAMES.get(spelling, spelling)
    return next((row for row in rows() if spelling in (row.name, _spelling(row.name))), None)


def _name_of(member: Any) -> str:
    return str(getattr(member, "__name__", type(member).__name__))


def _spelling(name: str) -> str:
    # transformers says SiLUActivation, and timm SwishMe for a version that saves memory.
    return re.sub("_|activation$|me$", "", name.lower())


def _computes(member: Any, row: Activation) -> bool:
    """True if ``member``, which has no parameters or buffers to lose, computes the row's f."""
    x = torch.linspace(-8, 8, 97, dtype=torch.float64, device="cpu")
    call = member
    if isinstance(member, nn.Module):
        call = member.forward  # not the module itself, whose hooks would run
        if member.state_dict():
            return False
    try:
        with torch.no_grad():
            y = call(x.clone())
    except Exception:  # whatever a stranger's code may raise: it is no such function
        return False
    if not isinstance(y, torch.Tensor) or y.shape != x.shape:
        return False
    return torch.allclose(y.to(x), row(x), rtol=1e-5, atol=1e-6)
