"""Makes the module of a row in a setting, and names it, as in ``"q_gelu(a1)"``."""

import re
from collections.abc import Callable
from functools import partial
from typing import Any

from qneurons.activations import Activation, resolve
from qneurons.arguments import Mode, check_eval_mode, check_nonnegative
from qneurons.functional import LAM
from qneurons.modules import CLASSES, QActivation, QLimit
from qneurons.schedules import EXAMPLES, FORMS, Constant, parse_schedule

PHI = 1e-3
_NAME = re.compile(  # q_elu, or q_elu(a1, alpha=0.5)
    r"(?P<kind>q|limit)_(?P<row>\w+)"
    r"(?:\((?P<setting>[^(),=]*)(?P<options>(?:(?:, *|(?<=\())\w+=[^(),=]+)*)\))?"
)


def maker(
    setting: float | str, phi: float = PHI, eval_mode: Mode = "limit"
) -> Callable[[Activation], QActivation | QLimit]:
    """Reads the setting, and gives a function that makes the module of a row in it."""
    check_nonnegative("phi", phi)
    check_eval_mode(eval_mode)
    if setting == "limit":
        return QLimit
    if isinstance(setting, str):
        try:
            schedule = parse_schedule(setting)
        except ValueError as error:
            raise ValueError(
                f"unknown setting {setting!r}; write 'limit', {FORMS}, for example {EXAMPLES}"
            ) from error
        lam, annealing = schedule(epoch=1), None if isinstance(schedule, Constant) else schedule
    else:
        lam, annealing = setting, None

    def make(row: Activation) -> QActivation:
        known = None if row.difference is None else CLASSES.get(row.name)  # not of a namesake
        own: Callable[..., QActivation] = known or partial(QActivation, row)
        new = own(lam=lam, phi=phi, eval_mode=eval_mode, **row.parameters)
        new.schedule = annealing
        return new

    return make


def from_name(name: str) -> QActivation | QLimit:
    """The module that :func:`name_of` has named.

    Example:
        >>> from_name("q_elu(c0.05, alpha=0.5, eval_mode=mean)")
        QELU(alpha=0.5, lam=0.05, phi=0.001, eval_mode='mean')
        >>> from_name("limit_gelu")
        QLimit(gelu)
    """
    match = _NAME.fullmatch(name)
    if match is None or (match["kind"] == "limit" and match["setting"]):
        raise ValueError(
            f"cannot read the activation {name!r}; write 'q_<name>', 'q_<name>(<setting>)' or "
            "'limit_<name>', for example 'q_gelu', 'q_gelu(a1)' or 'q_elu(a1, alpha=0.5)'"
        )
    options: dict[str, Any] = dict(re.findall(r"(\w+)=([^,\s]+)", match["options"] or ""))
    own = ("phi", "eval_mode") if match["kind"] == "q" else ()
    law = {key: options.pop(key) for key in own if key in options}
    row = resolve(match["row"], **{key: float(value) for key, value in options.items()})
    if match["kind"] == "limit":
        return QLimit(row)
    if "phi" in law:
        law["phi"] = float(law["phi"])
    return maker(match["setting"] or LAM, **law)(row)


def name_of(module: QActivation | QLimit) -> str:
    """The name of a module in the configuration of another library, with what is not default.

    Example:
        >>> from qneurons import QELU
        >>> name_of(QELU()), name_of(QELU(lam=0.05, alpha=0.5))
        ('q_elu', 'q_elu(c0.05, alpha=0.5)')
    """
    row, options = module.activation, []
    if isinstance(module, QActivation) and (module.schedule is not None or module.lam != LAM):
        options.append(str(module.schedule or Constant(module.lam)))
    usual = resolve(row.name).parameters
    options += [f"{key}={value!r}" for key, value in row.parameters.items() if value != usual[key]]
    if isinstance(module, QActivation):
        options += [f"phi={module.phi!r}"] * (module.phi != PHI)
        options += [f"eval_mode={module.eval_mode}"] * (module.eval_mode != "limit")
    kind = "q" if isinstance(module, QActivation) else "limit"
    return f"{kind}_{row.name}" + (f"({', '.join(options)})" if options else "")
