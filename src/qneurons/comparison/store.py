"""The store of a comparison: one training, and its finished trials."""

import dataclasses
import functools
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from qneurons.comparison.arms import BASE
from qneurons.comparison.fingerprint import is_changed
from qneurons.comparison.trial import Measured
from qneurons.study.errors import StudyError
from qneurons.study.store import COMPARISON_HEADER, Entry, Ledger


@dataclass(frozen=True)
class Spec:
    """What is trained in a trial: an arm of the comparison, with a seed and values of the grid."""

    arm: str
    seed: int
    params: tuple[tuple[str, Any], ...] = ()

    @functools.cached_property
    def id(self) -> str:
        """16 hexadecimal digits, a hash of the content. Stores rely on it: it must not change."""
        content = json.dumps([self.arm, self.seed, dict(self.params)], sort_keys=True)
        return hashlib.sha256(content.encode()).hexdigest()[:16]

    def __str__(self) -> str:
        return ", ".join([f"seed {self.seed}", *params_texts(self.params), self.arm])


def params_texts(params: tuple[tuple[str, Any], ...]) -> list[str]:
    return [f"{name}={value}" for name, value in params]


@dataclass(frozen=True)
class Finished:
    """A finished trial."""

    spec: Spec
    setting: str  # the arm, with the number of epochs in it
    measured: Measured
    code: str  # the fingerprint of the training
    provenance: str


class Trials:
    """All entries of a journal so far. An entry is a ``provenance`` (its ``id`` and ``content``),
    the ``training`` (its ``name``), or a ``trial`` (the fields of :class:`Finished`)."""

    def __init__(self) -> None:
        self.provenance: dict[str, dict[str, Any]] = {}
        self.training = ""
        self.finished: dict[str, Finished] = {}

    def apply(self, line: int, entry: Entry) -> None:
        fields = dict(entry)
        match fields.pop("kind"):
            case "provenance":
                self.provenance[fields["id"]] = fields["content"]
            case "training":
                self.training = fields["name"]
            case "trial":
                spec, measured = fields.pop("spec"), Measured(**fields.pop("measured"))
                params = tuple((name, value) for name, value in spec.pop("params"))
                trial = Finished(Spec(**spec, params=params), measured=measured, **fields)
                self.finished[trial.spec.id] = trial
            case kind:
                raise ValueError(f"kind {kind!r}")


class TrialStore(Ledger[Trials]):
    """A folder with the finished trials of one training, safe from crashes."""

    header = COMPARISON_HEADER
    _name: str | None = None  # of the training, if it has begun

    def _nothing_recorded(self) -> Trials:
        return Trials()

    @property
    def finished(self) -> Mapping[str, Finished]:
        return self.records.finished

    def begin_training(self, name: str, code: str, *, keep: bool) -> None:
        """Raises if the store has trials of another training, or, without ``keep``, of other code.

        Different trainings, and different versions of one, do not compare.
        """
        with self._writing():
            # A call whose training failed, and was then renamed, leaves a name without trials.
            is_free = not (self.finished or self._reserved())
            if self.records.training != name and is_free:
                self._journal.append({"kind": "training", "name": name})
                self.refresh()
        self._name = name
        self._check_name()
        changed = sum(is_changed(trial.code, code) for trial in self.finished.values())
        if changed and not keep:
            raise StudyError(
                f"the code of {name!r} or a constant that it uses has changed since {changed} of "
                f"the {len(self.finished)} trials in {self.folder} were made",
                "give another store, or keep=True (--keep) if the change does not matter",
            )

    def add(self, trial: Finished) -> None:
        """Saves a trial. When it returns, the trial is on the disk."""
        with self._writing():
            self._check_name()
            self._journal.append({"kind": "trial", **dataclasses.asdict(trial)})
            self.refresh()

    def _check_name(self) -> None:
        """Again before a trial is saved: another process may have begun at the same time."""
        if self._name not in (None, self.records.training):
            raise StudyError(
                f"{self.folder} holds trials of the training {self.records.training!r}, and this "
                f"is {self._name!r}",
                "give another store",
            )

    def metric_names(self) -> list[str]:
        """What the trials report; nothing if none has reported."""
        reports = (list(trial.measured.metrics) for trial in self.finished.values())
        return next(filter(None, reports), [])

    def num_epochs(self, params: tuple[tuple[str, Any], ...]) -> int | None:
        """The number of epochs of the training: of the first trial of base with these values."""
        return next(
            (
                len(trial.measured.seconds)
                for trial in self.finished.values()
                if (trial.spec.arm, trial.spec.params) == (BASE, params)
                and not trial.measured.diverged
            ),
            None,
        )
