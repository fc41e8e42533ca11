"""Jagged nested tensors and DTensors. For two real processes see kernels/test_autograd.py."""

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, init_device_mesh
from torch.testing._internal.distributed.fake_pg import FakeStore

import qneurons as qn
from qneurons.containers import is_container

LAYERS = {
    "sample": qn.QGELU(lam=0.5),
    "limit": qn.QGELU(lam=0.5).eval(),
    "mean": qn.QGELU(lam=0.5, eval_mode="mean").eval(),
    "mean by quadrature": qn.QSin(lam=0.05, eval_mode="mean").eval(),
    "QLimit": qn.QLimit("gelu"),
    "no closed form": qn.QActivation(lambda x: torch.tanh(x) * 2),
}
every_layer = pytest.mark.parametrize("layer", LAYERS.values(), ids=LAYERS)


def jagged(*sizes):
    torch.manual_seed(1)
    parts = [torch.randn(size, 3) for size in sizes]
    return torch.nested.nested_tensor(parts, layout=torch.jagged, requires_grad=True)


def drawn(layer, x):
    torch.manual_seed(0)
    return layer(x)


def test_plain_tensors_are_no_containers():
    assert not is_container(torch.ones(2))
    assert not is_container(nn.Parameter(torch.ones(2)))


@every_layer
def test_a_jagged_tensor_is_mapped_as_its_values_are(layer):
    x = jagged(2, 0, 4)
    y = drawn(layer, x)
    assert y.layout == torch.jagged
    torch.testing.assert_close(y.values(), drawn(layer, x.values()), rtol=0, atol=0)
    (x + y).values().sum().backward()  # their sizes are known to be the same
    plain = x.detach().values().requires_grad_()
    (plain + drawn(layer, plain)).sum().backward()
    torch.testing.assert_close(x.grad.values(), plain.grad)


def test_a_jagged_tensor_with_holes_or_transposed():
    layer = qn.QLimit("tanh")
    x = jagged(2, 4)
    for other in (x.transpose(1, 2), torch.nested.narrow(torch.ones(2, 5, 3), 1, *HOLES)):
        y = layer(other)
        assert y.shape == other.shape
        for part, whole in zip(y.unbind(), other.unbind(), strict=True):
            torch.testing.assert_close(part, layer(whole.contiguous()))


HOLES = (torch.tensor([0, 2]), torch.tensor([1, 3]), torch.jagged)


def test_functions_take_jagged_tensors():
    x = jagged(2, 4)
    lam = torch.tensor([0.1, 0.5, 2.0])
    y = drawn(lambda x: qn.q_activation(x, "elu", lam), x)
    plain = drawn(lambda x: qn.q_activation(x, "elu", lam), x.values())
    torch.testing.assert_close(y.values(), plain)
    torch.testing.assert_close(qn.q_limit(x, "elu").values(), qn.q_limit(x.values(), "elu"))


def test_a_jagged_tensor_in_a_compiled_model():
    torch._dynamo.reset()
    layer = qn.QGELU(lam=0.5)
    compiled = torch.compile(layer, backend="eager", fullgraph=True)
    x = jagged(2, 4)
    torch.testing.assert_close(drawn(compiled, x).values(), drawn(layer, x.values()))


# --- DTensors -------------------------------------------------------------------------------------


@pytest.fixture
def mesh_of_rank():
    """A mesh of 2 by 2 ranks, as one of them sees it; nothing is sent."""

    def make(rank):
        if dist.is_initialized():
            dist.destroy_process_group()
        dist.init_process_group("fake", store=FakeStore(), rank=rank, world_size=4)
        return init_device_mesh("cpu", (2, 2))

    yield make
    dist.destroy_process_group()


@every_layer
def test_shards_differ_and_replicas_agree(layer, mesh_of_rank):
    whole = torch.linspace(-2, 2, 3).expand(4, 3)
    outputs = []
    for rank in range(4):
        mesh = mesh_of_rank(rank)
        x = DTensor.from_local(whole[:2].clone().requires_grad_(), mesh, [Shard(0), Replicate()])
        y = drawn(layer, x)
        assert (y.shape, y.placements) == (whole.shape, x.placements)
        y.to_local().sum().backward()
        outputs.append(y.to_local().detach())
    assert torch.equal(outputs[0], outputs[1])
    assert torch.equal(outputs[2], outputs[3])
    is_drawn = isinstance(layer, qn.QActivation) and layer.training
    assert torch.equal(outputs[0], outputs[2]) != is_drawn


def test_partial_sums_are_added_up_first(mesh_of_rank):
    mesh = mesh_of_rank(0)
    x = DTensor.from_local(torch.ones(2), mesh, [Partial(), Replicate()], run_check=False)
    assert drawn(qn.QGELU(), x).placements == (Replicate(), Replicate())
