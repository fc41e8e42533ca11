"""Training one pack: when it is saved, when it stops."""

import pytest
import torch

from qneurons.study.execution import Halt, Outcome
from qneurons.study.execution.executor import Ended, SaveRequest, Task, Trained, TrainingOptions
from qneurons.study.execution.jobs import Job
from qneurons.study.execution.worker import run_task, train_pack

CPU = torch.device("cpu")


class Clock:
    """Time that passes only when told."""

    def __init__(self, monkeypatch):
        self.now = 1000.0
        monkeypatch.setattr("time.monotonic", lambda: self.now)

    def takes(self, seconds):
        """For a fake pack: every epoch takes so long."""

        def on_step(pack):
            self.now += seconds / 3

        return on_step


@pytest.fixture
def clock(monkeypatch):
    return Clock(monkeypatch)


def make_task(study, pack_class, *, epoch=0, state=None, **options):
    options = TrainingOptions("fp32", study.epochs, pack_class=pack_class, **options)
    return Task(Job(study.runs, epoch), None, options, lambda: state)


def savings(study, pack_class, *, halt=None, device=CPU, **options):
    """All that is saved of a study's runs in one pack, and its epochs."""
    task = make_task(study, pack_class, **options)
    messages = list(train_pack(task, device, halt or Halt()))
    epochs = [(m.epoch, len(m.records), m.seconds) for m in messages if isinstance(m, Trained)]
    return [message for message in messages if isinstance(message, SaveRequest)], epochs


def saved_epochs(found):
    return [sorted({record.epoch for record in saving.records}) for saving in found]


def test_a_pack_is_saved_when_due_and_at_its_end(make_study, fake_pack, clock):
    study = make_study(num_seeds=2, epochs=8)
    found, epochs = savings(study, fake_pack(on_step=clock.takes(9.0)), checkpoint_s=27.0)
    assert saved_epochs(found) == [[1, 2, 3], [4, 5, 6], [7, 8]]
    assert [saving.epoch for saving in found] == [3, 6, 8]
    assert [saving.state is None for saving in found] == [False, False, True]
    assert epochs == [(epoch, 2, 9.0) for epoch in range(1, 9)]


def test_a_pack_knows_the_planned_epochs_also_without_its_diverged_runs(make_study, fake_pack):
    planned = []
    pack_class = fake_pack(
        diverging=[(1, 2)], on_step=lambda pack: planned.append((len(pack.runs), pack.num_epochs))
    )
    savings(make_study(num_seeds=2, epochs=4), pack_class)
    assert planned == [(2, 4)] * 6 + [(1, 4)] * 6


def test_saving_takes_a_small_part_of_the_time(make_study, fake_pack, clock):
    study, pack_class = make_study(num_seeds=1, epochs=60), fake_pack(on_step=clock.takes(3.0))
    epochs = []
    for message in train_pack(make_task(study, pack_class, checkpoint_s=3.0), CPU, Halt()):
        if isinstance(message, SaveRequest):
            epochs.append(message.epoch)
            clock.now += 6.0  # that is what saving takes
    assert epochs == [1, 21, 41, 60]


def test_weights_of_finished_runs_are_kept_if_asked_for(make_study, fake_pack):
    study = make_study(num_seeds=2, epochs=3)
    (last,), _ = savings(study, fake_pack(), keep_state=True)
    assert last.epoch == 3
    more = make_study(num_seeds=2, epochs=5)
    (rest,), _ = savings(more, fake_pack(), epoch=3, state=last.state)
    (whole,), _ = savings(more, fake_pack())
    assert last.records + rest.records == whole.records


def test_a_stop_between_epochs_saves_all_of_them(make_study, fake_pack, clock):
    asked = []

    def on_step(pack):
        clock.now += 0.1
        if pack.epoch == 2:
            asked.append(True)

    halt = Halt(lambda: bool(asked))
    found, _ = savings(make_study(epochs=9), fake_pack(on_step=on_step), halt=halt)
    # The third epoch was short: it was finished.
    assert saved_epochs(found) == [[1, 2, 3]]
    assert found[0].state is not None
    assert halt.outcome is Outcome.INTERRUPTED


def test_a_stop_in_a_long_epoch_saves_those_before_it(make_study, fake_pack, clock):
    asked = []

    def on_step(pack):
        clock.now += 100.0
        if pack.epoch == 2:
            asked.append(True)

    study = make_study(epochs=9)
    halt = Halt(lambda: bool(asked))
    (saving,), _ = savings(study, fake_pack(on_step=on_step), halt=halt, checkpoint_s=1e9)
    assert (saving.epoch, saved_epochs([saving])) == (2, [[1, 2]])
    (short,), _ = savings(make_study(epochs=2), fake_pack(), keep_state=True)
    assert torch.equal(saving.state["weight"], short.state["weight"])


def test_a_stop_in_the_first_epoch_has_nothing_to_save(make_study, fake_pack):
    found, epochs = savings(make_study(), fake_pack(), halt=Halt(lambda: True))
    assert found == epochs == []


def test_no_epoch_is_begun_that_would_end_too_late(make_study, fake_pack, clock):
    for limit, epochs in [(30.0, [1, 2, 3]), (26.0, [1, 2])]:
        halt = Halt(time_limit=limit)
        found, _ = savings(make_study(epochs=9), fake_pack(on_step=clock.takes(9.0)), halt=halt)
        assert [epoch for part in saved_epochs(found) for epoch in part] == epochs
        assert halt.outcome is Outcome.TIME_LIMIT


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_a_diverged_run_ends_and_the_others_go_on(make_study, fake_pack, device):
    study = make_study(num_seeds=3, epochs=5)
    pack_class = fake_pack(diverging=[(1, 2)])
    found, _ = savings(study, pack_class, device=torch.device(device))
    records = [record for saving in found for record in saving.records]
    by_run = {run.seed: [r for r in records if r.run == run.id] for run in study.runs}
    assert [len(by_run[seed]) for seed in range(3)] == [5, 2, 5]
    assert [record.diverged for record in by_run[1]] == [False, True]
    # It is saved at once, together with the others.
    assert saved_epochs(found) == [[1, 2], [3, 4, 5]]
    assert [len(saving.runs) for saving in found] == ([3, 2] if device == "cpu" else [3, 3])


def test_after_a_divergence_a_pack_goes_on_as_a_resumed_one(make_study, fake_pack):
    study = make_study(num_seeds=3, epochs=5)
    (first, rest), _ = savings(study, fake_pack(diverging=[(1, 2)]))
    kept = [0, 2]
    others = type(study)("others", "Others", 5, tuple(study.runs[i] for i in kept))
    state = {"weight": first.state["weight"][kept]}
    (resumed,), _ = savings(others, fake_pack(), epoch=first.epoch, state=state)
    assert resumed.records == rest.records


def test_when_all_have_diverged_there_is_no_state_to_keep(make_study, fake_pack):
    found, epochs = savings(make_study(num_seeds=2), fake_pack(diverging=[(0, 1), (1, 2)]))
    assert saved_epochs(found) == [[1], [2]]
    assert found[-1].state is None
    assert len(epochs) == 2


def test_out_of_memory_is_told_and_other_errors_are_not(make_study, fake_pack, monkeypatch):
    monkeypatch.setattr("qneurons.provenance.commit", lambda: "0123456")
    task = make_task(make_study(num_seeds=2), fake_pack(fits=1))
    assert list(run_task(task, CPU, Halt()))[1:] == [Ended(out_of_memory=True)]

    def on_step(pack):
        raise RuntimeError("shapes do not fit")

    task = make_task(make_study(), fake_pack(on_step=on_step))
    with pytest.raises(RuntimeError, match="shapes"):
        list(run_task(task, CPU, Halt()))
