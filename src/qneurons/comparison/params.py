"""The parameters of a trial, which notice what its training reads of them."""

from collections.abc import Callable
from typing import Any


class Params(dict[str, Any]):
    """``read`` has the names that were asked for. To show a dict is not to read it."""

    def __init__(self, values: Any = ()) -> None:
        super().__init__(values)
        self.read: set[str] = set()


def _reading_one(method: Callable[..., Any]) -> Callable[..., Any]:
    def read(params: Params, name: str, *default: Any) -> Any:
        params.read.add(name)
        return method(params, name, *default)

    return read


def _reading_all(method: Callable[..., Any]) -> Callable[..., Any]:
    def read(params: Params, *other: Any) -> Any:
        params.read.update(dict.keys(params))
        return method(params, *other)

    return read


# All of them, because dict's own methods do not call each other. dict(params) and f(**params) use
# keys() and [], as they do for any dict with an __iter__ of its own.
for _name in ("__getitem__", "__contains__", "get", "pop", "setdefault"):
    setattr(Params, _name, _reading_one(getattr(dict, _name)))
for _name in ("__iter__", "keys", "values", "items", "copy", "__or__"):
    setattr(Params, _name, _reading_all(getattr(dict, _name)))
