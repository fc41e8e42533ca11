"""Which runs are trained together, and how many at once."""

import dataclasses

import pytest
import torch

from qneurons.study import planning
from qneurons.study.networks import initial_state
from qneurons.study.planning import Job, bytes_per_run, default_pack, free_bytes, pending, plan

CPU, CUDA = torch.device("cpu"), torch.device("cuda")
MNIST = (1, 28, 28)


def ten(run):
    return 10


def test_what_is_finished_or_diverged_is_not_pending(make_study):
    study = make_study(num_seeds=4, epochs=5)
    done, lost, begun, new = study.runs
    progress = {done.id: 5, lost.id: 2, begun.id: 4}
    assert pending(study, progress, {lost.id}) == [begun, new]
    further = dataclasses.replace(study, epochs=6)
    assert pending(further, progress, {lost.id}) == [done, begun, new]


def test_runs_go_together_that_can_and_are_equally_far(make_study):
    first = make_study(num_seeds=3).runs
    other = make_study(num_seeds=2, learning_rate=0.1).runs
    progress = {first[1].id: 7, other[0].id: 7}
    jobs = plan([*first, *other], progress, ten)
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
    (job,) = plan(runs, {}, lambda run: 100)
    order = [(run.activation, run.setting) for run in job.runs[::2]]
    assert order == [
        *(("elu", "base"), ("elu", "a1"), ("elu", "c0.1")),
        *(("tanh", "base"), ("tanh", "a1"), ("tanh", "c0.1")),
    ]


@pytest.mark.parametrize("size", [1, 4, 10, 100])
def test_packs_have_at_most_their_size(make_study, size):
    runs = make_study(num_seeds=25).runs
    jobs = plan(runs, {}, lambda run: size)
    assert max(len(job.runs) for job in jobs) == min(size, 25)
    assert sorted(run for job in jobs for run in job.runs) == sorted(runs)


def test_the_same_runs_meet_again_after_a_stop(make_study):
    runs = make_study(num_seeds=25).runs
    jobs = plan(runs, {}, ten)
    progress = {}
    for job in jobs:
        for epoch in (1, 2):
            progress |= {run.id: epoch for run in job.runs}
            again = plan(runs, progress, ten)
            assert {job.runs for job in again} == {job.runs for job in jobs}


def test_a_pack_is_as_large_as_fits(make_study, monkeypatch):
    (run,) = make_study(num_seeds=1).runs
    need = bytes_per_run(run, MNIST)
    for free, cpu, cuda in [
        (need // 2, 1, 1),
        (int(5.01 * need / planning.SHARE), 5, 5),
        (int(50.01 * need / planning.SHARE), planning.CPU_PACK, 50),
        (10**15, planning.CPU_PACK, planning.CUDA_PACK),
        (None, planning.CPU_PACK, planning.CUDA_PACK),
    ]:
        monkeypatch.setattr(planning, "free_bytes", lambda device, free=free: free)
        assert default_pack(run, MNIST, CPU) == cpu
        assert default_pack(run, MNIST, CUDA) == cuda


@pytest.mark.parametrize("network", ["mnist-mlp", "mnist-cnn"])
def test_a_run_needs_room_for_its_weights_and_gradients_and_values(make_study, network):
    (run,) = make_study(num_seeds=1, network=network).runs
    weights = sum(tensor.nbytes for tensor in initial_state(network, MNIST, 0).values())
    assert bytes_per_run(run, MNIST) > 2 * weights
    larger = dataclasses.replace(run, batch_size=64 * run.batch_size)
    assert bytes_per_run(larger, MNIST) > bytes_per_run(run, MNIST)


def test_free_memory_is_read_or_unknown(monkeypatch):
    free = free_bytes(CPU)
    assert free is None or 2**20 < free < 2**50

    class Missing:
        def __init__(self, name):
            pass

        def read_text(self):
            raise FileNotFoundError

    monkeypatch.setattr(planning, "Path", Missing)
    assert free_bytes(CPU) is None


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_free_memory_of_a_gpu():
    assert 2**20 < free_bytes(CUDA) <= torch.cuda.get_device_properties(CUDA).total_memory
