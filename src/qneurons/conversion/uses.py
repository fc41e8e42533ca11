"""What becomes of an activation's result in a model: traced from its parent upwards by torch.fx."""

import copy
import inspect
import warnings
from collections.abc import Iterator
from typing import Any, Literal

import torch.fx
from torch import nn
from torch.fx import Graph, Node

from qneurons.activations import Activation, rows

Use = Literal["gate", "output", "probability", "hidden", "unknown"]

# Names of functions and methods, without a trailing underscore.
_PRODUCTS = {"mul", "imul", "multiply", "truediv", "div", "lerp", "addcmul"}
_CONTRACTIONS = {"matmul", "bmm", "einsum"}
_SUMS = {"add", "iadd", "sub", "isub", "rsub"}
_PASSING = {"neg", "cat", "concat", "stack", "getitem", "chunk", "split", "unbind", "dropout"}
_PASSING |= {"view", "reshape", "flatten", "squeeze", "unsqueeze", "expand", "expand_as", "repeat"}
_PASSING |= {"permute", "transpose", "movedim", "contiguous", "clone", "interpolate"}
_PASSING |= {"to", "type_as", "float", "half", "bfloat16", "double", "pow", "square", "where"}
_PASSING |= {"clamp", "clip", "mean", "sum", "amax", "amin", "masked_fill", "pad"}
_DROPOUTS = nn.Dropout | nn.Dropout1d | nn.Dropout2d
_PASSING_MODULES = _DROPOUTS | nn.Identity | nn.Flatten | nn.Unflatten | nn.Upsample
# Of negative numbers, or of those above 1, they are NaN or an error.
_OF_PROBABILITIES = {"log", "log2", "log10", "log1p", "logit", "sqrt", "rsqrt"}
_OF_PROBABILITIES |= {"binary_cross_entropy", "nll_loss"}


def is_bounded(row: Activation) -> bool:
    """True if f stays small for huge x, so that it may serve as a gate or as a probability."""
    huge = torch.tensor([-1e30, 1e30], dtype=torch.float64, device="cpu")
    return bool((row(huge).abs() < 1e15).all())


def find_use(model: nn.Module, path: str, activation: Any) -> Use:
    """What becomes of the result of the activation at ``path``.

    ``"gate"``: it multiplies another tensor. ``"output"``: it leaves the model.
    ``"probability"``: a logarithm, a root or a loss needs it between 0 and 1. ``"hidden"``: all
    else. Each parent is traced on its own, and its own parent only if the result leaves it, so a
    model of which only parts can be traced is understood as far as possible.
    """
    names = path.split(".")[:-1]
    chain = [model]
    for name in names:
        chain.append(chain[-1].get_submodule(name))
    use: Use = "unknown"
    for depth in reversed(range(len(chain))):
        if isinstance(chain[depth], nn.ModuleList | nn.ModuleDict):
            continue  # which have no forward
        root, graph = _trace(chain[depth:], names[depth:])
        calls = [node for node in graph.nodes if _calls(node, root, activation)] if graph else []
        use = _combined(_use(node, root) for node in calls) if calls else "unknown"
        if use != "output":
            return use
    return use


def functions_called(module: nn.Module) -> list[tuple[str, Use]] | None:
    """The activation functions that ``forward`` calls, with their uses in it; None if unknown."""
    root, graph = _trace([module], [])
    if graph is None:
        return None
    known = {function.__name__ for row in rows() for function in row.functions}
    calls = [node for node in graph.nodes if node.op in ("call_function", "call_method")]
    return [(_name(node), _use(node, root)) for node in calls if _name(node) in known]


class _Tracer(torch.fx.Tracer):
    proxy_buffer_attributes = True  # so that a forward that counts its calls changes no buffer

    def __init__(self, inside: list[nn.Module]) -> None:
        super().__init__()
        self._inside = inside

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        return not any(m is module for module in self._inside)


def _trace(chain: list[nn.Module], names: list[str]) -> tuple[nn.Module, Graph | None]:
    """Traces a copy of ``chain[0]`` and its descendants in the chain; other modules are leaves.

    Without copies a forward that stores a tensor would store a proxy in the model.
    """
    try:
        copies = [copy.copy(module) for module in chain]
        for module in copies:
            for name, value in vars(module).items():
                if isinstance(value, list | dict):
                    vars(module)[name] = copy.copy(value)
        for parent, name, child in zip(copies, names, copies[1:], strict=False):
            vars(parent)["_modules"] = {**parent._modules, name: child}
        parameters = inspect.signature(copies[0].forward).parameters.values()
        defaults = {p.name: p.default for p in parameters if p.default is not p.empty}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return copies[0], _Tracer(copies).trace(copies[0], defaults)
    except Exception:  # whatever a stranger's code may raise when it meets a proxy
        return chain[0], None


def _calls(node: Node, root: nn.Module, activation: Any) -> bool:
    if node.op == "call_module":
        return root.get_submodule(str(node.target)) is activation
    function = getattr(activation, "func", activation)  # of a partial
    # By name: F.sigmoid(x) is traced as x.sigmoid().
    is_call = node.op in ("call_function", "call_method")
    return is_call and _name(node) == getattr(function, "__name__", None)


def _use(node: Node, root: nn.Module) -> Use:
    return _combined(_use_by(user, node, root) for user in node.users)


def _combined(uses: Iterator[Use]) -> Use:
    found = set(uses)
    telling: tuple[Use, ...] = "gate", "output", "probability"
    return next((use for use in telling if use in found), "hidden")


def _use_by(user: Node, node: Node, root: nn.Module) -> Use:
    if user.op == "output":
        return "output"
    if user.op == "call_module":
        module = root.get_submodule(str(user.target))
        if isinstance(module, nn.BCELoss | nn.NLLLoss):
            return "probability"
        return _use(user, root) if isinstance(module, _PASSING_MODULES) else "hidden"
    name = _name(user)
    mixed = any(other is not node and other.op != "get_attr" for other in user.all_input_nodes)
    if mixed and name in _PRODUCTS | _CONTRACTIONS:
        return "gate"
    if name in _OF_PROBABILITIES:
        return "probability"
    # With a number or a parameter, products and sums scale and shift.
    passes = name in _PASSING or (not mixed and name in _PRODUCTS | _SUMS)
    return _use(user, root) if passes else "hidden"


def _name(node: Node) -> str:
    name = node.target if isinstance(node.target, str) else node.target.__name__
    return name.rstrip("_")
