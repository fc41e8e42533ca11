"""Runs studies: plans packs, has them trained here or on a Ray cluster, saves what they report.

What needs Ray is in ``ray_executor`` and ``ray_cluster``, and is imported from there.
"""

from qneurons.study.execution.executor import Executor, Halt, Outcome
from qneurons.study.execution.local_executor import LocalExecutor
from qneurons.study.execution.progress import Event, Notice, Progress
from qneurons.study.execution.session import run_study

__all__ = [
    "Event",
    "Executor",
    "Halt",
    "LocalExecutor",
    "Notice",
    "Outcome",
    "Progress",
    "run_study",
]
