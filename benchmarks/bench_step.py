"""Time of a pass through the paper's MNIST-CNN, with the q-activation and with the plain one.

    python benchmarks/bench_step.py [--activation elu] [--precision tf32 fp32] [--evaluation]

A pass is a training step, or a forward in evaluation, on CUDA also as a CUDA graph. Rows are
appended to results/activation-cpu.csv (or -cuda), which performance.py reads.
"""

import argparse
import shlex
import sys
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.nn.functional as F

import qneurons as qn
from qneurons import bench
from qneurons.activations import resolve
from qneurons.measuring import failure_noted, measure, ratio
from qneurons.provenance import provenance
from qneurons.study.networks import build
from qneurons.study.packs.pack import computing

TRAINING, EVALUATION, GRAPH = "training step", "evaluation", "evaluation as a CUDA graph"


@dataclass(frozen=True)
class StepCase:
    """One pass through the paper's MNIST-CNN, in ``"fp32"`` or ``"tf32"``."""

    activation: str
    precision: str
    batch: int = 64
    step: str = TRAINING

    def about(self):
        which = f"{self.step}, MNIST-CNN, batch {self.batch}"
        return {"activation": self.activation, "pass": which, "dtype": self.precision}

    def measure(self, device: torch.device, *, seconds: float):
        """Measures the pass with the plain activation and with ours."""
        images = torch.rand(self.batch, 1, 28, 28, device=device)
        labels = torch.randint(10, (self.batch,), device=device)
        rows = {variant: self.about() | {"variant": variant} for variant in ("plain", "qneurons")}
        calls = {}
        if device.type == "cuda":
            torch.compiler.reset()
        with computing(self.precision, device):
            for (variant, row), kind in zip(rows.items(), ("base", "q"), strict=True):
                model = build("mnist-cnn", images.shape[1:], resolve(self.activation), kind)
                model.to(device)
                with failure_noted(row):
                    if self.step == TRAINING:
                        calls[variant] = training_step(model, images, labels)
                    else:
                        forward = evaluation(model, images)
                        calls[variant] = captured(forward) if self.step == GRAPH else forward
            timings = measure(calls, device, seconds=seconds)
        for variant, timing in timings.items():
            rows[variant] |= timing
            if "error" not in timing:
                rows[variant]["to_plain"] = ratio(timing, rows["plain"])
        return list(rows.values())


def training_step(model, images, labels):
    """Forward, loss, backward and update: eager on the CPU, compiled and one CUDA graph on CUDA."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, foreach=True)

    def loss(images, labels):
        return F.cross_entropy(model(images), labels)

    on_cuda = images.device.type == "cuda"
    compute_loss = torch.compile(loss, dynamic=False) if on_cuda else loss

    def step():
        optimizer.zero_grad()
        compute_loss(images, labels).backward()
        optimizer.step()

    # The gradients are dropped, so that those of the capture lie in the graph's own memory.
    return captured(step, optimizer.zero_grad) if on_cuda else step


def captured(call, before_capture=lambda: None):
    """Replays a CUDA graph of the call."""
    side = torch.cuda.Stream()  # capturing needs a warm-up on another stream
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            call()
    torch.cuda.current_stream().wait_stream(side)
    before_capture()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        call()
    return graph.replay


def evaluation(model, images):
    """A forward in evaluation, in the limit."""
    for module in model.eval().modules():
        if isinstance(module, qn.QActivation):
            module.eval_mode = "limit"

    @torch.inference_mode()
    def forward():
        return model(images)

    return forward


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--activation", default="elu")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--precision", nargs="+", default=["tf32", "fp32"])
    parser.add_argument("--evaluation", action="store_true", help="leave out training steps")
    parser.add_argument("--seconds", type=float, default=1.0)
    options = parser.parse_args()
    device = torch.device(options.device)
    path = bench.results_file(Path(__file__).parent / "results", device)
    origin = provenance(device, shlex.join(["python", *sys.argv]))
    passes = [] if options.evaluation else [(TRAINING, 64)]
    passes += [(EVALUATION, 64), (EVALUATION, 1000)]
    if device.type == "cuda":
        passes.append((GRAPH, 64))
    cases = [
        StepCase(options.activation, precision, batch, step)
        for precision in options.precision
        for step, batch in passes
    ]
    for case in cases:
        rows = bench.run(case, device, seconds=options.seconds)
        bench.append_rows(path, bench.COLUMNS, (row | origin for row in rows))
        for row in rows:
            print(case, row["variant"], row.get("error") or f"{row['median_us']:.1f} us")


if __name__ == "__main__":
    main()
