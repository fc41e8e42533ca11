"""The raw ops: their schema, fake tensors, vmap, and what differentiation makes of them."""

import pytest
import torch
from torch.func import grad, hessian, jacfwd, jvp, vmap

from qneurons import q_activation, q_limit
from qneurons.kernels import ops, plain


@pytest.fixture(autouse=True)
def default_device(served_by):
    with torch.device(served_by.device):
        yield


@pytest.fixture
def precise(served_by):
    """The dtype in which a backend is compared with autograd, and the tolerance."""
    if served_by.supports(torch.float64, "q_tanh"):
        return torch.float64, 1e-6
    return torch.float32, 1e-4


def randn(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    generator = torch.Generator("cpu").manual_seed(0)
    x = torch.randn(shape, dtype=dtype, generator=generator, device="cpu")
    return x.to(torch.get_default_device())


def law(*seeds: int):
    return torch.tensor(seeds), torch.linspace(0.7, 0.1, len(seeds)), randn(1).abs()


@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
def test_opcheck(layout):
    x = randn(2, 3, 4, 5).to(memory_format=layout)
    arguments = (*law(7, 8, 9), 20, "q_tanh", [])
    torch.library.opcheck(torch.ops.qneurons.sample, (x, *arguments))
    torch.library.opcheck(torch.ops.qneurons.sample_backward, (x, x, *arguments))
    torch.library.opcheck(torch.ops.qneurons.limit, (x, "q_tanh", []))
    torch.library.opcheck(torch.ops.qneurons.limit_backward, (x, x, "q_tanh", []))


def test_fake_tensors_have_the_strides_of_the_real():
    x = randn(2, 3, 4, 5).to(memory_format=torch.channels_last)[:, :2]
    arguments = (*law(7), x.numel(), "q_tanh", [])
    real = ops.sample(x, *arguments)
    with torch._subclasses.FakeTensorMode() as mode:
        fake = ops.sample(
            mode.from_tensor(x), *(mode.from_tensor(t) for t in arguments[:3]), *arguments[3:]
        )
    assert fake.stride() == real.stride()
    assert fake.dtype == real.dtype


# --- malformed calls ------------------------------------------------------------------------------

GOOD = {
    "x": torch.ones(4, 6),
    "seed": torch.arange(2),
    "lam": torch.ones(2),
    "phi": torch.zeros(1),
    "inner": 3,
    "name": "q_elu",
    "parameters": [1.0],
}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"inner": 0}, "inner.*got 0"),
        ({"inner": -3}, "inner.*got -3"),
        ({"inner": 5}, "2 groups times inner must divide the 24 elements.*got 5"),
        ({"inner": 2**62}, "inner.*got 4611686018427387904"),
        ({"seed": torch.arange(0)}, r"seed must .*shape \(1,\).*shape \(0,\)"),
        ({"seed": torch.arange(0), "lam": torch.ones(0)}, "seed must"),
        ({"seed": torch.arange(5), "lam": torch.ones(5)}, "5 groups"),
        ({"seed": torch.arange(2).int()}, "seed must .*int64.*got torch.int32"),
        ({"seed": torch.ones(2)}, "seed must .*int64.*got torch.float32"),
        ({"seed": torch.arange(2)[None]}, r"seed must .*\(1, 2\)"),
        ({"lam": torch.ones(0)}, r"lam must .*shape \(2,\).*shape \(0,\)"),
        ({"lam": torch.ones(1)}, r"lam must .*shape \(2,\).*shape \(1,\)"),
        ({"lam": torch.ones(3)}, r"lam must .*shape \(2,\).*shape \(3,\)"),
        ({"lam": torch.ones(2).long()}, "lam must .*got torch.int64"),
        ({"phi": torch.ones(0)}, r"phi must .*shape \(1,\)"),
        ({"phi": torch.ones(2)}, r"phi must .*shape \(1,\)"),
        ({"phi": torch.zeros(1).bool()}, "phi must .*got torch.bool"),
        ({"x": torch.ones(4, 6).long()}, "x must be of a floating dtype, got torch.int64"),
        ({"x": torch.ones(4, 6) * 1j}, "x must be of a floating dtype, got torch.complex64"),
        ({"name": "elu"}, "unknown row 'elu'.*q_elu"),
        ({"name": "Tensor"}, "unknown row 'Tensor'"),
        ({"name": ""}, "unknown row ''"),
        ({"parameters": []}, r"unknown row 'q_elu' with 0 parameters.*q_elu \(1\)"),
        ({"parameters": [1.0, 2.0]}, "unknown row 'q_elu' with 2 parameters"),
        ({"grad": torch.ones(4, 5)}, r"grad must .*\(4, 6\).*got torch.float32 of shape \(4, 5\)"),
        ({"grad": torch.ones(0)}, "grad must"),
        ({"grad": torch.ones(24)}, "grad must"),
        ({"grad": torch.ones(4, 6).long()}, "grad must .*got torch.int64"),
    ],
    ids=str,
)
def test_a_malformed_call_raises_before_it_reaches_a_kernel(served_by, changes, message):
    good = {"grad": torch.ones(4, 6), **GOOD}

    def call(op, arguments):
        return op(*(v.to(served_by.device) if torch.is_tensor(v) else v for v in arguments))

    assert call(torch.ops.qneurons.sample_backward, good.values()).shape == (4, 6)
    arguments = list((good | changes).values())
    with pytest.raises((TypeError, ValueError), match=message):
        call(torch.ops.qneurons.sample_backward, arguments)
    if "grad" not in changes:
        with pytest.raises((TypeError, ValueError), match=message):
            call(torch.ops.qneurons.sample, arguments[1:])
    if not changes.keys() & {"seed", "lam", "phi", "inner"}:
        with pytest.raises((TypeError, ValueError), match=message):
            call(torch.ops.qneurons.limit_backward, arguments[:2] + arguments[-2:])


def test_tensors_on_two_devices_are_refused():
    x, elsewhere = randn(3, 3), torch.ones(3, 3, device="meta")
    with pytest.raises(ValueError, match="one device"):
        torch.ops.qneurons.limit_backward(elsewhere, x, "q_tanh", [])
    with pytest.raises(ValueError, match="one device"):
        torch.ops.qneurons.sample(elsewhere, *law(7), 9, "q_tanh", [])


# --- vmap -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("in_dims", "inner"),
    [
        ((0, 0, 0), 4),
        ((2, None, None), 4),
        ((None, 0, None), 4),
        ((1, 0, 0), 4),
        ((1, 0, 0), 12),
    ],
)
def test_vmap_is_a_loop(in_dims, inner):
    """Groups of 12 neighbours fill a sample of 24, groups of 4 repeat three times in it."""
    batch = 2
    x = randn(batch, 6, 4)
    seed = torch.arange(2 * batch).reshape(batch, 2)
    lam = torch.rand(batch, 2)
    tensors = [
        t[0] if dim is None else t.movedim(0, dim)
        for t, dim in zip((x, seed, lam), in_dims, strict=True)
    ]
    phi = torch.zeros(1)

    def forward(x, seed, lam):
        return ops.sample(x, seed, lam, phi, inner, "q_elu", [1.0])

    def backward(x, seed, lam):
        return ops.sample_backward(x + 1, x, seed, lam, phi, inner, "q_elu", [1.0])

    for function in (forward, backward):
        got = vmap(function, in_dims)(*tensors)
        for sample in range(batch):
            one = [
                t if dim is None else t.select(dim, sample)
                for t, dim in zip(tensors, in_dims, strict=True)
            ]
            torch.testing.assert_close(got[sample], function(*one))


def test_vmap_of_a_gradient_draws_each_sample_its_own_noise():
    x = randn(3, 100)
    seeds = torch.arange(3)

    def slope(x, seed):
        return grad(lambda y: q_activation(y, "tanh", 0.5, seed=seed).sum())(x)

    got = vmap(slope)(x, seeds)
    for sample in range(3):
        torch.testing.assert_close(got[sample], slope(x[sample], seeds[sample]))


@pytest.mark.parametrize("in_dims", [(0, None), (None, 1), (1, 0)])
def test_vmap_of_the_limit(in_dims):
    row, sizes = ("q_elu", [0.5]), ([5], [5, 3], [3, 5])
    grad, x = (randn(*sizes[0 if dim is None else 2 - dim]) for dim in in_dims)
    got = vmap(lambda g, y: ops.limit_backward(g, y, *row), in_dims)(grad, x)
    for sample in range(3):
        one = (
            t if dim is None else t.select(dim, sample)
            for t, dim in zip((grad, x), in_dims, strict=True)
        )
        torch.testing.assert_close(got[sample], ops.limit_backward(*one, *row))
    x = randn(5, 3)
    got = vmap(lambda y: ops.limit(y, *row), in_dims=1, out_dims=1)(x)
    torch.testing.assert_close(got, ops.limit(x, *row))


# --- differentiation at given seeds ---------------------------------------------------------------


@pytest.fixture(params=["draw", "limit"])
def drawn(precise, request):
    """A draw at given seeds, or the limit, and the same for autograd to differentiate."""
    dtype, tolerance = precise
    x = randn(3, 2, dtype=dtype)
    if request.param == "limit":
        naive_limit = lambda y: (y.double() / torch.cosh(y.double()) ** 2).to(dtype)  # noqa: E731
        return x, lambda y: q_limit(y, "tanh"), naive_limit, tolerance
    seed = torch.tensor([3, 4])

    def draw(y):
        return q_activation(y, "tanh", 0.7, seed=seed)

    def naive(y):
        lam = torch.tensor([0.7], dtype=torch.float64).expand(2)
        phi = torch.tensor([1e-3], dtype=torch.float64)
        delta = plain.seeded_delta(y.shape, seed, lam, phi, 1, dtype=torch.float64)
        y = y.double()
        return ((torch.tanh(y * (1 + delta)) - torch.tanh(y)) / delta).to(dtype)

    return x, draw, naive, tolerance


def test_every_mode_of_differentiation(drawn):
    x, draw, naive, tolerance = drawn
    torch.testing.assert_close(draw(x), naive(x), rtol=tolerance, atol=tolerance)
    tangent = x.flip(0)
    for transform in (
        lambda f: grad(lambda y: f(y).sum())(x),
        lambda f: jvp(f, (x,), (tangent,))[1],
        lambda f: jacfwd(f)(x),
        lambda f: hessian(lambda y: f(y).sum())(x),
        lambda f: grad(lambda y: jvp(f, (y,), (tangent,))[1].sum())(x),
        lambda f: jvp(grad(lambda y: (tangent * f(y)).sum()), (x,), (tangent,))[1],
    ):
        torch.testing.assert_close(
            transform(draw), transform(naive), rtol=tolerance, atol=tolerance
        )


def test_second_and_third_derivatives_by_autograd(drawn):
    x, draw, naive, tolerance = drawn
    derivatives = []
    for function in (draw, naive):
        leaf = x.clone().requires_grad_()
        value = function(leaf).square().sum()
        found = []
        for _ in range(3):
            (value,) = torch.autograd.grad(value, leaf, create_graph=True)
            found.append(value.detach())
            value = value.sum()
        derivatives.append(found)
    torch.testing.assert_close(*derivatives, rtol=tolerance, atol=tolerance)


# --- tensors that are not plain memory ------------------------------------------------------------


def test_a_lazily_negated_tensor_is_read_as_it_is_seen():
    x = torch.complex(randn(20), randn(20)).conj().imag
    assert x.is_neg()
    seed = torch.tensor(1)
    want = q_activation(x.resolve_neg(), "elu", 0.5, seed=seed)
    assert torch.equal(q_activation(x, "elu", 0.5, seed=seed), want)
    leaf = x.resolve_neg().clone().requires_grad_()
    value = q_activation(leaf, "elu", x.resolve_neg().abs()[0], seed=seed)
    gradients = [torch.autograd.grad(value, leaf, g, retain_graph=True)[0] for g in (x, x + 0)]
    assert torch.equal(*gradients)


def test_a_lazy_zero_gradient_is_zero():
    x = randn(64).requires_grad_()
    value = q_activation(x, "tanh", 0.5, seed=torch.tensor(1))
    (got,) = torch.autograd.grad(value, x, torch._efficientzerotensor(64, device=x.device))
    assert not got.any()


def test_batched_gradients():
    x = randn(6).requires_grad_()
    value = q_activation(x, "tanh", 0.5, seed=torch.tensor(1))
    (rows,) = torch.autograd.grad(value, x, torch.eye(6), retain_graph=True, is_grads_batched=True)
    (slope,) = torch.autograd.grad(value.sum(), x)
    torch.testing.assert_close(rows, slope.diag())


def test_forward_mode_through_backward():
    x, seed, tangent = randn(6).requires_grad_(), torch.tensor(1), randn(6).flip(0)
    value = q_activation(x, "tanh", 0.5, seed=seed)

    def pull(v):
        return torch.autograd.grad(value, x, v, retain_graph=True)[0]

    slope = pull(torch.ones(6))
    _, got = jvp(pull, (torch.ones(6),), (tangent,))
    torch.testing.assert_close(got, slope * tangent)
    with torch.autograd.forward_ad.dual_level():
        dual = torch.autograd.forward_ad.make_dual(torch.ones(6), tangent)
        got = torch.autograd.forward_ad.unpack_dual(pull(dual)).tangent
    torch.testing.assert_close(got, slope * tangent)


def test_second_derivatives_in_half_precision_do_not_overflow():
    x = torch.tensor([-1.0], dtype=torch.float16, requires_grad=True)
    value = q_activation(x, "elu", 0.02, seed=torch.tensor(1))
    grad_of_value = torch.tensor([3000.0], dtype=torch.float16, requires_grad=True)
    (slope,) = torch.autograd.grad(value, x, grad_of_value, create_graph=True)
    (second,) = torch.autograd.grad(slope, x, torch.tensor([30.0], dtype=torch.float16))
    assert second.isfinite().all()
