"""Plans packs: which runs are still to be trained, and which of them together."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from qneurons.study.runs import Run, Study, packable, parse_setting


@dataclass(frozen=True)
class Job:
    """Runs that train together, and the epochs that every one of them has done."""

    runs: tuple[Run, ...]
    epoch: int


def pending(study: Study, progress: Mapping[str, int], diverged: set[str]) -> list[Run]:
    """The runs that have neither all their epochs nor diverged."""
    return [
        run
        for run in study.runs
        if run.id not in diverged and progress.get(run.id, 0) < study.epochs
    ]


def plan(
    runs: Sequence[Run], progress: Mapping[str, int], pack_size: Callable[[Run], int]
) -> list[Job]:
    """Packs of runs that fit together, like beside like; those furthest on come first.

    Chunks are filled from the front and not evened out: after a stop at any moment the same runs
    meet in the same packs again, so that a resumed study rounds as an undisturbed one does.
    """
    groups: dict[tuple[int, tuple[object, ...]], list[Run]] = {}
    for run in runs:
        groups.setdefault((progress.get(run.id, 0), packable(run)), []).append(run)
    jobs = []
    for (epoch, _), group in groups.items():
        group.sort(key=_likeness)
        size = max(1, pack_size(group[0]))
        for start in range(0, len(group), size):
            jobs.append(Job(tuple(group[start : start + size]), epoch))
    return sorted(jobs, key=lambda job: -job.epoch)


def _likeness(run: Run) -> tuple[object, ...]:
    return run.activation, parse_setting(run.setting).kind, run.setting, run.seed
