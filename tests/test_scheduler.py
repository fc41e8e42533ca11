"""The scheduler that sets λ on a model."""

import copy
import gc
import math
import re

import pytest
import torch
from torch import nn

from qneurons.conversion import convert
from qneurons.modules import QActivation
from qneurons.scheduler import LambdaScheduler
from qneurons.schedules import Annealed, Schedule, parse_schedule


def build_model() -> nn.Sequential:
    """Two q-activations at different depths, one of them used twice."""
    shared = QActivation("tanh", lam=0.3)
    return nn.Sequential(
        nn.Linear(3, 5),
        QActivation("elu", lam=0.7),
        nn.Sequential(nn.Linear(5, 5), nn.Sequential(shared)),
        shared,
    )


def lams_of(model: nn.Module) -> list[float]:
    return [module.lam for module in model.modules() if isinstance(module, QActivation)]


class TestLambdaScheduler:
    def test_first_value_is_in_force_before_training(self):
        model = build_model()
        scheduler = LambdaScheduler(model, Annealed(5.0))
        assert scheduler.epoch == 1
        assert scheduler.get_last_lam() == 5.0
        assert lams_of(model) == [5.0, 5.0]

    @pytest.mark.parametrize(
        "schedule", [Annealed(5.0), "a5", lambda epoch: 5.0 / (1 + 0.5 * (epoch - 1))]
    )
    def test_step_sets_every_q_activation(self, schedule):
        model = build_model()
        scheduler = LambdaScheduler(model, schedule)
        for epoch in range(2, 6):
            scheduler.step()
            assert scheduler.epoch == epoch
            assert scheduler.get_last_lam() == Annealed(5.0)(epoch)
            assert lams_of(model) == pytest.approx([Annealed(5.0)(epoch)] * 2, rel=1e-7)

    def test_zero_is_allowed(self):
        model = build_model()
        LambdaScheduler(model, "c0")
        assert lams_of(model) == [0.0, 0.0]

    def test_model_may_be_one_q_activation(self):
        layer = QActivation("elu")
        LambdaScheduler(layer, "c0.5")
        assert layer.lam == 0.5

    def test_q_activations_added_later_are_seen(self):
        model = build_model()
        scheduler = LambdaScheduler(model, "c0.5")
        model.append(QActivation("sigmoid", lam=0.1))
        scheduler.step()
        assert lams_of(model) == [0.5, 0.5, 0.5]

    def test_model_without_q_activation(self):
        with pytest.raises(ValueError, match=r"Sequential.*qneurons\.convert\(model\)"):
            LambdaScheduler(nn.Sequential(nn.Linear(2, 2), nn.ELU()), "a1")

    @pytest.mark.parametrize("schedule", [0.02, {"lam": 1.0}])
    def test_schedule_of_another_type(self, schedule):
        with pytest.raises(TypeError, match=f"schedule.*'a1'.* {re.escape(repr(schedule))}"):
            LambdaScheduler(build_model(), schedule)

    def test_unreadable_notation(self):
        with pytest.raises(ValueError, match="schedule 'b1'"):
            LambdaScheduler(build_model(), "b1")

    @pytest.mark.parametrize("value", [-1.0, math.nan])
    def test_bad_value_of_a_function_leaves_everything_as_it_was(self, value):
        model = build_model()
        scheduler = LambdaScheduler(model, lambda epoch: 0.5 if epoch == 1 else value)
        with pytest.raises(ValueError, match=str(value)):
            scheduler.step()
        assert (scheduler.epoch, scheduler.get_last_lam()) == (1, 0.5)
        assert lams_of(model) == [0.5, 0.5]


class TestResuming:
    def test_resumed_run_follows_the_uninterrupted_one(self):
        whole = LambdaScheduler(build_model(), "a2@0.25")
        for _ in range(7):
            whole.step()
        state = whole.state_dict()
        assert state == {"epoch": 8, "schedule": "a2@0.25"}
        model = build_model()
        resumed = LambdaScheduler(model, Annealed(2.0, 0.25))
        resumed.load_state_dict(state)
        assert lams_of(model) == lams_of(whole.model)
        for _ in range(3):
            assert resumed.get_last_lam() == whole.get_last_lam()
            assert resumed.state_dict() == whole.state_dict()
            resumed.step()
            whole.step()

    def test_state_is_loaded_as_weights_only(self, tmp_path):
        scheduler = LambdaScheduler(build_model(), "a1")
        torch.save(scheduler.state_dict(), tmp_path / "state.pt")
        assert torch.load(tmp_path / "state.pt", weights_only=True) == scheduler.state_dict()

    def test_bare_functions_are_not_compared(self):
        scheduler = LambdaScheduler(build_model(), lambda epoch: 1 / epoch)
        scheduler.step()
        assert scheduler.state_dict() == {"epoch": 2, "schedule": None}
        other = LambdaScheduler(build_model(), "c0.5")
        other.load_state_dict(scheduler.state_dict())
        assert (other.epoch, other.get_last_lam()) == (2, 0.5)
        scheduler.load_state_dict({"epoch": 4, "schedule": "c0.5"})
        assert (scheduler.epoch, scheduler.get_last_lam()) == (4, 0.25)

    def test_own_schedules_take_part(self):
        class Linear(Schedule):
            def __call__(self, epoch):
                return 1.0 * epoch

            def __str__(self):
                return "linear"

        scheduler = LambdaScheduler(build_model(), Linear())
        assert scheduler.state_dict() == {"epoch": 1, "schedule": "linear"}

    @pytest.mark.parametrize(
        ("state", "message"),
        [
            ({"epoch": 3}, r"\['epoch', 'schedule'\].*\['epoch'\].*state_dict"),
            ({"epoch": 3, "schedule": "a1", "lr": 1}, r"\['epoch', 'lr', 'schedule'\]"),
            ({"epoch": 3, "schedule": "a5"}, "schedule 'a5'.*'a1'.*'a5'"),
            ({"epoch": 0, "schedule": "a1"}, "epoch.* from 1.* 0"),
            ({"epoch": 2.5, "schedule": "a1"}, "epoch.* integer.* 2.5"),
        ],
    )
    def test_bad_state_is_refused_and_changes_nothing(self, state, message):
        model = build_model()
        scheduler = LambdaScheduler(model, "a1")
        scheduler.step()
        before = (scheduler.state_dict(), scheduler.get_last_lam(), lams_of(model))
        with pytest.raises(ValueError, match=message):
            scheduler.load_state_dict(state)
        assert (scheduler.state_dict(), scheduler.get_last_lam(), lams_of(model)) == before


class TestWrappers:
    # Dynamo raises it by itself when it traces an autograd function.
    @pytest.mark.parametrize("training", [True, False])
    def test_compiled_model_follows_without_recompiling(self, training):
        torch._dynamo.reset()
        model = build_model().train(training)
        for layer in model.modules():
            if isinstance(layer, QActivation):
                layer.eval_mode = "sample"
        compiled = torch.compile(model, fullgraph=True, backend="eager")
        scheduler = LambdaScheduler(compiled, "a5")
        x = torch.linspace(-2, 2, 21).reshape(7, 3)
        compiled(x)
        outputs = []
        with torch.compiler.set_stance("fail_on_recompile"):
            for _ in range(3):
                scheduler.step()
                torch.manual_seed(0)
                outputs.append(compiled(x))
                torch.manual_seed(0)
                torch.testing.assert_close(outputs[-1], model(x))
        assert lams_of(model) == pytest.approx([scheduler.get_last_lam()] * 2, rel=1e-7)
        assert not torch.allclose(outputs[0], outputs[1])

    def test_distributed_data_parallel(self, tmp_path, monkeypatch):
        monkeypatch.setenv("GLOO_SOCKET_IFNAME", "lo")
        model = build_model()
        torch.distributed.init_process_group(
            "gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1
        )
        try:
            wrapped = nn.parallel.DistributedDataParallel(model)
            scheduler = LambdaScheduler(wrapped, "a5")
            assert lams_of(model) == [5.0, 5.0]
            scheduler.step()
            wrapped(torch.ones(2, 3)).sum().backward()
        finally:
            # First what holds the group: its end waits for a thread, which may wait for the GIL.
            wrapped = scheduler = None
            gc.collect()
            torch.distributed.destroy_process_group()
        assert lams_of(model) == pytest.approx([Annealed(5.0)(2)] * 2, rel=1e-7)


def test_a_model_of_limits_has_nothing_to_schedule():
    with pytest.raises(ValueError, match="only limits, which have no lam; convert the plain model"):
        LambdaScheduler(convert(nn.Sequential(nn.ELU()), "limit"), "a1")


def test_what_is_no_model_is_refused():
    with pytest.raises(TypeError, match="model must be a module, got int"):
        LambdaScheduler(3, "a1")


# --- the schedule that a model was converted with -------------------------------------------------


def test_the_schedule_of_the_model_is_followed_where_it_was_set():
    model = nn.Sequential(nn.ELU(), nn.Softplus())
    convert(model, "a5", include="elu")
    convert(model, "c0.1")
    scheduler = LambdaScheduler(model)
    scheduler.step()
    assert lams_of(model) == [pytest.approx(10 / 3), 0.1]
    resumed = LambdaScheduler(model)
    assert lams_of(model) == [5.0, 0.1]
    resumed.load_state_dict(scheduler.state_dict())
    assert lams_of(model) == [pytest.approx(10 / 3), 0.1]


def test_a_model_without_a_schedule_is_refused():
    model = nn.Sequential(nn.ELU(), nn.Softplus())
    convert(model, "c0.1", include="elu")
    convert(model, "limit")
    with pytest.raises(
        ValueError, match=r"Sequential have no schedule; pass one.*\(model, \"a1\"\)"
    ):
        LambdaScheduler(model)
    LambdaScheduler(model, "a1")
    assert lams_of(model) == [1.0]


def test_every_layer_follows_its_own_schedule():
    model = nn.Sequential(nn.ELU(), nn.Softplus(), nn.Softplus())
    convert(model, "a9", include="elu")
    convert(model, "lin1-2/3")
    scheduler = LambdaScheduler(model)
    scheduler.step()
    assert lams_of(model) == [6.0, 1.5, 1.5]
    assert scheduler.get_last_lams() == {"a9": 6.0, "lin1-2/3": 1.5}
    with pytest.raises(ValueError, match=r"2 schedules, a9, lin1-2/3; call get_last_lams\(\)"):
        scheduler.get_last_lam()
    assert scheduler.state_dict() == {"epoch": 2, "schedule": "a9, lin1-2/3"}
    LambdaScheduler(model, "a1")  # sets every q-activation
    assert set(lams_of(model)) == {1.0}


# --- the length of the training -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("schedule", "fitted"),
    [
        *(("cos1", "cos1/3"), ("lin1-2", "lin1-2/3"), ("a1", "a1/3"), ("a1@0.2", "a1@0.2")),
        *(("lin1/9", "lin1/9"), ("c0.1", "c0.1"), ("a1/9", "a1/9")),
    ],
)
def test_a_schedule_without_its_own_length_takes_that_of_the_training(schedule, fitted):
    model = build_model()
    scheduler = LambdaScheduler(model, schedule, epochs=3)
    scheduler.step()
    scheduler.step()
    assert scheduler.state_dict() == {"epoch": 3, "schedule": fitted}
    assert lams_of(model) == pytest.approx([parse_schedule(fitted)(3)] * 2)


def test_the_schedules_of_layers_are_fitted_too():
    model = convert(nn.Sequential(nn.ELU()), "cos1")
    with pytest.raises(ValueError, match=r"'cos1' has no number of epochs; write 'cos1/20'"):
        LambdaScheduler(model).step()
    assert LambdaScheduler(model, epochs=9).get_last_lams() == {"cos1/9": 1.0}


@pytest.mark.parametrize("epochs", [0, 2.5, "9"])
def test_a_length_that_is_no_count_is_refused(epochs):
    with pytest.raises(
        ValueError, match=f"epochs must be an integer of at least 1, got {epochs!r}"
    ):
        LambdaScheduler(build_model(), "a1", epochs=epochs)


def test_it_can_be_used_where_a_scheduler_of_torch_is_asked_for():
    model = build_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scheduler = LambdaScheduler(model, "a1", optimizer=optimizer)
    assert isinstance(scheduler, torch.optim.lr_scheduler.LRScheduler)
    assert scheduler.optimizer is optimizer
    assert scheduler.last_epoch == 0
    scheduler.step(4)
    assert (scheduler.last_epoch, scheduler.epoch) == (4, 5)
    assert lams_of(model) == [Annealed(1.0)(5)] * 2
    assert optimizer.param_groups[0]["lr"] == 0.1


def test_copies_keep_their_lam():
    """As the docstring says: the EMA of a model does not follow its scheduler."""
    model = build_model()
    scheduler = LambdaScheduler(model, "a1")
    average = torch.optim.swa_utils.AveragedModel(model)
    scheduler.step()
    average.update_parameters(model)
    assert lams_of(average) == [1.0, 1.0]
    assert lams_of(copy.deepcopy(model)) == lams_of(model) == [Annealed(1.0)(2)] * 2
