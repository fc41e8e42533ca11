"""Which executor the options of compare choose, and which options contradict each other."""

import sys

import pytest
import torch

pytest.importorskip("cloudpickle")

from qneurons.comparison.executor import LocalExecutor
from qneurons.comparison.placement import place
from qneurons.comparison.process_executor import ProcessExecutor
from qneurons.study.errors import StudyError
from tests.comparison.conftest import make_train


def chosen(**options):
    names = ("processes", "address", "cpus_per_trial", "gpus_per_trial")
    defaults = dict.fromkeys(names) | {"executor": "local", "say": lambda text: None}
    return place(make_train(), **(defaults | options))


@pytest.mark.parametrize(
    ("num_gpus", "processes", "num_workers"),
    [(0, None, 0), (1, None, 0), (4, None, 4), (4, 0, 0), (0, 1, 1), (1, 3, 3)],
)
def test_one_process_for_each_of_several_gpus_or_as_many_as_wanted(
    monkeypatch, num_gpus, processes, num_workers
):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: num_gpus)
    with chosen(processes=processes) as executor:
        assert isinstance(executor, ProcessExecutor if num_workers else LocalExecutor)
        assert executor.num_slots == max(num_workers, 1)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"executor": "slurm"}, r"unknown executor 'slurm'.*ray"),
        ({"processes": -1}, r"processes is -1; give the number"),
        ({"processes": 1.5}, r"processes is 1\.5"),
        ({"address": "auto", "gpus_per_trial": 1}, r"only.*address, gpus_per_trial; add.*'ray'"),
        ({"executor": "ray", "processes": 2}, r"processes is not for a Ray cluster"),
    ],
)
def test_options_that_cannot_be_used(options, message):
    with pytest.raises(StudyError, match=message):
        chosen(**options)


def test_the_options_reach_the_cluster(monkeypatch):
    module = pytest.importorskip("qneurons.comparison.ray_executor")
    monkeypatch.setattr(sys, "argv", ["my script.py"])
    monkeypatch.setattr(module, "ray_executor", lambda train, *options: options[:-1])
    assert chosen(executor="ray") == ("'my script.py'", "auto", 1.0, None)
    there = {"address": "ray://head", "cpus_per_trial": 2.0, "gpus_per_trial": 0.5}
    assert chosen(executor="ray", **there) == ("'my script.py'", "ray://head", 2.0, 0.5)
