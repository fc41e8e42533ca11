"""Replaces the activations of a model, sets options on the new ones, and puts the old ones back."""

import logging
import warnings
from collections.abc import Callable, Iterable
from typing import Any

from torch import nn

from qneurons.activations import Activation
from qneurons.arguments import Mode
from qneurons.conversion.configs import restore_configs, write_configs
from qneurons.conversion.finding import Alias, Selector
from qneurons.conversion.making import maker
from qneurons.conversion.plan import ConversionPlan, conversion_plan, nothing_to_convert
from qneurons.functional import LAM
from qneurons.modules import QActivation, QLimit

logger = logging.getLogger("qneurons")


def convert(
    model: nn.Module,
    lam: float | str = LAM,
    phi: float = 1e-3,
    eval_mode: Mode = "limit",
    *,
    include: Selector | Iterable[Selector] = ("*",),
    exclude: Selector | Iterable[Selector] = (),
    alias: Alias | None = None,
) -> nn.Module:
    """Replaces the activations of a model by q-activations, or by their limits, in place.

    At any depth it replaces activation modules, keeping their parameters, and activation functions
    that a module holds as an attribute, as ``nn.TransformerEncoderLayer`` does. Activations of
    other libraries are recognised by their names, and checked to compute what the name says. A
    shared module stays shared, and ``nn.Identity`` is left alone.

    A pretrained model computes another function afterwards, so it must be fine-tuned: on digits an
    MLP with softplus fell from 93.2 to 85.9 % and was back after one epoch (see "Pretrained
    weights" in docs/training-and-evaluation.md).

    A bounded activation is left alone if its result multiplies another tensor (a gate), leaves the
    model or goes into a logarithm, a root or a loss that needs numbers between 0 and 1, because a
    q-activation is not bounded; so is one whose use cannot be told. ``include``
    overrides that. Functions that ``forward`` calls in its code, the gates of recurrent layers and
    activations that are not in the table cannot be replaced. A warning names all that is left.
    :func:`conversion_plan` shows what will be done, and convert logs the same to the logger
    ``"qneurons"`` at level INFO. :func:`revert` undoes it. In a model of transformers the new
    activations are also written into its ``config``, as ``hidden_act="q_gelu"``.

    Args:
        model: the model; it is changed.
        lam: λ, or a setting: ``"c0.1"`` is a constant λ, ``"a1"`` is λ annealed from 1, ``"a1/20"``
            the same over 20 epochs, and ``"limit"`` is :class:`QLimit`, without noise, for which
            ``phi`` and ``eval_mode`` have no meaning. :func:`~qneurons.parse_schedule` has the
            others. After ``"a1"``, ``LambdaScheduler(model)`` anneals.
        phi, eval_mode: as in :class:`QActivation`.
        include, exclude: which activations to replace: patterns for their names in the model, as in
            ``"features.*"``; rows of the table, as in ``"relu"``; or module classes. A gate is
            replaced if something other than ``"*"`` includes it.
        alias: activations of your own: maps module classes or functions to what they compute, as in
            ``{MySwish: "silu"}``.

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
    make = maker(lam, phi, eval_mode)
    plan = conversion_plan(model, include=include, exclude=exclude, alias=alias)
    if not plan.replaced:
        raise ValueError(nothing_to_convert(plan))
    converted = replace_activations(model, plan, make)
    if plan.left:
        warnings.warn(f"not converted: {plan.describe_left()}", stacklevel=2)
    if unnamed := write_configs(model, plan):
        warnings.warn(
            f"the configuration of {type(model).__name__} cannot name {len(unnamed)} of the "
            f"q-activations, such as {unnamed[0]}; from_pretrained will build the plain ones, so "
            "convert again after loading",
            stacklevel=2,
        )
    return converted


def replace_activations(
    model: nn.Module, plan: ConversionPlan, make: Callable[[Activation], nn.Module]
) -> nn.Module:
    """Puts what ``make`` makes of its row in the place of every activation of the plan."""
    device = next((parameter.device for parameter in model.parameters()), None)
    converted: dict[nn.Module, nn.Module] = {}
    for place in plan.replaced:
        new = make(place.row)
        owner = place.old if isinstance(place.old, nn.Module) else place.parent
        new.to(device).train(owner is None or owner.training)
        if isinstance(place.old, nn.Module):
            new = converted.setdefault(place.old, new)
            _move_hooks(place.old, new)
        vars(new)["_replaced"] = (place.old,)  # a tuple, so that it is no submodule
        if place.parent is None:
            return new
        _replace(place.parent, place.name, new)
    _disable_nested_tensors(model)
    logger.info("converted %s\n%s", type(model).__name__, plan)
    return model


def revert(model: nn.Module) -> nn.Module:
    """Puts back the activations that :func:`convert` replaced, in place.

    q-activations that were written into the model stay. Hooks and the training mode are those of
    the q-activations. ``nn.TransformerEncoder`` does not return to its nested tensors.

    Returns:
        the model, or the old activation if the model is itself a q-activation.

    Example:
        >>> revert(convert(nn.Sequential(nn.Linear(4, 3), nn.ReLU())))
        Sequential(
          (0): Linear(in_features=4, out_features=3, bias=True)
          (1): ReLU()
        )
    """
    if "_replaced" in vars(model):
        return _restored(model)
    places = [
        (parent, name, new)
        for parent in model.modules()
        for name, new in parent._modules.items()
        if isinstance(new, QActivation | QLimit) and "_replaced" in vars(new)
    ]
    if not places:
        raise ValueError(
            f"{type(model).__name__} has nothing to revert; only what qneurons.convert replaced "
            "can be put back"
        )
    for parent, name, new in places:
        restore_configs(new)
        old = _restored(new)
        if not isinstance(old, nn.Module):
            delattr(parent, name)
        setattr(parent, name, old)
        if hasattr(parent, "activation_relu_or_gelu"):
            code = {"relu": 1, "gelu": 2}.get(new.activation.name, 0)
            parent.activation_relu_or_gelu = code  # type: ignore[assignment]
    return model


def _restored(new: nn.Module) -> Any:
    (old,) = vars(new)["_replaced"]
    if isinstance(old, nn.Module):
        old.train(new.training)
        _move_hooks(new, old)
    return old


def configure(
    model: nn.Module,
    *,
    lam: float | None = None,
    phi: float | None = None,
    eval_mode: Mode | None = None,
    saves_settings: bool | None = None,
) -> nn.Module:
    """Sets λ, φ, the mode of evaluation and whether these are saved, on every q-activation.

    Args:
        model: the model; it is changed. A :class:`QLimit` in it has nothing to set.
        lam, phi, eval_mode: as in :class:`QActivation`; what is None stays as it is.
        saves_settings: True to have these in the model's ``state_dict``, which then no longer loads
            into the plain model with ``strict=True``.

    Returns:
        the model.

    Example:
        >>> configure(nn.Sequential(QActivation("elu")), lam=0.02, eval_mode="mean")
        Sequential(
          (0): QActivation(elu, alpha=1, lam=0.02, phi=0.001, eval_mode='mean')
        )
    """
    layers = [module for module in model.modules() if isinstance(module, QActivation)]
    if not layers:
        raise ValueError(
            f"{type(model).__name__} holds no q-activation to configure; convert it first with "
            "qneurons.convert(model)"
        )
    values = {"lam": lam, "phi": phi, "eval_mode": eval_mode, "saves_settings": saves_settings}
    for layer in layers:
        for name, value in values.items():
            if value is not None:
                setattr(layer, name, value)
    return model


def _move_hooks(source: nn.Module, target: nn.Module) -> None:
    # Also _is_full_backward_hook, which says of which kind the backward hooks are.
    vars(target).update({key: value for key, value in vars(source).items() if "_hook" in key})


def _replace(parent: nn.Module, name: str, new: nn.Module) -> None:
    setattr(parent, name, new)
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
