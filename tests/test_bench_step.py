"""The benchmark of a training step."""

import sys
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F

import qneurons as qn
from qneurons import bench
from qneurons.study.networks import build

sys.path.append(str(Path(__file__).parents[1] / "benchmarks"))
bench_step = pytest.importorskip("bench_step")


def test_a_step_learns():
    torch.manual_seed(0)
    images, labels = torch.rand(4, 1, 28, 28), torch.tensor([0, 1, 2, 3])
    model = build("mnist-cnn", images.shape[1:], qn.resolve("elu"), "q")
    step = bench_step.training_step(model, images, labels)
    before = F.cross_entropy(model(images), labels)
    for _ in range(3):
        step()
    assert F.cross_entropy(model(images), labels) < before


@pytest.mark.parametrize("step", [bench_step.TRAINING, bench_step.EVALUATION])
def test_the_step_of_both_is_measured_and_precision_is_put_back(step):
    before = torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32
    case = bench_step.StepCase("elu", "tf32", batch=2, step=step)
    rows = bench.run(case, torch.device("cpu"), seconds=0)
    assert (torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32) == before
    plain, ours = rows
    assert (plain["variant"], ours["variant"]) == ("plain", "qneurons")
    assert ours["to_plain"] == ours["median_us"] / plain["median_us"]
    assert ours["pass"] == f"{step}, MNIST-CNN, batch 2"
