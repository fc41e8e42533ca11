"""Which backend serves which device, and what is said of it."""

import importlib.util
import math

import pytest
import torch

from qneurons import kernels
from qneurons.activations import Activation, resolve, rows
from qneurons.kernels import dispatch, plain


def test_every_backend_of_the_table_is_a_module_of_the_room():
    for backend in dispatch.BACKENDS.values():
        assert importlib.util.find_spec(backend.module) is not None


def test_what_no_backend_serves_is_served_by_plain_torch():
    for device, dtype, name in (
        ("cpu", torch.float64, "q_elu"),  # no kernel in float64
        ("cpu", torch.float32, "q_unheard_of"),
        ("cpu", torch.float32, ""),
        ("meta", torch.float32, "q_elu"),
    ):
        assert kernels.find(device, dtype, name) is plain
        assert not kernels.is_fused(device, dtype, name)


@pytest.fixture
def fresh():
    """Forgets what was found before and after the test."""
    for cached in (dispatch.find, dispatch.load):
        cached.cache_clear()
    yield
    for cached in (dispatch.find, dispatch.load):
        cached.cache_clear()


def test_a_backend_that_cannot_be_imported_is_told(monkeypatch, fresh):
    missing = dispatch.Backend("Mock", "qneurons.kernels.no_such_backend")
    monkeypatch.setitem(dispatch.BACKENDS, "cpu", missing)
    assert dispatch.find("cpu", torch.float32, "q_elu") is plain
    (title, reason), *_ = [row[1:] for row in dispatch.status() if row[0] == "cpu"]
    assert "Mock" not in title
    assert "no_such_backend" in reason


def test_a_backend_that_is_unavailable_is_told(monkeypatch, fresh):
    module = pytest.importorskip("qneurons.kernels.cpu")
    monkeypatch.setattr(module, "why_unavailable", lambda: "it rained")
    assert dispatch.find("cpu", torch.float32, "q_elu") is plain
    assert ("cpu", "plain PyTorch", "it rained") in dispatch.status()


def test_status_names_the_backend_as_users_know_it():
    assert [row[0] for row in kernels.status()] == list(dispatch.BACKENDS)
    for device, title, details in kernels.status():
        if kernels.is_fused(device, torch.float32, "q_elu"):
            assert title == dispatch.BACKENDS[device].title
        assert details


def test_rows_are_known_by_their_closed_forms():
    for row in rows():
        assert kernels.kernel_row(row) == (f"q_{row.name}", list(row.parameters.values()))
    assert kernels.kernel_row(resolve("elu", alpha=0.5)) == ("q_elu", [0.5])
    assert kernels.kernel_row(resolve(lambda x: x * x))[0] == ""

    def q_elu(x, delta, with_slope):  # another function of a name that the kernels know
        return x, None

    assert kernels.kernel_row(Activation("mine", torch.tanh, torch.cos, q_elu))[0] == ""


def test_f_itself_is_known_with_its_value_at_zero_unless_it_has_kinks():
    assert kernels.base_row(resolve("softplus", beta=2.0)) == (
        "base_q_softplus",
        [2.0, 0.0, math.log(2) / 2],
    )
    assert kernels.base_row(resolve("relu"))[0] == ""
    assert kernels.base_row(resolve(lambda x: x * x))[0] == ""
