"""The plan of a store: the runs that its studies want, each with its number of epochs."""

from collections.abc import Mapping
from pathlib import Path

from qneurons.study.errors import StudyError
from qneurons.study.files import replace
from qneurons.study.runs import Run
from qneurons.study.store.journal import decode, encode

Plan = Mapping[Run, int]  # the number of epochs of every run


def join_plans(one: Plan, other: Plan) -> dict[Run, int]:
    """The runs of both, with the larger number of epochs."""
    return {run: max(one.get(run, 0), other.get(run, 0)) for run in {**one, **other}}


def read_plan(path: Path) -> dict[Run, int]:
    """An empty plan if there is no file, as in stores of earlier versions."""
    try:
        text = path.read_bytes()
    except FileNotFoundError:
        return {}
    try:
        if (decoded := decode(text.removesuffix(b"\n"), 0)) is None:
            raise ValueError("its checksum is wrong")
        return {Run(**content): epochs for content, epochs in decoded[0]["plan"]}
    except (ValueError, KeyError, TypeError) as error:
        raise StudyError(
            f"{path} was changed or written by another version of qneurons ({error})",
            "delete it, and the next qneurons study run writes it again",
        ) from None


def write_plan(path: Path, plan: Plan) -> None:
    pairs = [[run.content(), epochs] for run, epochs in plan.items()]
    replace(path, encode({"plan": pairs}, 0)[0])
