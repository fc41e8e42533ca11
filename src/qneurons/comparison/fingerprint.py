"""A hash of the code of a function, to notice that a training was changed."""

import contextlib
import dataclasses
import functools
import hashlib
import inspect
import sys
from argparse import Namespace
from collections.abc import Iterable, Iterator
from pathlib import PurePath
from types import BuiltinFunctionType, CodeType, FunctionType, MethodType, SimpleNamespace
from typing import Any

VERSION = 3  # of what is looked at
# Their repr is the same in every process. bool comes before int, of which it is a subclass.
_CONSTANTS: Any = (bool, int, float, complex, str, bytes, range, PurePath, type(None), type(...))
_INSIDE = {  # what a value consists of, by its exact type
    CodeType: ("co_code", "co_names", "co_varnames", "co_consts"),
    MethodType: ("__func__", "__self__"),
    functools.partial: ("func", "args", "keywords"),
    functools.cached_property: ("func",),
    property: ("fget", "fset", "fdel"),
    slice: ("start", "stop", "step"),
    staticmethod: ("__func__",),
    classmethod: ("__func__",),
}


def fingerprint(function: Any) -> str:
    """A hash of the compiled code of a function and of what it uses from its own module.

    That is functions, classes, constants, containers of these, the attributes of instances of its
    classes, and the names of functions and classes of other modules. None of their code is run, and
    tensors are not looked at. Compiled code leaves comments and formatting out, and exists in a
    notebook too. It differs between versions of Python, so that the version comes first.
    """
    inner = function
    while isinstance(inner, functools.partial):
        inner = inner.func
    text = _Texts(getattr(inspect.unwrap(inner), "__module__", None)).of(function)
    return f"{sys.version_info.major}.{sys.version_info.minor}v{VERSION}-{_digest(text)[:16]}"


def is_changed(one: str, other: str) -> bool:
    """True if two fingerprints differ that the same versions have made."""
    return one != other and one.partition("-")[0] == other.partition("-")[0]


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


class _Texts:
    """Texts of values, which differ if the values or the code behind them do.

    The text of a value is made once. So the work is linear, and ends where a value holds itself.
    Types are asked by ``type``, because ``isinstance`` may run code of the user's.
    """

    def __init__(self, module: str | None) -> None:
        self._module = module
        self._known: dict[int, tuple[Any, str]] = {}  # with the value, so that its id stays its own

    def of(self, value: Any) -> str:
        """Empty for what is not looked at, such as tensors, and instances of other modules."""
        kind = type(value)
        for constant in _CONSTANTS:
            if issubclass(kind, constant):
                return constant.__repr__(value)  # that of a subclass may be the user's
        if id(value) not in self._known:
            self._known[id(value)] = value, "the value itself"
            parts = "\0".join(self._parts(value, kind))
            self._known[id(value)] = value, parts and _digest(parts)
        return self._known[id(value)][1]

    def _parts(self, value: Any, kind: type) -> Iterator[str]:
        if issubclass(kind, dict):
            yield from ("dict", *self._named(dict.items(value)))
        elif issubclass(kind, list):
            yield from ("list", *filter(None, map(self.of, list.__iter__(value))))
        elif issubclass(kind, tuple):
            yield from ("tuple", *filter(None, map(self.of, tuple.__iter__(value))))
        elif issubclass(kind, set | frozenset):
            # Sorted, and without functions: their order is another one in every process.
            known = (*_CONSTANTS, tuple, frozenset)
            items = (item for item in set().union(value) if issubclass(type(item), known))
            yield from ("set", *sorted(map(self.of, items)))
        elif issubclass(kind, type):
            if value.__module__ == self._module:
                yield from self._class(value)
            else:
                yield from ("class", value.__module__, value.__qualname__)
        elif kind in _INSIDE:
            yield from (self.of(getattr(value, name)) for name in _INSIDE[kind])
        elif kind is FunctionType and value.__globals__.get("__name__") == self._module:
            yield from self._function(value)
        elif kind.__module__ == "torch" and kind.__name__ in ("dtype", "device"):
            yield repr(value)
        elif kind.__module__ == self._module or kind in (SimpleNamespace, Namespace):
            yield self.of(kind)
            if dataclasses.is_dataclass(kind):  # its fields may be slots
                names = (field.name for field in dataclasses.fields(kind))
                with contextlib.suppress(AttributeError):  # it has no value yet
                    yield from self._named((n, object.__getattribute__(value, n)) for n in names)
            else:
                with contextlib.suppress(AttributeError):  # it has slots
                    yield from self._named(object.__getattribute__(value, "__dict__").items())
        elif (wrapped := inspect.getattr_static(value, "__wrapped__", None)) is not None:
            yield self.of(wrapped)  # of a decorator of another module
        elif kind in (FunctionType, BuiltinFunctionType):
            yield from ("function", str(value.__module__), value.__qualname__)

    def _named(self, items: Iterable[tuple[Any, Any]]) -> Iterator[str]:
        for name, value in items:
            if text := self.of(value):
                yield from (self.of(name), text)

    def _class(self, cls: type) -> Iterator[str]:
        yield from map(self.of, cls.__bases__)
        # Python's own attributes change with the place in the file, and from process to process.
        yield from self._named(
            (name, member)
            for name, member in vars(cls).items()
            if type(member) in (FunctionType, *_INSIDE) or not name.startswith("__")
        )
        if dataclasses.is_dataclass(cls):
            fields = dataclasses.fields(cls)
            yield from self._named((f.name, (f.default, f.default_factory)) for f in fields)

    def _function(self, function: FunctionType) -> Iterator[str]:
        parts = (function.__code__, function.__defaults__, function.__kwdefaults__)
        yield from map(self.of, parts)
        around = function.__globals__
        used = {name: around[name] for name in sorted(_names(function.__code__)) if name in around}
        cells = zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
        for name, cell in cells:
            with contextlib.suppress(ValueError):  # it has no value yet
                used[name] = cell.cell_contents
        yield from self._named(used.items())


def _names(code: CodeType) -> set[str]:
    inner = (constant for constant in code.co_consts if isinstance(constant, CodeType))
    return set(code.co_names).union(*map(_names, inner))
