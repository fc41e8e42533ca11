"""What the settings of a report are, in words."""

from collections.abc import Mapping

from qneurons.report.rendering import listed
from qneurons.schedules import Annealed, AnnealedOver, Constant, Ramp
from qneurons.study.runs import parse_setting

Meaning = tuple[str, str]  # words with a gap, and what fills it

_SHAPES = {"lin": "a line", "cos": "half a cosine"}


def meaning(setting: str) -> Meaning:
    parsed = parse_setting(setting)
    match parsed.kind, parsed.schedule:
        case "base", _:
            return "f itself", ""
        case "limit", _:
            return "f'(x)x", ""
        case "mean", schedule:
            return "the mean of {} without its noise", str(schedule)
        case "gradient-noise", _:
            return "f with gradient noise of η = {}", f"{parsed.eta:g}"
        case _, Constant(lam):
            return "the q-activation with λ = {}", f"{lam:g}"
        case _, Annealed(lam0, gamma):
            rate = f" at the rate {gamma:g}" if "@" in setting else ""
            return f"the q-activation with λ annealed from {{}}{rate}", f"{lam0:g}"
        case _, AnnealedOver(lam0, epochs):
            return f"the q-activation with λ annealed from {{}} over {epochs} epochs", f"{lam0:g}"
        case _, Ramp(shape, lam0, lam1, epochs):
            over = f" over {epochs} epochs" if epochs else ""
            words = f"the q-activation with λ along {_SHAPES[shape]} from {{}} to {lam1:g}{over}"
            return words, f"{lam0:g}"
    raise AssertionError(setting)


def legend(meanings: Mapping[str, Meaning]) -> str:
    """One sentence; settings of the same kind share their words."""
    groups: dict[str, dict[str, str]] = {}
    for setting, (words, filling) in meanings.items():
        groups.setdefault(words, {})[setting] = filling
    return "; ".join(
        f"{listed([*group])} {'are' if len(group) > 1 else 'is'} "
        f"{words.format(listed([*group.values()]))}"
        for words, group in groups.items()
    )
