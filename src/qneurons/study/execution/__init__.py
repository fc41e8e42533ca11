"""Runs studies: forms packs, has them trained here or on a Ray cluster, saves what they report.

What needs Ray is in ``ray_executor`` and ``ray_cluster``, and is imported from there.
"""

from qneurons.study.execution.executor import (
    Ended as Ended,
    Executor as Executor,
    Halt as Halt,
    Outcome as Outcome,
)
from qneurons.study.execution.local_executor import LocalExecutor as LocalExecutor
from qneurons.study.execution.progress import (
    Event as Event,
    Notice as Notice,
    Progress as Progress,
    setting_means as setting_means,
)
from qneurons.study.execution.session import run_study as run_study
