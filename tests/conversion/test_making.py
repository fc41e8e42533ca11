"""Modules in a setting, and their names."""

import pytest

import qneurons as qn
from qneurons.conversion.making import from_name, maker, name_of


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("q_gelu", "QGELU(lam=0.1, phi=0.001, eval_mode='limit')"),
        ("q_gelu(c0.05)", "QGELU(lam=0.05, phi=0.001, eval_mode='limit')"),
        ("q_silu(a1)", "QSiLU(lam=1, phi=0.001, eval_mode='limit', schedule='a1')"),
        (
            "q_elu(cos2-1/9, alpha=0.5, phi=0.0, eval_mode=mean)",
            "QELU(alpha=0.5, lam=2, phi=0, eval_mode='mean', schedule='cos2-1/9')",
        ),
        ("q_softplus(beta=2.0)", "QSoftplus(beta=2, lam=0.1, phi=0.001, eval_mode='limit')"),
        ("limit_gelu_tanh", "QLimit(gelu_tanh)"),
        ("limit_elu(alpha=0.5)", "QLimit(elu, alpha=0.5)"),
    ],
)
def test_names_are_read_and_written(name, shown):
    module = from_name(name)
    assert repr(module) == shown
    assert name_of(module) == name


@pytest.mark.parametrize("name", ["gelu", "q_", "Q_gelu", "q_gelu(", "q_gelu(a1) ", "q_gelu(a(1))"])
def test_what_is_no_name(name):
    with pytest.raises(ValueError, match=r"cannot read the activation .*'q_gelu\(a1\)'"):
        from_name(name)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("q_gelux", "unknown activation 'gelux'; did you mean 'gelu'"),
        ("q_gelu(b1)", "unknown setting 'b1'"),
        ("q_gelu(eval_mode=best)", "eval_mode must be one of"),
        ("q_gelu(a1, a2)", "cannot read the activation"),
        ("q_gelu(a1 phi=0)", "cannot read the activation"),
        ("limit_gelu(a1)", "cannot read the activation"),
        ("limit_gelu(phi=0)", "gelu has no parameter 'phi'"),
        ("q_gelu(alpha=1)", "gelu has no parameter 'alpha'"),
    ],
)
def test_what_a_name_cannot_say(name, message):
    with pytest.raises((TypeError, ValueError), match=message):
        from_name(name)


def test_a_function_of_ones_own_is_not_taken_for_a_row_of_the_same_name():
    def gelu(x):
        return 3 * x

    module = maker("c1")(qn.resolve(gelu))
    assert type(module) is qn.QActivation
    assert module.activation.f is gelu


def test_a_registered_row_has_a_name_too():
    row = qn.register("squareplus", lambda x: (x + (x * x + 4).sqrt()) / 2)
    try:
        assert name_of(from_name("q_squareplus(c2)")) == "q_squareplus(c2)"
        assert maker("limit")(row).activation is row
    finally:
        qn.activations.unregister("squareplus")
