"""The modules: agreement with the table, arguments, modes, copies and dtypes."""

import copy
import functools
import inspect
import io
import pickle
import re
from typing import Literal, Never

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch._subclasses import FakeTensorMode
from torch.utils.flop_counter import FlopCounterMode

import qneurons as qn
from qneurons import mean_table
from qneurons.activations import resolve, rows
from qneurons.conversion import convert
from qneurons.modules import CLASSES, QActivation

LIMIT = {"lam": 0.0, "phi": 0.0}  # a draw at which g is the limit f'(x)x


def normal(*shape, dtype=torch.float64, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return (torch.randn(shape, generator=generator, dtype=torch.float64) * 2).to(dtype)


def drawn(module, x, seed=0):
    torch.manual_seed(seed)
    return module(x)


def saved(module):
    buffer = io.BytesIO()
    torch.save(module, buffer)
    buffer.seek(0)
    return torch.load(buffer, weights_only=False)


COPIES = [copy.deepcopy, lambda module: pickle.loads(pickle.dumps(module)), saved]
every_copy = pytest.mark.parametrize("copied", COPIES, ids=["deepcopy", "pickle", "save"])
every_row = pytest.mark.parametrize("row", rows(), ids=lambda row: row.name)


class Named(nn.Module):
    """A module of one's own, with a parameter, that is a smooth activation."""

    def __init__(self, slope=0.5):
        super().__init__()
        self.slope = nn.Parameter(torch.tensor(slope, dtype=torch.float64))

    def forward(self, x):
        return torch.tanh(self.slope * x)


# --- the classes ----------------------------------------------------------------------------------


def test_one_class_per_row_exported():
    names = "Sigmoid Tanh ReLU ReLU2 LeakyReLU ELU SELU CELU Softplus SiLU GELU GELUTanh QuickGELU "
    names += "Mish Hardtanh ReLU6 Hardsigmoid Hardswish Softsign Sin Identity"
    expected = [f"Q{name}" for name in names.split()]
    assert [cls.__name__ for cls in CLASSES.values()] == expected
    for name, cls in zip(expected, CLASSES.values(), strict=True):
        assert getattr(qn, name) is getattr(qn.modules, name) is cls
        assert issubclass(cls, QActivation)
        assert name in qn.__all__


@every_row
def test_a_class_is_the_q_activation_of_its_row(row):
    module = CLASSES[row.name]()
    assert module.activation == row
    assert (module.lam, module.phi, module.eval_mode) == (0.1, 1e-3, "limit")
    x = normal(31, 7)
    expected = drawn(lambda y: qn.q_activation(y, row.name), x)
    torch.testing.assert_close(drawn(module, x), expected, rtol=1e-6, atol=1e-9)


@every_row
def test_a_class_takes_the_row_s_parameters(row):
    parameters = {name: value + 0.5 for name, value in row.parameters.items()}
    module = CLASSES[row.name](**parameters)
    assert module.activation.parameters == parameters
    assert all(name in CLASSES[row.name].__doc__ for name in parameters)
    x = normal(31)
    assert torch.equal(module.eval()(x), qn.q_limit(x, resolve(row.name, **parameters)))
    with pytest.raises(TypeError, match=f"{CLASSES[row.name].__name__}.*'gain'"):
        CLASSES[row.name](gain=1.0)


@every_row
def test_the_signature_of_a_class_is_that_of_its_row(row):
    of_base = inspect.signature(QActivation).parameters.values()
    shared = [p for p in of_base if p.name not in ("activation", "parameters")]
    by_name = inspect.Parameter.KEYWORD_ONLY
    own = [
        inspect.Parameter(name, by_name, default=value, annotation=float)
        for name, value in row.parameters.items()
    ]
    if own:  # then a number without a name might be λ or a parameter
        unnamed = inspect.Parameter("unnamed", inspect.Parameter.VAR_POSITIONAL, annotation=Never)
        shared = [unnamed, *(parameter.replace(kind=by_name) for parameter in shared)]
    if row.name == "gelu":
        kinds = Literal["none", "tanh"]
        own = [inspect.Parameter("approximate", by_name, default="none", annotation=kinds)]
    assert list(inspect.signature(CLASSES[row.name]).parameters.values()) == shared + own


@every_row
def test_a_class_passes_every_argument_on(row):
    values = {"lam": 0.3, "phi": 0.2, "eval_mode": "mean", "inplace": True}
    cls = CLASSES[row.name]
    module = cls(**values) if row.parameters else cls(*values.values())
    assert (module.lam, module.phi, module.eval_mode) == (0.3, 0.2, "mean")
    assert inspect.getsource(CLASSES[row.name]).startswith(f"class {type(module).__name__}")


@pytest.mark.parametrize(
    "activation",
    ["elu", F.elu, nn.ELU(), functools.partial(F.elu, inplace=True), resolve("elu")],
)
def test_every_form_of_an_activation_is_accepted(activation):
    x = normal(31)
    module = QActivation(activation, 0.3, 0.1)
    assert torch.equal(drawn(module, x), drawn(qn.QELU(lam=0.3, phi=0.1), x))
    assert list(module.children()) == []


def test_repr():
    assert repr(qn.QReLU()) == "QReLU(lam=0.1, phi=0.001, eval_mode='limit')"
    assert repr(qn.QELU(lam=0.1, phi=0, eval_mode="mean", alpha=0.5)) == (
        "QELU(alpha=0.5, lam=0.1, phi=0, eval_mode='mean')"
    )
    assert repr(QActivation(nn.Hardtanh(-2, 2), eval_mode="sample")) == (
        "QActivation(hardtanh, min_val=-2, max_val=2, lam=0.1, phi=0.001, eval_mode='sample')"
    )


@pytest.mark.parametrize(
    ("cls", "own"),
    [
        (qn.QLeakyReLU, "negative_slope"),
        (qn.QELU, "alpha"),
        (qn.QCELU, "alpha"),
        (qn.QSoftplus, "beta"),
        (qn.QHardtanh, "max_val"),
    ],
)
def test_a_number_that_may_be_lam_or_a_parameter_is_refused(cls, own):
    name = cls.__name__
    remedy = re.escape(f"{name}(lam=0.2) or {name}({own}=0.2)")
    with pytest.raises(TypeError, match=f"{name} takes its arguments by name, got 0.2.*{remedy}"):
        cls(0.2)


def test_gelu_takes_the_argument_of_torch():
    x = normal(31)
    module = qn.QGELU(approximate="tanh")
    assert torch.equal(drawn(module, x), drawn(qn.QGELUTanh(), x))
    assert repr(module).startswith("QGELU(approximate='tanh', lam=0.1, ")
    assert repr(qn.QGELU(approximate="none")).startswith("QGELU(lam=0.1, ")
    with pytest.raises(ValueError, match="'none' or 'tanh', got 'erf'"):
        qn.QGELU(approximate="erf")


@pytest.mark.parametrize("name", ["lam", "phi"])
def test_a_parameter_is_refused(name):
    value, module = nn.Parameter(torch.tensor(0.5)), qn.QGELU(0.3)
    message = rf"{name} must be a number, got a Parameter.* {name}\.item\(\)"
    with pytest.raises(TypeError, match=message):
        qn.QGELU(**{name: value})
    with pytest.raises(TypeError, match=message):
        setattr(module, name, value)
    assert list(module.parameters()) == []
    assert module.lam == 0.3
    module.weight = value  # of a user's own
    assert list(module.parameters()) == [value]


@pytest.mark.parametrize("make", [qn.QELU, functools.partial(qn.QLimit, "elu")])
def test_a_q_activation_is_a_leaf_of_a_trace(make):
    model, x = nn.Sequential(nn.Linear(3, 3), nn.Sequential(make(), nn.Linear(3, 3))), normal(5, 3)
    traced = torch.fx.symbolic_trace(model.double())
    nodes = [node.target for node in traced.graph.nodes if node.op == "call_module"]
    assert nodes == ["0", "1.0", "1.1"]
    assert torch.equal(drawn(traced, x), drawn(model, x))
    assert torch.equal(traced.eval()(x), model.eval()(x))


def test_lam_and_phi_have_their_effect():
    x = torch.full((20_001,), 1.0, dtype=torch.float64)
    # q-identity would hide q; for f = y² g is x²(2 + δ).
    for lam, phi in [(0.0, 0.25), (0.5, 0.0), (2.0, 0.25)]:
        delta = drawn(QActivation(torch.square, lam, phi), x) - 2
        assert delta.abs().min() >= phi - 1e-12
        expected = lam**2 + 2 * lam * phi * (2 / torch.pi) ** 0.5 + phi**2
        assert abs(delta.square().mean() - expected) <= 0.05 * expected


@pytest.mark.parametrize("inplace", [False, True])
def test_inplace_is_accepted_and_ignored(inplace):
    x = normal(31)
    before = x.clone()
    qn.QReLU(inplace=inplace)(x)
    QActivation(nn.ReLU(inplace=True), inplace=inplace)(x)
    assert torch.equal(x, before)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"lam": -0.1}, r"lam.* 0 or more.* -0\.1"),
        ({"lam": float("nan")}, "lam.* nan"),
        ({"lam": float("inf")}, "lam.* inf"),
        ({"phi": -1e-3}, r"phi.* 0 or more.* -0\.001"),
        ({"phi": float("nan")}, "phi.* nan"),
        ({"eval_mode": "man"}, "eval_mode.* limit, mean, sample.*'man'"),
    ],
)
def test_bad_arguments(arguments, message):
    for make in (functools.partial(QActivation, "elu"), qn.QELU):
        with pytest.raises(ValueError, match=message):
            make(**arguments)
    model = nn.Sequential(nn.ELU())
    with pytest.raises(ValueError, match=message):
        convert(model, **arguments)
    assert type(model[0]) is nn.ELU


def test_bad_activation():
    with pytest.raises(ValueError, match=r"'rleu'.*'relu'"):
        QActivation("rleu")


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("eval_mode", ["limit", "mean", "sample"])
def test_bad_input(training, eval_mode):
    module = qn.QELU(eval_mode=eval_mode).train(training)
    with pytest.raises(TypeError, match=r"x.* torch.int64.*x\.float\(\)"):
        module(torch.arange(3))
    with pytest.raises(TypeError, match=r"x.* torch\.complex64"):
        module(torch.ones(2, dtype=torch.complex64))
    with pytest.raises(TypeError, match=r"x.* tensor.* float"):
        module(1.0)


# --- training and evaluation ----------------------------------------------------------------------


@pytest.mark.parametrize("eval_mode", ["limit", "mean", "sample"])
def test_training_draws_in_every_eval_mode(eval_mode):
    x = normal(31)
    module = qn.QSoftplus(lam=0.5, eval_mode=eval_mode)
    first, second = module(x), module(x)
    assert (first != second).all()
    plain = drawn(qn.QSoftplus(lam=0.5), x)
    assert torch.equal(drawn(module, x), plain)


@every_row
def test_evaluation_by_the_limit(row):
    x = normal(31)
    module = CLASSES[row.name](lam=0.5).eval()
    assert torch.equal(module(x), qn.q_limit(x, row.name))
    torch.testing.assert_close(module(x), x * row.derivative(x, **row.parameters))
    torch.testing.assert_close(module(x), drawn(CLASSES[row.name](**LIMIT), x))


@pytest.mark.parametrize("lam", [0.02, 1.0])
def test_evaluation_by_the_mean(lam):
    x = normal(5)
    module = qn.QSoftplus(lam=lam, phi=0.1, eval_mode="mean").eval()
    state = torch.get_rng_state()
    assert torch.equal(module(x), qn.q_mean(x, "softplus", lam, 0.1))
    assert torch.equal(torch.get_rng_state(), state)
    draws = drawn(qn.QSoftplus(lam=lam, phi=0.1), x.expand(200_000, 5))
    error = (draws.mean(0) - module(x)).abs() / (draws.std(0) / 200_000**0.5)
    assert error.max() < 4


def test_evaluation_by_a_sample():
    x = normal(31)
    module = qn.QSoftplus(lam=0.5, eval_mode="sample")
    assert torch.equal(drawn(module.eval(), x), drawn(module.train(), x))
    assert (module.eval()(x) != module(x)).all()


def test_the_draw_is_that_of_torch_s_seed():
    module, x = qn.QTanh(0.3), normal(31, 3)
    assert torch.equal(drawn(module, x, seed=1), drawn(module, x, seed=1))
    assert (drawn(module, x, seed=1) != drawn(module, x, seed=2)).all()


# --- λ --------------------------------------------------------------------------------------------


def test_lam_can_be_set():
    module, x = qn.QTanh(0.3), normal(31)
    module.lam = 0.7
    assert module.lam == 0.7
    assert torch.equal(drawn(module, x), drawn(qn.QTanh(0.7), x))
    module.eval_mode = "mean"
    assert torch.equal(module.eval()(x), qn.q_mean(x, "tanh", 0.7))
    assert isinstance(module.lam, float)


@pytest.mark.parametrize("lam", [-1.0, float("nan"), float("inf")])
def test_a_bad_lam_is_refused_and_the_old_one_kept(lam):
    module, x = qn.QTanh(0.3), normal(31)
    with pytest.raises(ValueError, match=f"lam.* {lam}"):
        module.lam = lam
    assert module.lam == 0.3
    assert torch.equal(drawn(module, x), drawn(qn.QTanh(0.3), x))


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_lam_can_be_set_in_a_compiled_model_without_recompiling(backend):
    torch._dynamo.reset()
    model = nn.Sequential(nn.Linear(3, 5), qn.QSoftplus(lam=0.1), nn.Linear(5, 2)).double()
    compiled = torch.compile(model, backend=backend, fullgraph=True)
    x = normal(7, 3)
    for lam in (0.1, 0.0, 1.0, 3.0):
        model[1].lam = lam
        with torch._dynamo.config.patch(error_on_recompile=lam != 0.1):
            y = drawn(compiled, x)
        torch.testing.assert_close(y, drawn(model, x))
    gradients = torch.autograd.grad(drawn(compiled, x).sum(), list(model.parameters()))
    expected = torch.autograd.grad(drawn(model, x).sum(), list(model.parameters()))
    torch.testing.assert_close(gradients, expected)


@pytest.mark.parametrize(
    ("activation", "eval_mode"),
    [("gelu", "limit"), ("tanh", "mean"), ("gelu", "sample"), (Named(), "limit")],
    ids=str,
)
def test_compiled_evaluation(activation, eval_mode):
    torch._dynamo.reset()
    module = QActivation(activation, 0.1, eval_mode=eval_mode).eval()
    x = normal(31)
    compiled = torch.compile(module, backend="eager", fullgraph=True)
    torch.testing.assert_close(drawn(compiled, x), drawn(module, x))


def test_compiled_training_of_a_module_with_parameters():
    torch._dynamo.reset()
    module = QActivation(Named(), 0.1)
    x = normal(31)
    compiled = torch.compile(module, backend="aot_eager", fullgraph=True)
    y, expected = drawn(compiled, x), drawn(module, x)
    torch.testing.assert_close(y, expected)
    torch.testing.assert_close(
        *(torch.autograd.grad(v.sum(), module.f.slope) for v in (y, expected))
    )


# --- what PyTorch's users do to a module ----------------------------------------------------------


def test_no_state_and_a_plain_checkpoint_loads():
    plain = nn.Sequential(nn.Linear(3, 5), nn.ReLU(), nn.Linear(5, 2))
    model = nn.Sequential(nn.Linear(3, 5), qn.QReLU(), nn.Linear(5, 2))
    assert list(qn.QReLU().state_dict()) == []
    assert list(qn.QReLU().parameters()) == list(qn.QReLU().buffers()) == []
    model.load_state_dict(plain.state_dict(), strict=True)
    plain.load_state_dict(model.state_dict(), strict=True)
    assert torch.equal(model[2].weight, plain[2].weight)


# --- settings in the state_dict, where they are asked for -----------------------------------------


def saving_model():
    model = nn.Sequential(nn.Linear(2, 2), qn.QELU(), qn.QTanh(lam=0.3, phi=0.01))
    return qn.configure(model, saves_settings=True)


def settings_of(model):
    kinds = (part for part in model.modules() if isinstance(part, QActivation))
    return [(part.lam, part.phi, part.eval_mode) for part in kinds]


@pytest.mark.parametrize("assign", [True, False])
def test_settings_are_saved_and_loaded_on_request(assign):
    model = saving_model()
    assert {"1.settings", "2.settings"} <= set(model.state_dict())
    model[1].lam, model[1].eval_mode = 0.7, "mean"
    buffer = io.BytesIO()
    torch.save(model.state_dict(), buffer)
    buffer.seek(0)
    state = torch.load(buffer, weights_only=True)
    other = nn.Sequential(nn.Linear(2, 2), qn.QELU(), qn.QTanh())  # which need not save them
    other.load_state_dict(state, strict=True, assign=assign)
    assert settings_of(other) == [(0.7, 1e-3, "mean"), (0.3, 0.01, "limit")]
    x = normal(3, 2, dtype=torch.float32)
    torch.testing.assert_close(other.eval()(x), model.eval()(x), rtol=0, atol=0)
    alone = qn.QELU()
    alone.load_state_dict(model[1].state_dict())
    assert alone.lam == 0.7


def test_a_checkpoint_without_settings_leaves_them():
    model = saving_model()
    plain = nn.Sequential(nn.Linear(2, 2), nn.ELU(), nn.Tanh())
    model.load_state_dict(plain.state_dict(), strict=True)
    assert settings_of(model) == [(0.1, 1e-3, "limit"), (0.3, 0.01, "limit")]
    with pytest.raises(RuntimeError, match=r'Unexpected key.*"1\.settings"'):
        plain.load_state_dict(model.state_dict(), strict=True)


def test_settings_are_in_a_distributed_checkpoint():
    from torch.distributed.checkpoint import state_dict as checkpoint

    model, other = saving_model(), saving_model()
    model[1].lam = 0.7
    checkpoint.set_model_state_dict(other, checkpoint.get_model_state_dict(model))
    assert settings_of(other) == settings_of(model)


def test_stacked_models_share_the_settings_of_the_one_that_is_called():
    """torch.func.stack_module_state takes parameters and buffers, and λ is neither."""
    models = [nn.Sequential(nn.Linear(2, 2), qn.QELU(lam=lam)) for lam in (0.1, 5.0)]
    parameters, buffers = torch.func.stack_module_state(models)
    assert set(parameters) | set(buffers) == {"0.weight", "0.bias"}


@every_copy
@every_row
def test_copies(row, copied):
    parameters = {name: value + 0.5 for name, value in row.parameters.items()}
    module = CLASSES[row.name](lam=0.3, phi=0.01, eval_mode="mean", **parameters).eval()
    twin = copied(module)
    assert type(twin) is type(module)
    assert repr(twin) == repr(module)
    x = normal(31)
    assert torch.equal(drawn(twin.train(), x), drawn(module.train(), x))
    twin.lam = 0.9
    assert module.lam == 0.3
    assert not torch.equal(drawn(twin, x), drawn(module, x)) or row.name == "identity"


@every_copy
def test_copies_of_a_module_with_parameters(copied):
    module, x = QActivation(Named(0.5), 0.3), normal(31)
    twin = copied(module)
    assert torch.equal(drawn(twin, x), drawn(module, x))
    with torch.no_grad():
        twin.f.slope.fill_(2.0)
    assert torch.equal(drawn(twin, x), drawn(QActivation(Named(2.0), 0.3), x))
    assert torch.equal(drawn(module, x), drawn(QActivation(Named(0.5), 0.3), x))


@pytest.mark.parametrize("dtype", [torch.half, torch.bfloat16, torch.double], ids=str)
def test_lam_is_not_rounded_to_a_dtype(dtype):
    x = normal(31, dtype=dtype)
    for module in (qn.QSoftplus(lam=0.3).to(dtype), qn.QSoftplus(lam=0.3).half().to(dtype)):
        assert module.lam == 0.3
        assert module(x).dtype == dtype
        assert torch.equal(drawn(module, x), drawn(qn.QSoftplus(lam=0.3), x))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.double], ids=str)
def test_lam_does_not_depend_on_the_default_dtype(dtype):
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        module = qn.QSoftplus(lam=0.3)
    finally:
        torch.set_default_dtype(before)
    x = normal(31)
    assert torch.equal(drawn(module, x), drawn(qn.QSoftplus(lam=0.3), x))


def on_meta():
    with torch.device("meta"):
        return nn.Sequential(nn.Linear(3, 3), qn.QSoftplus(lam=0.3))


def moved_to_meta():
    return nn.Sequential(nn.Linear(3, 3), qn.QSoftplus(lam=0.3)).to("meta")


@pytest.mark.parametrize("make", [on_meta, moved_to_meta])
class TestMeta:
    def test_forward(self, make):
        y = make()(torch.ones(2, 3, device="meta"))
        assert y.is_meta
        assert y.shape == (2, 3)

    def test_to_empty_keeps_lam(self, make):
        model, x = make().to_empty(device="cpu"), normal(31)
        assert model[1].lam == 0.3
        assert torch.equal(drawn(model[1], x), drawn(qn.QSoftplus(lam=0.3), x))

    def test_assigning_a_checkpoint_keeps_lam(self, make):
        plain, model = nn.Sequential(nn.Linear(3, 3), nn.Softplus()), make()
        model.load_state_dict(plain.state_dict(), assign=True)
        expected = nn.Sequential(plain[0], qn.QSoftplus(lam=0.3))
        x = normal(31, 3, dtype=torch.float32)
        assert torch.equal(drawn(model, x), drawn(expected, x))


def test_share_memory():
    module, x = nn.Sequential(qn.QSoftplus(lam=0.3)).share_memory(), normal(31)
    assert module[0].lam == 0.3
    module[0].lam = 0.7
    assert torch.equal(drawn(module, x), drawn(qn.QSoftplus(lam=0.7), x))


def test_eval_mode_set_later_is_checked():
    module = qn.QELU()
    module.eval_mode = "mean"
    assert module.eval_mode == "mean"
    with pytest.raises(ValueError, match=r"eval_mode.*'typo'"):
        module.eval_mode = "typo"


def test_lam_is_no_flag():
    """nn.ReLU(True) means inplace; here it would mean λ = 1."""
    with pytest.raises(ValueError, match=r"lam.* True"):
        qn.QReLU(True)


@pytest.mark.parametrize("wrong", [-1.0, float("nan"), None, [0.1], "0.1", 1j, True, 1e39], ids=str)
@pytest.mark.parametrize("name", ["lam", "phi"])
def test_lam_and_phi_are_numbers(name, wrong):
    message = rf"{name}.* {re.escape(repr(wrong))}; .*{name}=0\.01"
    with pytest.raises(ValueError, match=message):
        qn.QELU(**{name: wrong})
    module = qn.QELU()
    with pytest.raises(ValueError, match=message):
        setattr(module, name, wrong)


def test_lam_may_not_change_between_forward_and_backward():
    module, x = qn.QELU(), torch.randn(5, requires_grad=True)
    value = module(x)
    module.lam = 0.5
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        value.sum().backward()


def test_a_model_that_was_built_in_inference_mode_trains():
    with torch.inference_mode():
        module = qn.QELU()
    module.lam = 0.3
    x = torch.randn(5, requires_grad=True)
    module(x).sum().backward()
    assert x.grad.isfinite().all()


# --- tables of means ------------------------------------------------------------------------------


def builds(monkeypatch):
    """The (λ, φ) for which a table is asked for, from now on."""
    asked, find = [], mean_table.find
    record = lambda row, *law: asked.append(law) or find(row, *law)  # noqa: E731
    monkeypatch.setattr(mean_table, "find", record)
    return asked


def test_a_table_is_renewed_only_when_evaluation_needs_it(monkeypatch):
    asked = builds(monkeypatch)
    module, x = qn.QELU(lam=0.1, phi=0.0, eval_mode="mean"), normal(31, dtype=torch.float32)
    for lam in (0.3, 0.2):
        module.lam = lam
        module(x)
    assert asked == []
    for _ in range(2):
        module.train()
        module.eval()
    module(x)
    assert asked == [(0.2, 0.0)]
    module.lam = 0.3
    module.phi = 0.1
    assert asked[1:] == [(0.3, 0.0), (0.3, 0.1)]
    torch.testing.assert_close(module(x), qn.q_mean(x, "elu", 0.3, 0.1), rtol=1e-6, atol=1e-6)
    qn.QELU().eval()(x)
    assert len(asked) == 3


def test_a_table_is_renewed_after_training_was_set_by_hand():
    module, x = qn.QELU(lam=0.3, eval_mode="mean"), normal(31, dtype=torch.float32)
    module.training = False
    torch.testing.assert_close(module(x), qn.q_mean(x, "elu", 0.3), rtol=1e-6, atol=1e-6)


def test_setting_the_mode_in_evaluation_builds_the_table():
    module, x = qn.QTanh(0.3).eval(), normal(31).float()
    module.eval_mode = "mean"
    torch.testing.assert_close(module(x), qn.q_mean(x, "tanh", 0.3), rtol=1e-6, atol=1e-6)


@every_copy
def test_a_copy_has_a_table_of_its_own(copied):
    module, x = qn.QELU(lam=0.3, eval_mode="mean").eval(), normal(31, dtype=torch.float32)
    before = module(x)
    other = copied(module)
    assert torch.equal(other(x), before)
    other.lam = 0.7
    assert torch.equal(module(x), before)
    assert torch.equal(qn.QELU(lam=0.3, eval_mode="mean").eval()(x), before)
    assert list(module.state_dict()) == []


@pytest.mark.parametrize("name", ["softplus", "relu2"])
def test_means_in_a_compiled_model_follow_lam_without_recompiling(name):
    torch._dynamo.reset()
    model = nn.Sequential(nn.Linear(3, 5), QActivation(name, lam=0.1, eval_mode="mean")).eval()
    compiled = torch.compile(model, backend="aot_eager", fullgraph=True)
    x = normal(7, 3, dtype=torch.float32).requires_grad_()
    for lam in (0.1, 0.3, 0.2):
        model.train(lam == 0.3)
        model[1].lam = lam
        model.eval()
        with torch._dynamo.config.patch(error_on_recompile=lam != 0.1):
            found = compiled(x)
        torch.testing.assert_close(found, model(x), rtol=1e-6, atol=1e-7)
        gradients = [torch.autograd.grad(value.sum(), x)[0] for value in (found, model(x))]
        torch.testing.assert_close(*gradients, rtol=1e-5, atol=1e-6)


def test_means_are_exported_as_plain_operations():
    model, x = qn.QHardswish(0.1, eval_mode="mean").eval(), normal(7, 3, dtype=torch.float32)
    program = torch.export.export(model, (x,))
    calls = [str(node.target) for node in program.graph.nodes if node.op == "call_function"]
    assert not any("qneurons" in call for call in calls)
    torch.testing.assert_close(program.module()(x), model(x), rtol=1e-6, atol=1e-7)


def test_a_table_that_was_built_in_inference_mode_has_a_gradient():
    with torch.inference_mode():
        module = qn.QELU(lam=0.3, eval_mode="mean").eval()
    x = torch.randn(5, requires_grad=True)
    module(x).sum().backward()
    assert x.grad.isfinite().all()


def test_lam_may_not_change_between_the_mean_and_its_backward():
    module, x = qn.QELU(lam=0.3, eval_mode="mean").eval(), torch.randn(5, requires_grad=True)
    value = module(x)
    module.lam = 0.2
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        value.sum().backward()


def test_means_of_fake_and_meta_tensors():
    module = qn.QELU(lam=0.3, eval_mode="mean").eval()
    assert module(torch.ones(2, 3, device="meta")).shape == (2, 3)
    with FakeTensorMode():
        assert qn.QELU(lam=0.31, eval_mode="mean").eval()(torch.ones(2, 3)).shape == (2, 3)
    x = torch.ones(3)  # nothing fake was kept
    torch.testing.assert_close(
        qn.QELU(lam=0.31, eval_mode="mean").eval()(x),
        qn.q_mean(x, "elu", 0.31),
        rtol=1e-6,
        atol=1e-6,
    )


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_means_keep_layout_and_dtype(dtype):
    x = normal(2, 3, 4, 5, dtype=dtype).contiguous(memory_format=torch.channels_last)
    found = qn.QELU(lam=0.3, eval_mode="mean").eval()(x)
    assert (found.dtype, found.stride()) == (dtype, x.stride())
    assert torch.equal(found, qn.QELU(lam=0.3, eval_mode="mean").eval()(x.contiguous()))


def test_a_module_with_its_own_parameters_has_no_table():
    f, x = Named(0.5).float(), normal(31).float()
    module = QActivation(f, 0.1, eval_mode="mean").eval()
    before = module(x)
    f.slope.data.fill_(1.0)
    assert (module(x) - before).abs().max() > 0.1


# --- callables with parameters of their own -------------------------------------------------------


@pytest.mark.parametrize("wrap", [lambda f: f, resolve], ids=["module", "row"])
def test_parameters_of_a_module_are_registered_and_trained(wrap):
    f = Named(0.5)
    module = QActivation(wrap(f), 0.3)
    assert dict(module.named_parameters()) == {"f.slope": f.slope}
    assert list(module.state_dict()) == ["f.slope"]
    x, step = normal(31), 1e-6
    (gradient,) = torch.autograd.grad(drawn(module, x).sum(), f.slope)
    values = [drawn(QActivation(Named(0.5 + h), 0.3), x).sum() for h in (step, -step)]
    torch.testing.assert_close(gradient, (values[0] - values[1]).detach() / (2 * step))


def test_prelu():
    module, x = QActivation(nn.PReLU(3, init=0.5).double(), **LIMIT), normal(31, 3)
    torch.testing.assert_close(module(x), torch.where(x < 0, 0.5, 1.0) * x)
    (gradient,) = torch.autograd.grad(module(x).sum(), module.f.weight)
    torch.testing.assert_close(gradient, x.clamp(max=0).sum(0))
    assert module.float().f.weight.dtype == torch.float32


def test_a_dispatch_mode_delays_the_table_of_the_mean():
    module, x = QActivation("tanh", 1.0, eval_mode="mean"), normal(31).float()
    with FlopCounterMode(display=False):
        module.eval()
    want = module(x)
    assert module._means is not None
    torch.testing.assert_close(want, qn.q_mean(x, "tanh", 1.0), rtol=1e-5, atol=1e-6)


# --- the limit ------------------------------------------------------------------------------------


@every_row
def test_the_limit_is_f_prime_times_x_in_training_and_evaluation(row):
    module, x = qn.QLimit(row), normal(31)
    before = torch.get_rng_state()
    for training in (True, False):
        assert torch.equal(module.train(training)(x), qn.q_limit(x, row))
    assert torch.equal(torch.get_rng_state(), before)
    assert not module.state_dict()


def test_the_limit_takes_parameters_and_inplace():
    x = normal(31)
    module = qn.QLimit("elu", inplace=True, alpha=0.5)
    assert repr(module) == "QLimit(elu, alpha=0.5)"
    assert torch.equal(module(x.clone()), qn.q_limit(x, nn.ELU(0.5)))
    with pytest.raises(TypeError, match="x must be of a floating dtype"):
        module(torch.arange(3))


@every_copy
def test_copies_of_the_limit(copied):
    x = normal(31)
    for activation in ("gelu", nn.PReLU(init=0.5).double()):
        module = qn.QLimit(activation)
        assert torch.equal(copied(module)(x), module(x))
    assert len(list(module.parameters())) == 1


def test_lam_and_phi_zero_draw_nothing():
    module, x = qn.QELU(**LIMIT, eval_mode="mean"), normal(31)
    before = torch.get_rng_state()
    for mode in (module, module.eval()):
        assert torch.equal(mode(x), qn.q_limit(x, "elu"))
    assert torch.equal(torch.get_rng_state(), before)
    module.train().phi = 0.3
    assert not torch.equal(module(x), module(x))
