"""Bad arguments of q-activations: which are refused, and what the message names."""

import math
import subprocess
import sys

import pytest
import torch

from qneurons import arguments, q_activation, q_difference, q_limit, q_mean
from qneurons.arguments import find_grouping

FLOATS = torch.ones(4, 3)
SEED = torch.tensor(7)
BAD_CALLS = {
    "seed as a number": (
        lambda: q_activation(FLOATS, "elu", seed=7),
        (TypeError, r"seed.* int64.* int; .*torch\.tensor\(7\)"),
    ),
    "seed of floats": (
        lambda: q_activation(FLOATS, "elu", seed=FLOATS),
        (TypeError, r"seed.* int64.* torch\.float32"),
    ),
    "seed and generator": (
        lambda: q_activation(FLOATS, "elu", seed=SEED, generator=torch.Generator()),
        (ValueError, "seed and generator"),
    ),
    "seed of another shape": (
        lambda: q_activation(FLOATS, "elu", seed=torch.arange(2)),
        (ValueError, r"seed.* broadcast.* \(4, 3\).* \(2,\)"),
    ),
    "seed with a hole": (
        lambda: q_activation(torch.ones(2, 3, 4), "elu", seed=torch.ones(2, 1, 4).long()),
        (ValueError, r"seed.* dimension of size 1.* \(2, 1, 4\)"),
    ),
    "seed on another device": (
        lambda: q_activation(FLOATS, "elu", seed=torch.tensor(7, device="meta")),
        (ValueError, r"seed.* cpu.* meta; .*seed\.to\(x\.device\)"),
    ),
    "lam of other groups than seed": (
        lambda: q_activation(FLOATS, "elu", torch.ones(3), seed=torch.arange(4)[:, None]),
        (ValueError, r"lam.* seed.* \(3,\) and \(4, 1\)"),
    ),
    "negative lam": (
        lambda: q_activation(FLOATS, "elu", -0.1),
        (ValueError, r"lam.* 0 or more.* -0\.1"),
    ),
    "negative lam, limit": (
        lambda: q_activation(FLOATS, "elu", -0.1, training=False),
        (ValueError, r"lam.* -0\.1"),
    ),
    "nan lam": (lambda: q_activation(FLOATS, "elu", math.nan), (ValueError, "lam.* nan")),
    "infinite lam": (lambda: q_mean(FLOATS, "elu", math.inf), (ValueError, "lam.* inf")),
    "negative lam tensor": (
        lambda: q_activation(FLOATS, "elu", torch.tensor([0.1, -2.0, 1.0])),
        (ValueError, r"lam.* 0 or more.* -2\.0"),
    ),
    "lam tensor beyond float32": (
        lambda: q_activation(FLOATS, "elu", torch.tensor(1e300, dtype=torch.float64)),
        (ValueError, r"lam.* finite in float32.* 1e\+300"),
    ),
    "nan lam tensor": (
        lambda: q_activation(FLOATS, "elu", torch.tensor(math.nan)),
        (ValueError, "lam.* nan"),
    ),
    "nan lam tensor, mean": (
        lambda: q_mean(FLOATS, "elu", torch.tensor(math.nan)),
        (ValueError, "lam.* nan"),
    ),
    "shape of lam": (
        lambda: q_activation(FLOATS, "elu", torch.ones(4)),
        (ValueError, r"lam.* broadcast.* \(4,\).* \(4, 3\); reshape"),
    ),
    "lam larger than x": (
        lambda: q_mean(FLOATS, "elu", torch.ones(2, 4, 3)),
        (ValueError, r"lam.* broadcast.* \(2, 4, 3\).* \(4, 3\); reshape"),
    ),
    "integer lam tensor": (
        lambda: q_activation(FLOATS, "elu", torch.ones(3, dtype=torch.int64)),
        (TypeError, r"lam.* torch\.int64.*lam\.detach\(\)\.float\(\)"),
    ),
    "lam with gradient": (
        lambda: q_activation(FLOATS, "elu", torch.ones(3, requires_grad=True)),
        (TypeError, r"lam.* requires_grad=True.*lam\.detach\(\)"),
    ),
    "negative phi": (
        lambda: q_activation(FLOATS, "elu", phi=-1e-3),
        (ValueError, r"phi.* 0 or more.* -0\.001"),
    ),
    "nan phi": (lambda: q_mean(FLOATS, "elu", 0.1, math.nan), (ValueError, "phi.* nan")),
    "tensor phi": (
        lambda: q_activation(FLOATS, "elu", phi=torch.tensor(0.5)),
        (ValueError, r"phi.* tensor\(0\.5"),
    ),
    "unknown eval_mode": (
        lambda: q_activation(FLOATS, "elu", eval_mode="average"),
        (ValueError, "eval_mode.* limit, mean, sample.*'average'"),
    ),
}


@pytest.mark.parametrize("name", BAD_CALLS)
def test_bad_argument(name):
    call, (error, message) = BAD_CALLS[name]
    with pytest.raises(error, match=message):
        call()


@pytest.mark.parametrize(
    "function",
    [
        lambda x: q_activation(x, "elu"),
        lambda x: q_activation(x, "elu", training=False),
        lambda x: q_difference(x, 0.5, "elu"),
        lambda x: q_limit(x, "elu"),
        lambda x: q_mean(x, "elu", 0.1),
    ],
)
def test_bad_x(function):
    for x, message in (
        (torch.arange(3), r"x.* torch\.int64.*x\.float\(\)$"),
        (torch.ones(3, dtype=torch.bool), r"x.* torch\.bool.*x\.float\(\)$"),
        (torch.ones(3, dtype=torch.complex64), r"x.* torch\.complex64.* real"),
        (torch.eye(3).to_sparse(), r"x.* torch\.sparse_coo.*x\.to_dense\(\)"),
        ([1.0, 2.0], "x.* tensor.* list"),
        (1.0, "x.* tensor.* float"),
    ):
        with pytest.raises(TypeError, match=message):
            function(x)


@pytest.mark.filterwarnings("ignore:.*prototype stage")  # torch's own, once
def test_a_nested_tensor_of_the_older_layout():
    x = torch.nested.nested_tensor([torch.ones(2), torch.ones(3)])
    with pytest.raises(TypeError, match=r"x.* strided layout; .*layout=torch\.jagged"):
        q_limit(x, "elu")


@pytest.mark.parametrize(
    ("values", "shape", "grouping"),
    [
        ((), (4, 3), (1, 12)),
        ((1, 1), (4, 3), (1, 12)),
        ((4, 1), (4, 3), (4, 3)),
        ((3,), (4, 3), (3, 1)),
        ((4, 3), (4, 3), (12, 1)),
        ((3, 1), (2, 3, 5), (3, 5)),
        ((2, 3, 1), (2, 3, 5), (6, 5)),
        ((2, 1, 5), (2, 3, 5), None),
        ((0,), (4, 0), (0, 1)),
        ((0, 1), (0, 5), (0, 5)),
    ],
)
def test_element_i_is_in_group_i_over_neighbours_modulo_groups(values, shape, grouping):
    index = torch.arange(math.prod(values)).reshape(values)
    assert find_grouping(index, torch.Size(shape)) == grouping
    if grouping is not None and grouping[0] > 1:
        groups, neighbours = grouping
        i = torch.arange(math.prod(shape)).reshape(shape)
        assert torch.equal(index.expand(shape), i // neighbours % groups)


def test_what_broadcasts_is_what_torch_broadcasts():
    shapes = [(), (1,), (3,), (4, 1), (4, 3), (1, 3), (2, 4, 3), (0,), (3, 4), (0, 3), (1, 1, 1)]
    for own in shapes:
        for size in shapes:
            try:
                expected = torch.broadcast_shapes(own, size) == torch.Size(size)
            except RuntimeError:
                expected = False
            assert arguments._broadcasts(torch.empty(own), torch.empty(size)) == expected


def test_seeds_and_tensors_of_lam_do_not_import_sympy():
    script = (
        "import sys, torch, qneurons as qn; x = torch.ones(4, 3);"
        "qn.q_elu(x, torch.ones(3)); qn.q_elu(x, seed=torch.arange(4)[:, None]);"
        "assert 'sympy' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", script], check=True)
