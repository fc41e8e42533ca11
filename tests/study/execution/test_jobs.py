"""Which runs are trained, and which together."""

import dataclasses

import pytest
import torch

from qneurons.study.execution.jobs import Job, make_jobs, pending

CPU, CUDA = torch.device("cpu"), torch.device("cuda")


def ten(run):
    return 10


def test_what_is_finished_or_diverged_is_not_pending(make_study):
    study = make_study(num_seeds=4, epochs=5)
    done, lost, begun, new = study.runs
    progress = {done.id: 5, lost.id: 2, begun.id: 4}
    assert pending(study, progress, {lost.id}) == [begun, new]
    further = dataclasses.replace(study, epochs=6)
    assert pending(further, progress, {lost.id}) == [done, begun, new]


def test_a_run_of_one_epoch_is_pending_until_it_is_done(make_study):
    study = make_study(num_seeds=2, epochs=1)
    assert pending(study, {study.runs[0].id: 1}, set()) == [study.runs[1]]


def test_runs_go_together_that_can_and_are_equally_far(make_study):
    first = make_study(num_seeds=3).runs
    other = make_study(num_seeds=2, batch_size=32).runs
    progress = {first[1].id: 7, other[0].id: 7}
    jobs = make_jobs([*first, *other], progress, ten)
    assert jobs == [
        Job((first[1],), 7),
        Job((other[0],), 7),
        Job((first[0], first[2]), 0),
        Job((other[1],), 0),
    ]


def test_like_runs_are_neighbours(make_study):
    study = make_study(num_seeds=2, activations=("tanh", "elu"))
    runs = [
        dataclasses.replace(run, setting=setting)
        for setting in ("a1", "base", "c0.1")
        for run in study.runs
    ]
    (job,) = make_jobs(runs, {}, lambda run: 100)
    order = [(run.activation, run.setting) for run in job.runs[::2]]
    assert order == [
        *(("elu", "base"), ("elu", "a1"), ("elu", "c0.1")),
        *(("tanh", "base"), ("tanh", "a1"), ("tanh", "c0.1")),
    ]


def test_runs_of_a_protocol_stay_together_in_whatever_order_they_come(make_study):
    slow, fast = (make_study(num_seeds=3, learning_rate=rate).runs for rate in (0.1, 0.2))
    expected = [Job(slow, 0), Job(fast, 0)]
    for runs in ([*slow, *fast], [*fast, *slow], [*slow, *fast][::-1]):
        assert make_jobs(runs, {}, lambda run: 3) == expected


@pytest.mark.parametrize("size", [1, 4, 10, 100])
def test_packs_have_at_most_their_size(make_study, size):
    runs = make_study(num_seeds=25).runs
    jobs = make_jobs(runs, {}, lambda run: size)
    assert max(len(job.runs) for job in jobs) == min(size, 25)
    assert sorted(run for job in jobs for run in job.runs) == sorted(runs)


def test_the_same_runs_meet_again_after_a_stop(make_study):
    runs = make_study(num_seeds=25).runs
    jobs = make_jobs(runs, {}, ten)
    progress = {}
    for job in jobs:
        for epoch in (1, 2):
            progress |= {run.id: epoch for run in job.runs}
            again = make_jobs(runs, progress, ten)
            assert {job.runs for job in again} == {job.runs for job in jobs}
