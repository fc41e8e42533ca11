"""The private names of torch: that they answer what they are asked, and are used nowhere else."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch.autograd import forward_ad
from torch.func import jacfwd, vmap
from torch.utils._python_dispatch import TorchDispatchMode

import qneurons
from qneurons import torch_internals
from qneurons.torch_internals import is_unobserved


def test_no_other_file_uses_a_private_name():
    source = Path(qneurons.__file__).parent
    private = re.compile(r"torch\._C\b|\b_C\.|import _C\b|forward_ad\._|_functorch\b|_dynamo_\w+")
    users = [path.name for path in source.rglob("*.py") if private.search(path.read_text())]
    assert users == ["torch_internals.py"]


def test_transforms_are_seen():
    seen = []

    def ask(x):
        seen.append((torch_internals.in_func_transform(), torch_internals.is_func_tensor(x)))
        assert torch_internals.is_transformed()
        return x

    vmap(ask)(torch.ones(2))
    torch.func.grad(ask)(torch.tensor(1.0))
    assert seen == [(True, True)] * 2
    assert not torch_internals.in_func_transform()
    assert not torch_internals.is_func_tensor(torch.ones(2))
    assert not torch_internals.is_transformed()
    with forward_ad.dual_level():
        assert torch_internals.is_transformed()
        assert not torch_internals.in_func_transform()


def test_plain_memory():
    x = torch.ones(4)
    parameter = torch.nn.Parameter(x)
    lazily_negative = torch.complex(x, x).conj().imag
    lazily_zero = torch._efficientzerotensor(4)
    with torch.inference_mode():
        made_in_inference = torch.ones(4)
    for plain in (x, x.clone().requires_grad_(), x[::2], made_in_inference):
        assert torch_internals.is_plain_memory(plain)
        assert is_unobserved(plain)
    for other in (parameter, lazily_negative, lazily_zero):
        assert not torch_internals.is_plain_memory(other)
    assert not is_unobserved(lazily_negative)


def test_the_package_may_be_imported_in_inference_mode():
    with torch.inference_mode():
        keys = torch_internals._plain_keys.__wrapped__("cpu")
    assert keys == torch_internals._cpu_keys


class Watch(TorchDispatchMode):
    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        return function(*args, **(kwargs or {}))


@pytest.mark.filterwarnings("ignore:.*torch.jit")  # deprecated
def test_whoever_watches_is_seen():
    x, answers = torch.ones(4), []
    with Watch():
        answers.append(is_unobserved(x))
    vmap(lambda row: answers.append(is_unobserved(x)) or row)(torch.ones(2))
    torch.jit.trace(lambda y: answers.append(is_unobserved(x)) or y + 1, x, check_trace=False)
    assert answers == [False] * 3
    assert is_unobserved(x)


def test_a_marked_function_is_constant_and_dynamo_is_not_imported():
    script = (
        "import sys, qneurons; assert 'torch._dynamo' not in sys.modules\n"
        "from qneurons.kernels import is_fused; assert is_fused._dynamo_marked_constant"
    )
    subprocess.run([sys.executable, "-c", script], check=True)


class Square(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(x):
        return x * x

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_forward(*inputs)

    @staticmethod
    def jvp(ctx, tangent):
        (x,) = ctx.saved_tensors
        with torch_internals.outer_forward_mode(x) as (x,):
            return 2 * x * tangent


def test_an_outer_forward_mode_differentiates_a_jvp():
    x = torch.tensor([1.0, 2.0])
    total = lambda y: Square.apply(y).sum()  # noqa: E731
    assert torch.equal(jacfwd(jacfwd(total))(x), 2 * torch.eye(2))


class Double(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return 2 * x

    @staticmethod
    def backward(ctx, grad):
        return 2 * grad


def test_the_short_apply_differentiates():
    x = torch.ones(3, requires_grad=True)
    torch_internals.eager_apply(Double)(x).sum().backward()
    assert torch.equal(x.grad, torch.full((3,), 2.0))
