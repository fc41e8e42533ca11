"""An array job: parts of a study in stores of their own, one stopped by its time, then joined."""

import multiprocessing
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from qneurons.study.spec import load_study, select
from qneurons.study.store.store import Store
from tests.study.execution.test_killed import results

PAGE = Path(__file__).parents[3] / "docs" / "large-studies.md"
EPOCHS = 8
SPEC = f"""
title = "For an array job"
epochs = {EPOCHS}
seeds = 4

[[grid]]
dataset = "digits"
network = "mnist-mlp"
dropout = true
activation = ["elu", "tanh"]
setting = "c0.1"
batch_size = 64
learning_rate = 0.05
"""
PARTS = (
    ("--only", "activation=elu", "--seeds", "0-1"),
    ("--only", "activation=elu", "--seeds", "2-3"),
    ("--only", "activation=tanh"),
)


def qneurons(*arguments):
    from qneurons.cli import main

    torch.set_num_threads(1)
    sys.argv = ["qneurons", *map(str, arguments)]
    main()


def test_parts_that_are_stopped_and_joined_are_as_one_study(tmp_path):
    pytest.importorskip("sklearn")
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["qneurons.cli", "sklearn.datasets", "torch._dynamo"])
    spec = tmp_path / "study.toml"
    spec.write_text(SPEC)

    def start(*arguments):
        process = context.Process(target=qneurons, args=arguments)
        process.start()
        return process

    def train(store, *options):
        return start(
            "study", "run", spec, "--store", store, "--pack", 2, "--device", "cpu", *options
        )

    def ended(process):
        process.join(120)
        return process.exitcode

    stores = [tmp_path / "stores" / str(task) for task in range(len(PARTS))]
    tasks = [train(store, *part) for store, part in zip(stores[1:], PARTS[1:], strict=True)]
    limit, growth, reached = 0.15, 1.5, 0
    while not reached:  # how long it takes to start differs, so that the time it has grows
        code = ended(train(stores[0], *PARTS[0], "--time-limit", limit * growth))
        if code == 0:  # all of it was trained in that time
            shutil.rmtree(stores[0])
            growth **= 0.5
            continue
        assert code == 3
        limit *= growth
        reached = sum(Store.open(stores[0], readonly=True).progress().values())
    assert reached < 2 * EPOCHS
    assert ended(train(stores[0], *PARTS[0])) == 0  # queued again
    assert [ended(task) for task in tasks] == [0, 0]

    whole = train(tmp_path / "whole")
    joined = tmp_path / "joined"
    assert ended(start("study", "merge", *stores, "--into", joined)) == 0
    assert ended(whole) == 0
    assert results(joined) == results(tmp_path / "whole")
    assert {len(epochs) for epochs in results(joined).values()} == {EPOCHS}
    assert len(results(joined)) == 8


def test_the_script_in_the_docs_covers_the_paper_and_queues_itself_again(tmp_path):
    (script,) = re.findall(r"```bash\n(.*?)```", PAGE.read_text(), re.DOTALL)
    (last,) = re.findall(r"#SBATCH --array=0-(\d+)", script)
    for name, text in {
        "srun": 'exec "$@"',
        "qneurons": 'printf "%s\\n" "$@" > arguments; exit $CODE',
        "scontrol": 'echo "$@" > requeued',
    }.items():
        (tmp_path / name).write_text(f"#!/bin/bash\n{text}\n")
        (tmp_path / name).chmod(0o755)
    runs, stores = [], set()
    for task in range(int(last) + 1):
        environment = {
            "PATH": f"{tmp_path}:{os.environ['PATH']}",
            "SLURM_ARRAY_JOB_ID": "7",
            "SLURM_ARRAY_TASK_ID": str(task),
            "CODE": "3" if task == 5 else "0",
        }
        ended = subprocess.run(["bash", "-c", script], cwd=tmp_path, env=environment, check=False)
        assert ended.returncode == int(environment["CODE"])
        _, _, name, *options = (tmp_path / "arguments").read_text().splitlines()
        given = dict(zip(options[::2], options[1::2], strict=True))
        runs += select(load_study(name), only=given["--only"]).runs
        stores.add(given["--store"])
    assert (tmp_path / "requeued").read_text() == "requeue 7_5\n"
    assert len(stores) == int(last) + 1
    assert sorted(run.id for run in runs) == sorted(run.id for run in load_study("paper").runs)
