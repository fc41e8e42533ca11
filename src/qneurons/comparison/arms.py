"""The arms of a comparison: the study's settings, and plain activations as rivals."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from torch import Tensor, nn

from qneurons.activations import Activation, rows
from qneurons.conversion import OTHER_ACTIVATIONS
from qneurons.schedules import Annealed, Schedule
from qneurons.study.errors import StudyError, did_you_mean
from qneurons.study.runs import parse_setting

BASE = "base"
EXAMPLES = (BASE, "limit", "c0.1", "a1", "a1/20", "a1@0.5", "lin1", "cos1", "cos1/20")


@dataclass(frozen=True)
class Arm:
    """What the activations of a model become.

    ``name`` is the notation, as tables show it: ``base``, ``limit``, ``c0.1``, ``a1@0.5``,
    ``a1/20``, ``relu``, or ``a1`` or ``cos1``, which take as many epochs as the training has.
    """

    name: str
    unfitted: Schedule | None = None  # if the number of epochs is still to be found out

    def setting(self, epochs: int | None) -> str:
        """The notation with the number of epochs of the training in it."""
        return self.name if self.unfitted is None else str(self.unfitted.over(epochs or 1))


def parse_arm(text: str) -> Arm:
    if text.lower() in rivals():  # also as torch writes it: ReLU
        return Arm(text.lower())
    try:
        setting = parse_setting(text)
    except StudyError:
        setting = None
    if setting is None or setting.kind in ("gradient-noise", "mean"):
        raise StudyError(
            f"unknown setting {text!r}",
            f"{did_you_mean(text, [*EXAMPLES, *rivals()])}write {', '.join(EXAMPLES)}, or a plain "
            "activation such as silu; docs/compare.md has the full list",
        )
    schedule = setting.schedule
    if schedule is not None and schedule.over(2) != schedule and "@" not in text:
        return Arm(str(schedule), schedule)
    # "a1" alone has its own meaning here, so the paper's rate is always written.
    is_papers = isinstance(schedule, Annealed) and schedule.gamma == Annealed.gamma
    return Arm(f"{setting}@{Annealed.gamma}" if is_papers else str(setting))


def parse_arms(settings: str | Iterable[str]) -> list[Arm]:
    """The arms in their order, ``base`` first, because everything is compared with it."""
    named = {arm.name: arm for arm in map(parse_arm, parse_names("settings", settings))}
    others = [arm for name, arm in named.items() if name != BASE]
    if not others:
        raise StudyError(
            "there is nothing to compare with base",
            "give settings such as ['base', 'limit', 'c0.1']",
        )
    return [Arm(BASE), *others]


def parse_names(what: str, given: str | Iterable[str]) -> list[str]:
    """A list of names, which may also be one text with commas."""
    try:
        names = [name.strip() for name in (given.split(",") if isinstance(given, str) else given)]
    except (TypeError, AttributeError):  # not a list, or not of texts
        raise StudyError(f"{what} is {given!r}", "give a list of names") from None
    return list(filter(None, names))


class Plain(nn.Module):
    """An activation of the table for which torch has no module, such as ``relu2``."""

    def __init__(self, row: Activation) -> None:
        super().__init__()
        self.row = row

    def forward(self, x: Tensor) -> Tensor:
        return self.row.f(x, **self.row.parameters)

    def extra_repr(self) -> str:
        return self.row.name


def rivals() -> dict[str, Callable[[], nn.Module]]:
    """The plain activations by name: those of the table, and the others that torch has."""

    def maker(module: type[nn.Module], **options: object) -> Callable[[], nn.Module]:
        return lambda: module(**options)

    of_table = {
        row.name: maker(row.module, **row.parameters, **row.options)
        if row.module is not None
        else maker(Plain, row=row)
        for row in rows()
    }
    others = {cls.__name__.lower(): maker(cls) for cls in OTHER_ACTIVATIONS if cls != nn.Threshold}
    return of_table | others
