"""In which order trials run, what a failure costs, and how processes share them."""

import functools
import math
import threading
import time
from types import SimpleNamespace

import pytest
from torch import nn

from qneurons.comparison import session
from qneurons.comparison.arms import parse_arms
from qneurons.comparison.executor import LocalExecutor, Reported
from qneurons.comparison.session import Session, make_grid, make_specs
from qneurons.comparison.store import TrialStore
from qneurons.study.errors import StudyError
from qneurons.study.execution import Ended
from tests.comparison.conftest import make_train


class Bench:
    """Sessions on one store."""

    def __init__(self, folder):
        self.folder, self.lines, self.seeds_done, self.trained = folder, [], 0, []

    def run(
        self,
        train=None,
        settings=("base", "c0.1", "a1"),
        seeds=(0, 1),
        params=None,
        check_names=lambda names: None,
        executor=None,
        deadline=math.inf,
    ):
        def watched(trial):
            self.trained.append((trial.seed, *trial.params.values(), trial.setting))
            (train or make_train())(trial)

        def on_seed():
            self.seeds_done += 1

        arms = parse_arms(settings)
        specs = make_specs(arms, seeds, make_grid(params or {}))
        store = TrialStore.open(self.folder, create=True)
        by_name = {arm.name: arm for arm in arms}
        executor = executor or LocalExecutor(watched, "a command")
        say = self.lines.append
        found = Session(executor, store, by_name, "3.11-a", say, check_names, deadline)
        found.run(specs, on_seed)
        return found

    @property
    def finished(self):
        store = TrialStore.open(self.folder, readonly=True)
        return {str(trial.spec) for trial in store.finished.values()}


@pytest.fixture
def bench(tmp_path):
    return Bench(tmp_path / "store")


def test_the_order_is_seed_by_seed_and_base_tells_the_epochs(bench):
    bench.run()
    assert bench.trained == [
        *((0, "base"), (0, "c0.1"), (0, "a1/3")),
        *((1, "base"), (1, "c0.1"), (1, "a1/3")),
    ]
    assert bench.seeds_done == 2


def test_epochs_are_shown_but_not_too_often(bench, monkeypatch):
    bench.run(seeds=[0])
    assert len(bench.lines) == 3
    monkeypatch.setattr(session, "LINE_S", 0.0)
    bench.run(seeds=[1])
    assert len(bench.lines) == 3 + 3 * (3 + 1)
    assert bench.lines[3].startswith("seed 1, base, epoch 1: test_accuracy 0.")


def test_every_point_of_the_grid_has_its_own_epochs(bench):
    def train(trial):
        make_train(epochs=trial.params["epochs"])(trial)

    bench.run(train, ["base", "a1"], seeds=[0], params={"epochs": [3, 5]})
    assert bench.trained == [(0, 3, "base"), (0, 3, "a1/3"), (0, 5, "base"), (0, 5, "a1/5")]


def test_what_is_finished_is_not_trained_again(bench):
    bench.run(seeds=[0])
    bench.run(seeds=[0, 1])
    assert len(bench.trained) == 6
    assert bench.run(seeds=[0, 1]).failed == {}
    assert len(bench.trained) == 6


def test_no_trial_begins_after_the_deadline(bench, monkeypatch):
    clock = SimpleNamespace(monotonic=lambda: len(bench.trained), sleep=time.sleep)
    monkeypatch.setattr(session, "time", clock)
    assert bench.run(deadline=4).failed == {}
    assert len(bench.trained) == len(bench.finished) == 4
    bench.run()
    assert len(bench.finished) == 6


def test_an_exception_loses_its_trial_alone_and_the_next_call_tries_again(bench):
    def fail(trial, epoch):
        if (trial.setting, trial.seed, epoch) == ("c0.1", 0, 1):
            raise ZeroDivisionError("by chance")

    failed = bench.run(make_train(before=fail)).failed
    assert list(failed.values()) == ["ZeroDivisionError: by chance"]
    assert "Traceback" in "\n".join(bench.lines)
    assert len(bench.finished) == 5
    bench.run()
    assert len(bench.finished) == 6
    assert len(bench.trained) == 7


def test_a_first_trial_that_fails_ends_it(bench):
    def fail(trial, epoch):
        raise ZeroDivisionError("always")

    with pytest.raises(StudyError, match=r"^seed 0, base: failed \(ZeroDivisionError: always\)"):
        bench.run(make_train(before=fail))
    assert bench.trained == [(0, "base")]
    assert "Traceback" in bench.lines[0]


def test_an_annealed_setting_without_base_is_left_out(bench):
    def fail(trial, epoch):
        if trial.setting == "base" and trial.params["lr"] == 2:
            raise ZeroDivisionError

    failed = bench.run(
        make_train(before=fail), ["base", "a1"], seeds=[0], params={"lr": [1, 2]}
    ).failed
    assert len(failed) == 2
    assert bench.lines[-1] == (
        "seed 0, lr=2, a1: left out, its number of epochs is not known, because no trial of base "
        "has finished; name it, as in a5/20"
    )


def test_ctrl_c_loses_the_trial_that_runs(bench):
    def interrupt(trial, epoch):
        if trial.seed == 1:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        bench.run(make_train(before=interrupt))
    bench.run()
    assert bench.trained[3:5] == [(1, "base"), (1, "base")]
    assert len(bench.finished) == 6


def test_a_diverged_trial_is_kept_and_said(bench):
    def diverge(trial, epoch):
        if (trial.setting, trial.seed) == ("c0.1", 1):
            trial.report(test_accuracy=float("nan"), train_loss=0.0)

    bench.run(make_train(before=diverge))
    assert len(bench.finished) == 6
    (line,) = [line for line in bench.lines if "diverged" in line]
    assert line.startswith("seed 1, c0.1: diverged in epoch 1, test_accuracy is nan")
    assert "learning rate" in line


def test_bad_input_ends_it_in_one_line_that_names_the_trial(bench):
    with pytest.raises(StudyError, match=r"^seed 0, base: the training has reported nothing"):
        bench.run(lambda trial: None)


def test_a_parameter_that_is_not_read_ends_it(bench):
    """Everything was trained once for each of its values, always the same."""

    def train(trial):
        trial.convert(nn.Sequential(nn.ELU()))
        trial.report(score=float("nan") if trial.seed == 9 else 1.0)
        if trial.setting == "base":  # other settings may do without it
            trial.params.get("lr", 0.1)

    run = functools.partial(bench.run, settings=["limit"], executor=LocalExecutor(train, ""))
    run(seeds=[0])
    run(seeds=[9], params={"rate": [1]})  # that diverge before they read it
    message = r"^seed 0, rate=1, base: .*not read the parameter 'rate'.*it reads 'lr'; read trial"
    with pytest.raises(StudyError, match=message):
        run(seeds=[0], params={"rate": [1, 2]})
    run(seeds=[0], params={"lr": [1, 2]})
    assert len(bench.finished) == 2 + 2 + 4


def test_names_are_checked_at_the_first_epoch(bench):
    def check_names(names):
        raise StudyError(f"got {names}")

    with pytest.raises(StudyError, match=r"^seed 0, base: got \['test_accuracy', 'train_loss'\]"):
        bench.run(check_names=check_names)
    assert not bench.finished


class FragileExecutor:
    """Runs the trials that were submitted in one go, some of which lose their worker."""

    def __init__(self, num_slots, lost, train=None):
        self.num_slots, self.lost, self.train = num_slots, lost, train or make_train()
        self.submitted, self.order, self.is_closed = [], [], False

    def submit(self, spec, setting):
        self.submitted.append((spec, setting))
        self.order.append(str(spec))
        assert len(self.submitted) <= self.num_slots

    def poll(self, listener):
        while self.submitted:
            spec, setting = self.submitted.pop()
            if how := self.lost(spec):
                listener(spec, how)
            else:
                local = LocalExecutor(self.train, "a command")
                local.submit(spec, setting)
                local.poll(listener)

    def close(self):
        self.is_closed = True


def test_several_workers_begin_seed_by_seed_and_what_waits_for_base_comes_next(bench):
    executor = FragileExecutor(2, lambda spec: None)
    bench.run(settings=["base", "a1", "c0.1"], executor=executor)
    assert executor.order == [
        *("seed 0, base", "seed 0, c0.1", "seed 0, a1"),
        *("seed 1, base", "seed 1, a1", "seed 1, c0.1"),
    ]
    assert bench.seeds_done == 2
    assert executor.is_closed


@pytest.mark.parametrize("how", [Ended(lost="a worker died"), Ended(out_of_memory=True)])
def test_a_trial_that_crashes_is_tried_three_times(bench, how):
    executor = FragileExecutor(2, lambda spec: how if str(spec) == "seed 0, c0.1" else None)
    failed = bench.run(executor=executor).failed
    words = how.lost or "its worker ran out of memory"
    assert list(failed.values()) == [f"{words}, 3 times"]
    assert executor.order.count("seed 0, c0.1") == 3
    said = [line for line in bench.lines if line.startswith("seed 0, c0.1: ")]
    assert said == [
        *[f"seed 0, c0.1: {words}; it begins again"] * 2,
        f"seed 0, c0.1: failed ({words}, 3 times); the other trials go on",
    ]
    assert len(bench.finished) == 5


def test_where_every_worker_fails_first_the_session_ends(bench):
    def fail(trial, epoch):
        raise ZeroDivisionError("always")

    executor = FragileExecutor(2, lambda spec: None, make_train(before=fail))
    with pytest.raises(StudyError, match=r"no trial has finished yet; correct the training"):
        bench.run(executor=executor)
    assert len(executor.order) == 2
    assert executor.is_closed
    assert bench.run().failed == {}  # nothing is reserved any more


def test_names_are_checked_again_when_trials_beside_each_other_have_ended(bench):
    class Beside(FragileExecutor):
        """The first epochs are heard of first."""

        def poll(self, listener):
            heard = []
            super().poll(lambda *about: heard.append(about))
            for about in sorted(heard, key=lambda about: not isinstance(about[1], Reported)):
                listener(*about)

    def train(trial):
        trial.convert(nn.Sequential(nn.ELU()))
        trial.report(**{f"score_of_{trial.setting.partition('.')[0]}": 1.0})

    def check_names(names):
        known = TrialStore.open(bench.folder, readonly=True).metric_names()
        if known and known != names:
            raise StudyError(f"{known} and {names}")

    executor = Beside(2, lambda spec: None, train)
    with pytest.raises(StudyError, match="score_of_"):
        bench.run(executor=executor, check_names=check_names)
    assert len(bench.finished) == 1


def test_a_trial_is_over_when_its_worker_says_so(bench):
    """Not when it is recorded: an executor that is closed ends the trials that run."""

    class OneByOne(FragileExecutor):
        heard = None

        def poll(self, listener):
            if not self.heard:
                self.heard = []
                super().poll(lambda *about: self.heard.append(about))
                self.heard.sort(key=lambda about: isinstance(about[1], Ended))
            listener(*self.heard.pop(0))

        def close(self):
            assert not self.heard

    bench.run(settings=["base", "limit"], seeds=[0], executor=OneByOne(2, lambda spec: None))
    assert bench.seeds_done == 1


def test_an_error_in_a_worker_is_raised(bench):
    executor = FragileExecutor(2, lambda spec: Ended(error=StudyError("reported nothing")))
    with pytest.raises(StudyError, match="reported nothing"):
        bench.run(executor=executor)


def test_two_processes_share_the_trials(bench, monkeypatch):
    """The second one waits until the first has finished what it reserved."""
    monkeypatch.setattr(session, "POLL_S", 0.01)
    began, may_go_on = threading.Event(), threading.Event()

    def slow(trial, epoch):
        if trial.seed == 0 and trial.setting == "c0.1":
            began.set()
            assert may_go_on.wait(30)

    other = Bench(bench.folder)
    thread = threading.Thread(target=other.run, args=(make_train(before=slow),))
    thread.start()
    assert began.wait(30)
    waiting = threading.Thread(target=bench.run)
    waiting.start()
    while "waiting for trials that other processes train: 1 left" not in bench.lines:
        waiting.join(0.01)
    may_go_on.set()
    thread.join()
    waiting.join()
    assert sorted(bench.trained + other.trained) == sorted(
        (seed, name) for seed in (0, 1) for name in ("base", "c0.1", "a1/3")
    )
    assert sum("waiting" in line for line in bench.lines) == 1


@pytest.mark.parametrize("values", [[], [None], [[1]], [float("nan")], [{"a": 1}.keys()]])
def test_values_that_cannot_be_parameters(values):
    with pytest.raises(StudyError, match=r"'lr'.*\[0\.05, 0\.1\]"):
        make_grid({"lr": values})


def test_a_grid_has_all_combinations():
    assert make_grid({}) == [()]
    assert make_grid({"lr": [1, 2, 1], "kind": "x"}) == [
        (("kind", "x"), ("lr", 1)),
        (("kind", "x"), ("lr", 2)),
    ]
