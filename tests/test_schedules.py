"""λ as a function of the epoch, and its notation."""

import dataclasses
import math

import pytest
from hypothesis import given, settings, strategies as st

from qneurons.schedules import Annealed, AnnealedOver, Constant, Ramp, parse_schedule

rates = st.floats(min_value=0, allow_infinity=False)
lengths = st.integers(2, 10**9 - 1)
schedules = (
    st.builds(Constant, rates)
    | st.builds(Annealed, rates, rates | st.just(0.5))
    | st.builds(AnnealedOver, rates, lengths)
    | st.builds(Ramp, st.sampled_from(["lin", "cos"]), rates, rates, st.none() | lengths)
)


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

    @pytest.mark.parametrize("epochs", [2, 12, 100, 1000])
    def test_any_number_of_epochs_ends_as_the_papers_hundred_do(self, epochs):
        schedule = AnnealedOver(5.0, epochs)
        assert schedule(1) == 5.0
        assert schedule(epochs) == pytest.approx(5.0 / 50.5, rel=1e-12)
        assert AnnealedOver(5.0, 100)(epochs) == Annealed(5.0)(epochs)

    @pytest.mark.parametrize("epochs", [1, 0, -3, 2.5, "20"])
    def test_a_decay_takes_two_epochs(self, epochs):
        with pytest.raises(ValueError, match=f"epochs.* at least 2, got {epochs!r}"):
            AnnealedOver(1.0, epochs)

    @pytest.mark.parametrize("shape", ["lin", "cos"])
    @pytest.mark.parametrize(("lam0", "lam1"), [(5.0, 0.0), (0.1, 2.0)])
    def test_a_ramp_goes_from_one_end_to_the_other_and_stays(self, shape, lam0, lam1):
        ramp = Ramp(shape, lam0, lam1, epochs=11)
        lams = [ramp(epoch) for epoch in range(1, 12)]
        assert (lams[0], lams[5], lams[-1]) == (lam0, pytest.approx((lam0 + lam1) / 2), lam1)
        assert lams == sorted(lams, reverse=lam0 > lam1)
        assert ramp(12) == ramp(10**6) == lam1

    def test_ramps_are_a_line_and_a_cosine(self):
        assert Ramp("lin", 4.0, epochs=5)(2) == 3.0
        assert Ramp("cos", 4.0, epochs=5)(2) == pytest.approx(2 + 2 * math.cos(math.pi / 4))

    def test_a_ramp_without_its_length_has_a_first_value_only(self):
        ramp = Ramp("lin", 1.0)
        assert ramp(1) == 1.0
        with pytest.raises(ValueError, match=r"'lin1' has no number of epochs; write 'lin1/20'"):
            ramp(2)
        assert ramp.over(3)(2) == 0.5
        assert ramp.over(1)(1) == 1.0  # in one epoch nothing can change

    @pytest.mark.parametrize(
        "schedule",
        [Constant(1.0), Annealed(1.0, 0.25), AnnealedOver(1.0, 9), Ramp("lin", 1.0, epochs=9)],
    )
    def test_what_has_its_own_pace_keeps_it(self, schedule):
        assert schedule.over(50) is schedule

    def test_the_papers_schedule_is_fitted_to_a_training(self):
        assert Annealed(5.0).over(20) == AnnealedOver(5.0, 20)
        assert Annealed(5.0).over(1)(1) == 5.0

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            (("log", 1.0), "shape must be one of lin, cos, got 'log'"),
            (("lin", -1.0), "lam0 must be finite and at least 0, got -1"),
            (("lin", 1.0, math.inf), "lam1 must be finite and at least 0, got inf"),
            (("cos", 1.0, 0.0, 1), "epochs must be an integer of at least 2, got 1"),
        ],
    )
    def test_bad_ramps_are_refused(self, arguments, message):
        with pytest.raises(ValueError, match=message):
            Ramp(*arguments)

    def test_no_decay_is_constant(self):
        assert {Annealed(2.0, 0.0)(epoch) for epoch in (1, 7, 100)} == {2.0}

    @pytest.mark.parametrize("epoch", [0, -1, 1.0, 1.5, math.nan, "1", None])
    @pytest.mark.parametrize("schedule", [Constant(0.1), Annealed(1.0), AnnealedOver(1.0, 9)])
    def test_epoch_is_an_integer_from_one(self, schedule, epoch):
        with pytest.raises(ValueError, match=f"epoch.* integer.* from 1.* {epoch!r}"):
            schedule(epoch)

    @pytest.mark.parametrize("value", [-0.1, math.nan, math.inf, -math.inf])
    def test_parameters_are_finite_and_nonnegative(self, value):
        for name, build in (
            ("lam", Constant),
            ("lam0", Annealed),
            ("gamma", lambda gamma: Annealed(1.0, gamma)),
        ):
            with pytest.raises(ValueError, match=f"^{name} .*finite.* at least 0.* {value}$"):
                build(value)

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
            ("a1/20", AnnealedOver(1.0, 20)),
            ("lin5", Ramp("lin", 5.0)),
            ("cos5/20", Ramp("cos", 5.0, 0.0, 20)),
            ("lin1e-05-1e-06/9", Ramp("lin", 1e-5, 1e-6, 9)),
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
            *("a1/", "a1/2.5", "a1/-2", "a1@0.5/20", "c1/20", "a1/1234567890"),
            *("lin", "cos/20", "lin1-", "lin-1", "lin1--1", "cos1@0.5", "lin1/", "log1", "c1-0"),
            *("c0,1", "c1_000", "c.", "c1e", "c٣", "c1.2.3", "c1e+", "c1e2.5", "c+1", "a1@."),
        ],
    )
    def test_bad_text_is_answered_with_the_forms_and_an_example(self, text):
        with pytest.raises(ValueError, match="schedule") as error:
            parse_schedule(text)
        for part in (repr(text), "'c<lam>'", "'a<lam0>'", "'a<lam0>@<gamma>'", "'a2@0.25'"):
            assert part in str(error.value)

    @pytest.mark.parametrize("digits", ["1" * 9999, "1." + "1" * 9999, "1e" + "1" * 9999])
    def test_a_long_text_is_refused_in_linear_time(self, digits):
        """An ambiguous pattern would take years here."""
        ramps = (f"lin{digits}-{digits}x", f"cos{digits}-{digits}-")
        for text in (f"c{digits}x", f"a{digits}@{digits}x", f"a{digits}@{digits}@", *ramps):
            with pytest.raises(ValueError, match="schedule"):
                parse_schedule(text)

    def test_a_number_too_large_is_refused(self):
        with pytest.raises(ValueError, match=r"lam0.* finite.* inf"):
            parse_schedule("a1e999")
