"""A hash of the code of a function, to notice that a training was changed."""

import contextlib
import functools
import hashlib
import inspect
import sys
from collections.abc import Iterator
from types import CodeType, FunctionType
from typing import Any

_CONSTANTS = (int, float, str, bytes, bool, complex, type(None))


def fingerprint(function: Any) -> str:
    """A hash of the compiled code of a function and of what it uses from its own module.

    Compiled code leaves comments and formatting out, and exists in a notebook too. It differs
    between versions of Python, so that the version comes first.
    """
    digest = hashlib.sha256()
    for part in _parts(function, set()):
        digest.update(part.encode() + b"\0")
    return f"{sys.version_info.major}.{sys.version_info.minor}-{digest.hexdigest()[:16]}"


def is_changed(one: str, other: str) -> bool:
    """True if two fingerprints of the same version of Python differ."""
    return one != other and one.partition("-")[0] == other.partition("-")[0]


def _parts(value: Any, seen: set[int]) -> Iterator[str]:
    """Texts that differ if the code behind a value does."""
    if isinstance(value, functools.partial):
        yield repr(sorted((k, v) for k, v in value.keywords.items() if isinstance(v, _CONSTANTS)))
        value = value.func
    if isinstance(value, staticmethod | classmethod):
        value = value.__func__
    if isinstance(value, property):
        value = value.fget
    if isinstance(value, _CONSTANTS):
        yield repr(value)
    elif isinstance(value, type):
        if id(value) not in seen:
            seen.add(id(value))
            for name, member in vars(value).items():
                if isinstance(member, FunctionType | staticmethod | classmethod | property):
                    yield name
                    yield from _parts(member, seen)
    else:
        value = inspect.unwrap(value)
        value = getattr(value, "__func__", value)  # of a method
        if isinstance(value, FunctionType) and id(value) not in seen:
            seen.add(id(value))
            yield from _function(value, seen)


def _function(function: FunctionType, seen: set[int]) -> Iterator[str]:
    yield from _code(function.__code__)
    yield from (repr(v) for v in function.__defaults__ or () if isinstance(v, _CONSTANTS))
    used = {name: function.__globals__.get(name) for name in sorted(_names(function.__code__))}
    for cell, name in zip(function.__closure__ or (), function.__code__.co_freevars, strict=True):
        with contextlib.suppress(ValueError):  # it has no value yet
            used[name] = cell.cell_contents
    for name, value in used.items():
        is_own = getattr(value, "__module__", None) == function.__module__
        if isinstance(value, _CONSTANTS) or (is_own and isinstance(value, FunctionType | type)):
            yield name
            yield from _parts(value, seen)


def _code(code: CodeType) -> Iterator[str]:
    yield code.co_code.hex()
    yield repr(code.co_names + code.co_varnames)
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _code(constant)
        elif isinstance(constant, frozenset):  # its order is another one in every process
            yield repr(sorted(map(repr, constant)))
        else:
            yield repr(constant)


def _names(code: CodeType) -> set[str]:
    inner = (constant for constant in code.co_consts if isinstance(constant, CodeType))
    return set(code.co_names).union(*map(_names, inner))
