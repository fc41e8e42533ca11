"""The plan of a store: the runs that its studies want, each with its number of epochs."""

import json
from collections.abc import Mapping
from pathlib import Path

from qneurons.study.errors import StudyError
from qneurons.study.files import replace
from qneurons.study.runs import Run

Plan = Mapping[Run, int]  # the number of epochs of every run


def join_plans(one: Plan, other: Plan) -> dict[Run, int]:
    """The runs of both, with the larger number of epochs."""
    return {run: max(one.get(run, 0), other.get(run, 0)) for run in {**one, **other}}


def read_plan(path: Path) -> dict[Run, int]:
    """An empty plan if there is no file: stores are older than plans."""
    try:
        text = path.read_bytes()
    except FileNotFoundError:
        return {}
    try:
        return {Run(**content): int(epochs) for content, epochs in json.loads(text)}
    except (ValueError, TypeError):
        raise StudyError(
            f"{path} cannot be read: it is damaged, or from another version of qneurons; delete "
            "it, and the next qneurons study run writes it again"
        ) from None


def write_plan(path: Path, plan: Plan) -> None:
    pairs = [[run.content(), epochs] for run, epochs in plan.items()]
    replace(path, json.dumps(pairs, separators=(",", ":")).encode() + b"\n")
