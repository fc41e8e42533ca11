"""λ as a function of the epoch, its notation, and the scheduler on real models."""

import dataclasses
import gc
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from qneurons.modules import QActivation
from qneurons.schedules import Annealed, Constant, LambdaScheduler, Schedule, parse_schedule

rates = st.floats(min_value=0, allow_infinity=False)
schedules = st.builds(Constant, rates) | st.builds(Annealed, rates, rates | st.just(0.5))


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


class TestSchedules:
    @given(lam=rates, epoch=st.integers(1, 10**6))
    @settings(deadline=None, derandomize=True, max_examples=30)
    def test_constant(self, lam, epoch):
        assert Constant(lam)(epoch) == lam

    @given(lam0=st.floats(0, 1e3), gamma=st.floats(0, 10), epoch=st.integers(1, 10**4))
    @settings(deadline=None, derandomize=True, max_examples=60)
    def test_annealed(self, lam0, gamma, epoch):
        schedule = Annealed(lam0, gamma)
        assert schedule(1) == lam0
        assert schedule(epoch) * (1 + gamma * (epoch - 1)) == pytest.approx(lam0)
        assert schedule(epoch + 1) <= schedule(epoch)

    @pytest.mark.parametrize("lam0", [1.0, 5.0, 9.0])
    def test_the_papers_last_epoch(self, lam0):
        assert Annealed(lam0)(100) == pytest.approx(lam0 / 50.5, rel=1e-15)
        assert round(Annealed(lam0)(100) / lam0, 4) == 0.0198

    def test_no_decay_is_constant(self):
        assert {Annealed(2.0, 0.0)(epoch) for epoch in (1, 7, 100)} == {2.0}

    @pytest.mark.parametrize("epoch", [0, -1, 1.0, 1.5, math.nan, "1", None])
    @pytest.mark.parametrize("schedule", [Constant(0.1), Annealed(1.0)])
    def test_epoch_is_an_integer_from_one(self, schedule, epoch):
        with pytest.raises(ValueError, match="epoch must be an integer, counted from 1") as error:
            schedule(epoch)
        assert str(error.value).endswith(f"got {epoch!r}")

    @pytest.mark.parametrize("value", [-0.1, math.nan, math.inf, -math.inf])
    def test_parameters_are_finite_and_nonnegative(self, value):
        for name, build in (
            ("lam", Constant),
            ("lam0", Annealed),
            ("gamma", lambda gamma: Annealed(1.0, gamma)),
        ):
            with pytest.raises(ValueError, match=f"^{name} must be finite and at least 0") as error:
                build(value)
            assert str(error.value).endswith(f"got {value}")

    def test_are_frozen_values(self):
        assert Constant(1) == Constant(1.0)
        assert hash(Annealed(1)) == hash(Annealed(1.0, 0.5))
        assert Annealed(1.0, 0.25) != Annealed(1.0)
        assert type(Constant(1).lam) is type(Annealed(1, 1).gamma) is float
        with pytest.raises(dataclasses.FrozenInstanceError):
            Constant(0.1).lam = 0.2


class TestNotation:
    @pytest.mark.parametrize(
        ("text", "schedule"),
        [
            ("c0.02", Constant(0.02)),
            ("c0.1", Constant(0.1)),
            ("a1", Annealed(1.0, 0.5)),
            ("a5", Annealed(5.0, 0.5)),
            ("a9", Annealed(9.0, 0.5)),
            ("a2@0.25", Annealed(2.0, 0.25)),
            ("a2@0", Annealed(2.0, 0.0)),
            ("c0", Constant(-0.0)),
            ("c1e-05", Constant(1e-5)),
            ("a1e+22@5e-324", Annealed(1e22, 5e-324)),
        ],
    )
    def test_is_the_papers(self, text, schedule):
        assert parse_schedule(text) == schedule
        assert str(schedule) == text

    @pytest.mark.parametrize(
        ("text", "schedule"),
        [
            ("a1.0", Annealed(1.0)),
            ("a1@0.5", Annealed(1.0)),
            ("c.5", Constant(0.5)),
            ("c2.", Constant(2.0)),
            ("c1E3", Constant(1000.0)),
        ],
    )
    def test_other_spellings_of_a_number_are_read(self, text, schedule):
        assert parse_schedule(text) == schedule

    @given(schedule=schedules)
    @settings(deadline=None, derandomize=True, max_examples=200)
    def test_round_trip_is_exact(self, schedule):
        assert parse_schedule(str(schedule)) == schedule

    @pytest.mark.parametrize(
        "text",
        [
            *("", "0.02", "c", "a", "b1", "C0.1", "c-1", "cnan", "ainf", "c0.1@0.5"),
            *("a1@", "a@0.5", "a1@-1", "a1@0.5@0.5", " c0.1", "c0.1\n"),
            *("c0,1", "c1_000", "c.", "c1e", "c٣"),
        ],
    )
    def test_bad_text_is_answered_with_the_forms_and_an_example(self, text):
        with pytest.raises(ValueError, match="cannot read the schedule") as error:
            parse_schedule(text)
        message = str(error.value)
        assert repr(text) in message
        for form in ("'c<lam>'", "'a<lam0>'", "'a<lam0>@<gamma>'", "'c0.02', 'a1' or 'a2@0.25'"):
            assert form in message

    def test_a_number_too_large_is_refused(self):
        with pytest.raises(ValueError, match="lam0 must be finite and at least 0, got inf"):
            parse_schedule("a1e999")


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
        with pytest.raises(
            ValueError, match=r"Sequential holds no q-activation .* qneurons\.convert\(model\)"
        ):
            LambdaScheduler(nn.Sequential(nn.Linear(2, 2), nn.ELU()), "a1")

    @pytest.mark.parametrize("schedule", [0.02, None, {"lam": 1.0}])
    def test_schedule_of_another_type(self, schedule):
        with pytest.raises(TypeError, match="must be a Schedule, its notation such as 'a1'") as e:
            LambdaScheduler(build_model(), schedule)
        assert str(e.value).endswith(f"got {schedule!r}")

    def test_unreadable_notation(self):
        with pytest.raises(ValueError, match="cannot read the schedule 'b1'"):
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
            ({"epoch": 3}, r"has the keys \['epoch', 'schedule'\], got \['epoch'\]; pass what"),
            ({"epoch": 3, "schedule": "a1", "lr": 1}, r"got \['epoch', 'lr', 'schedule'\]"),
            ({"epoch": 3, "schedule": "a5"}, "of the schedule 'a5'.* 'a1'; construct it with 'a5'"),
            ({"epoch": 0, "schedule": "a1"}, "epoch must be an integer, counted from 1, got 0"),
            ({"epoch": 2.5, "schedule": "a1"}, "counted from 1, got 2.5"),
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
