"""Which runs still have to be trained, and which of them together."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from qneurons.study.runs import Run, Study, packable, parse_setting


@dataclass(frozen=True)
class Job:
    """Runs to train together, which all have done the same number of epochs."""

    runs: tuple[Run, ...]
    epoch: int


def pending(study: Study, progress: Mapping[str, int], diverged: set[str]) -> list[Run]:
    """The runs that have neither diverged nor done all their epochs."""
    return [
        run
        for run in study.runs
        if run.id not in diverged and progress.get(run.id, 0) < study.epochs
    ]


def _order(run: Run) -> tuple[object, ...]:
    """Makes neighbours of runs that share kernels, and then of those that share a protocol."""
    return run.activation, parse_setting(run.setting).kind, run.protocol, run.setting, run.seed


def make_jobs(
    runs: Sequence[Run], progress: Mapping[str, int], pack_size: Callable[[Run], int]
) -> list[Job]:
    """Groups runs into packs; those with the most epochs done come first.

    Packs are filled from the front and not evened out. So after a stop at any moment the same runs
    form the same packs again, and a resumed study rounds as an uninterrupted one does.
    """
    groups: dict[tuple[int, tuple[object, ...]], list[Run]] = {}
    for run in runs:
        groups.setdefault((progress.get(run.id, 0), packable(run)), []).append(run)
    jobs = []
    for (epoch, _), group in groups.items():
        group.sort(key=_order)
        size = max(1, pack_size(group[0]))
        for start in range(0, len(group), size):
            jobs.append(Job(tuple(group[start : start + size]), epoch))
    return sorted(jobs, key=lambda job: -job.epoch)
