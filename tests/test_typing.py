"""What mypy --strict says about code that uses the library."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("mypy")

ROOT = Path(__file__).parent.parent
HEAD = "import torch\nfrom torch import Tensor, nn\n\nimport qneurons as qn\n\nx = torch.ones(3)\n"
RIGHT = """
model: nn.Module = qn.convert(nn.Sequential(nn.ReLU()), lam=0.1, include="relu", exclude=nn.ELU)
layers: list[qn.QActivation] = [qn.QELU(lam=0.1, phi=1e-3, alpha=0.5), qn.QTanh(inplace=True)]
layers.append(qn.QGELU(0.1, 1e-3, "mean", approximate="tanh"))
plan: qn.ConversionPlan = qn.conversion_plan(model, alias={nn.SiLU: "silu"})
model = qn.revert(qn.configure(model, lam=0.1, eval_mode="mean"))
layers.append(qn.QHardtanh(min_val=-2.0, max_val=2))
layers[0].lam, layers[0].eval_mode = 0.02, "sample"
values: list[Tensor] = [layer(x) for layer in layers]
y: Tensor = qn.q_elu(x, torch.tensor(0.1), training=False, eval_mode="mean", alpha=2.0)
y = qn.q_softplus(x, 0.1, 0.0, seed=torch.tensor(7), beta=2.0)
y = qn.q_activation(x, "elu") + qn.q_limit(x, nn.ELU()) + qn.q_mean(x, torch.sin, 0.1)
y = qn.moments.mean(x, "tanh", lam=1.0) + qn.calculus.q_derivative(torch.square, x, 2.0)
scheduler = qn.LambdaScheduler(model, qn.Annealed(5.0))
lam: float = scheduler.get_last_lam() + qn.parse_schedule("a5")(3)
version: str = qn.__version__
law: Tensor = qn.QLaw(lam=1.0).sample((3,))
row: qn.Activation = qn.resolve("elu", alpha=0.5)
"""
WRONG = """
qn.no_such_thing(3)
qn.QELU(lam="x")
qn.QELU(alfa=3)
qn.QELU(0.1)
qn.QLeakyReLU(0.2)
qn.QGELU(approximate="erf")
qn.configure(nn.ReLU(), lambd=0.1)
qn.QTanh(alpha=1.0)
qn.QSoftplus(beta="1")
qn.QReLU(eval_mode="average")
qn.QActivation()
qn.QReLU().eval_mode = "average"
qn.q_elu(x, alfa=1)
qn.q_elu([1.0])
qn.q_tanh(x, alpha=1.0)
qn.q_relu(x, 0.1, 1e-3, False)
qn.q_relu(x, seed=7)
qn.q_gelu(x, eval_mode="average")
qn.q_activation(x)
qn.q_mean(x, "elu")
qn.convert(3)
qn.convert(nn.ReLU(), eval_mode="average")
qn.convert(nn.ReLU(), include=3)
qn.LambdaScheduler(nn.ReLU(), 0.02)
qn.moments.median(x, "tanh", lam=1.0)
qn.Annealed("5")
text: str = qn.q_sigmoid(x)
"""
# Parts of torch that no signature of ours names; reading them takes half of the time.
UNREAD = (
    *("_dynamo", "_functorch", "_higher_order_ops", "_inductor", "_subclasses", "cuda"),
    *("distributed", "export", "fx", "onnx", "utils"),
)


def test_every_mistake_is_reported_and_nothing_else(tmp_path):
    files = {"right.py": HEAD + RIGHT, "wrong.py": HEAD + WRONG}
    unread = ",".join(f"torch.{part}.*" for part in UNREAD)
    config = f"[mypy]\n[mypy-{unread}]\nfollow_imports = skip\n"
    for name, text in {**files, "mypy.ini": config}.items():
        (tmp_path / name).write_text(text)
    run = subprocess.run(
        [
            *(sys.executable, "-m", "mypy", "--strict", "--config-file=mypy.ini"),
            "--follow-imports=silent",  # the library itself is checked elsewhere
            f"--cache-dir={ROOT / '.mypy_cache' / 'users'}",
            *files,
        ],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={**os.environ, "MYPYPATH": str(ROOT / "src")},
    )
    assert not run.stderr
    found = re.findall(r"^(\w+\.py):(\d+): error", run.stdout, re.MULTILINE)
    reported = {(name, files[name].splitlines()[int(line) - 1]) for name, line in found}
    assert reported == {("wrong.py", line) for line in WRONG.split("\n") if line}, run.stdout
