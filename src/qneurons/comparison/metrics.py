"""Which of the reported numbers decides, which one chooses the parameters, and what is better."""

import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from qneurons.comparison.store import Finished
from qneurons.report.final_values import Metric
from qneurons.study.errors import StudyError, unknown

_WORD = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])")  # also those of testLoss and valRMSE
_SMALLER = re.compile(  # a word of a name
    ".*loss(es)?|.*errors?|err|perplexity|ppl|nll|n?rmse|mse|mae|s?mape|rmsle|(cross)?entropy|b?ce|"
    "xent|kld?|divergence|deviance|distance|residual|regret|cost|bits|bp[bcd]|[wct]er|[fk]id|lpips|"
    "brier|ece|eer"
)


@dataclass(frozen=True)
class Metrics:
    """What the user says about the metrics; their names say the rest."""

    metric: str | None = None
    choose_by: str | None = None
    smaller: Collection[str] = ()  # names of which smaller is better
    larger: Collection[str] = ()

    def __post_init__(self) -> None:
        if both := sorted({*self.smaller} & {*self.larger}):
            raise StudyError(f"{both[0]!r} is in smaller and in larger", "leave it in one of them")

    def check(self, names: Sequence[str], *, has_grid: bool) -> tuple[str, str | None]:
        """The name that decides and the one that chooses; raises if they cannot be used."""
        if not names:
            raise StudyError(
                "report() was called without a metric",
                "call for example trial.report(test_accuracy=0.97)",
            )
        for name in filter(None, (self.metric, self.choose_by, *self.smaller, *self.larger)):
            if name not in names:
                raise unknown("metric", name, names)
        chooser = self.choose_by or next(iter(_beginning("val", names)), None)
        metric = self.metric or _decider(names, chooser if has_grid else None)
        if has_grid and chooser is None:
            raise StudyError(
                "the parameters have several values, and the best must not be chosen on the test "
                "metric",
                "report also one of a validation set, as in trial.report(val_accuracy=...)",
            )
        if has_grid and (chooser == metric or _beginning("test", [str(chooser)])):
            raise StudyError(
                f"parameters must not be chosen by {chooser!r}, which would favour luck",
                "choose by a metric of a validation set, as in choose_by='val_accuracy', and let "
                "another one decide, as in metric='test_accuracy'",
            )
        return metric, chooser

    def decision(self, names: Sequence[str], *, has_grid: bool) -> list[str]:
        """What decides and chooses, and what is better, in lines; raises as ``check`` does."""
        metric, chooser = self.check(names, has_grid=has_grid)
        lines = [f"decided by {metric} ({direction(self.describe(metric))} is better)"]
        if has_grid and chooser is not None:
            better = direction(self.describe(chooser))
            lines.append(f"parameters are chosen by {chooser} ({better} is better)")
        return lines

    def describe(self, name: str, trials: Iterable[Finished] = ()) -> Metric:
        words = {word.lower() for word in _WORD.findall(name)}
        is_smaller = name in self.smaller or any(map(_SMALLER.fullmatch, words))
        higher = name in self.larger or not is_smaller
        values = (x for trial in trials for x in trial.measured.metrics.get(name, ()))
        percent = bool(words & {"acc", "accuracy"}) and all(0 <= x <= 1 for x in values)
        return Metric(name, name.replace("_", " "), higher=higher, percent=percent)


def direction(metric: Metric) -> str:
    return "larger" if metric.higher else "smaller"


def _decider(names: Sequence[str], chooser: str | None) -> str:
    """The metric that decides where the user names none, beside the one that chooses."""
    others = [name for name in names if name != chooser]
    validating = [] if chooser else _beginning("val", others)
    trained = _beginning("train", others)
    untrained = [name for name in others if name not in trained]
    rest = [chooser] if chooser else names  # check() refuses a chooser that decides
    return [*_beginning("test", others), *validating, *untrained, *rest][0]


def _beginning(prefix: str, names: Iterable[str]) -> list[str]:
    return [name for name in names if name.lower().startswith(prefix)]
