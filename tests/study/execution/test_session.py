"""A whole study: resumed, shared, refused, and killed."""

import dataclasses
import re
import types
import typing
from collections import deque
from functools import partial

import pytest
import torch

from qneurons.study.errors import StudyError
from qneurons.study.execution import Halt, LocalExecutor, Outcome, Progress, session
from qneurons.study.execution.executor import Ended, Trained
from qneurons.study.store import Store


def test_every_run_gets_its_epochs_in_packs(bench, make_study, fake_pack):
    study = make_study(num_seeds=10, epochs=3)
    pack_class = fake_pack()
    assert bench.run(study, pack_class) is Outcome.FINISHED
    assert Store.open(bench.folder).progress() == {run.id: 3 for run in study.runs}
    assert pack_class.built == [([0, 1, 2, 3], 0), ([4, 5, 6, 7], 0), ([8, 9], 0)]
    last = [event for event in bench.events if isinstance(event, Progress)][-1]
    assert (last.runs_done, last.runs, last.epochs_done, last.epochs) == (10, 10, 30, 30)
    assert not bench.notices


def test_what_is_there_is_not_done_again(bench, make_study, fake_pack):
    study = make_study(num_seeds=2)
    bench.run(study, fake_pack())
    journal = bench.folder / "journal.jsonl"
    before = journal.read_bytes()
    again = fake_pack()
    # Even on another device: there is nothing to be trained there.
    assert bench.run(study, again, device="cuda") is Outcome.FINISHED
    assert again.built == []
    assert journal.read_bytes() == before
    assert bench.events[-1] == Progress(2, 2, 8, 8)


def test_epochs_are_counted_before_they_are_saved(bench, make_study, fake_pack):
    bench.run(make_study(num_seeds=6, epochs=2), fake_pack(), checkpoint_s=1e9)
    seen = [(e.pack_epoch, len(e.pack), e.epochs_done) for e in bench.events if e.pack]
    first, second = [(0, 4, 0), (1, 4, 4), (2, 4, 8)], [(0, 2, 8), (1, 2, 10), (2, 2, 12)]
    assert seen == first + second
    assert bench.events[-1].rate > 0
    assert sum(not event.pack for event in bench.events) == 2  # planned twice, at both ends


def test_what_a_killed_process_left_of_a_finished_study_is_deleted(bench, make_study, fake_pack):
    """It was killed between its last record and its own tidying: nobody reserves a run after it."""
    study = make_study(num_seeds=2)
    bench.run(study, fake_pack())
    left = [
        bench.folder / name
        for name in (
            f"claims/{16 * 'a'}.json",
            f"checkpoints/{16 * 'a'}.pt",
            f"journal.length.{16 * 'a'}.tmp",
        )
    ]
    for path in left:
        path.parent.mkdir(exist_ok=True)
        path.write_text("[]")
    Store.open(bench.folder, readonly=True).tidy()
    assert all(path.exists() for path in left)
    assert bench.run(study, fake_pack()) is Outcome.FINISHED
    assert not any(path.exists() for path in left)


@pytest.mark.parametrize("checkpoint_s", [0.0, 1e9])
def test_stopped_anywhere_it_resumes_to_the_same(
    tmp_path, bench, make_study, fake_pack, checkpoint_s
):
    study = make_study(num_seeds=6, epochs=4)
    assert bench.run(study, fake_pack()) is Outcome.FINISHED
    for stop_after in range(0, 20, 6):
        stopped = bench.at(tmp_path / str(stop_after))
        outcomes = []
        while Outcome.FINISHED not in outcomes:
            stop = stop_after + 1 + len(outcomes)
            options = {"stop_after": stop, "checkpoint_s": checkpoint_s}
            outcomes.append(stopped.run(study, fake_pack(), **options))
            assert len(outcomes) < 60
        assert set(outcomes[:-1]) <= {Outcome.INTERRUPTED}
        assert stopped.results() == bench.results()


def test_a_time_limit_ends_it_with_everything_saved(bench, make_study, fake_pack, monkeypatch):
    now = [0.0]
    monkeypatch.setattr("time.monotonic", lambda: now[0])

    def on_step(pack):
        now[0] += 1.0

    study = make_study(num_seeds=8, epochs=5)
    outcome = bench.run(study, fake_pack(on_step=on_step), time_limit=25.0, checkpoint_s=1e9)
    assert outcome is Outcome.TIME_LIMIT
    assert sorted(Store.open(bench.folder).progress().values()) == [3] * 4 + [5] * 4
    assert not bench.notices
    bench.run(study, fake_pack(on_step=on_step), time_limit=0.5)
    assert "longer --time-limit" in bench.notices[0]


def test_out_of_memory_halves_the_packs_of_that_kind(bench, make_study, fake_pack):
    study = make_study(num_seeds=7, epochs=2)
    pack_class = fake_pack(fits=2)
    assert bench.run(study, pack_class, pack=7) is Outcome.FINISHED
    assert [len(seeds) for seeds, _ in pack_class.built] == [1] * 7
    first, second = bench.notices
    assert re.search("out of memory.* 7 runs.* 3$", first)
    assert re.search("out of memory.* 3 runs.* 1$", second)
    assert set(Store.open(bench.folder).progress().values()) == {2}


class Recording(LocalExecutor):
    """Keeps the tasks that were submitted."""

    tasks: typing.ClassVar = []

    def __init__(self, device, halt):
        super().__init__(device, halt)
        self.tasks.clear()

    def submit(self, task):
        self.tasks.append(task)
        super().submit(task)


def test_packs_that_wait_are_halved_too(bench, make_study, fake_pack):
    study = make_study(num_seeds=8, epochs=1)
    assert bench.run(study, fake_pack(fits=2), executor=Recording) is Outcome.FINISHED
    assert [len(task.job.runs) for task in Recording.tasks] == [4, 2, 2, 2, 2]
    assert len(bench.notices) == 1


def test_a_task_knows_how_long_an_epoch_takes_once_one_like_it_was_trained(
    bench, make_study, fake_pack
):
    bench.run(make_study(num_seeds=6, epochs=1), fake_pack(), executor=Recording)
    first, second = Recording.tasks
    assert first.expected_s is None
    assert second.expected_s > 0


def test_out_of_memory_in_the_middle_of_training_too(bench, make_study, fake_pack):
    def on_step(pack):
        if pack.epoch == 2 and len(pack.runs) > 2:
            raise RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried 9 bytes.")

    study = make_study(num_seeds=4, epochs=4)
    pack_class = fake_pack(on_step=on_step)
    assert bench.run(study, pack_class) is Outcome.FINISHED
    assert pack_class.built == [([0, 1, 2, 3], 0), ([0, 1], 2), ([2, 3], 2)]


def test_the_size_of_packs_is_chosen_once(bench, make_study, fake_pack, monkeypatch):
    sizes = iter([3, 1])  # less is free when the first pack was there
    monkeypatch.setattr(LocalExecutor, "pack_size", lambda self, run, num_runs: next(sizes))
    pack_class = fake_pack()
    assert bench.run(make_study(num_seeds=6, epochs=1), pack_class, pack=None) is Outcome.FINISHED
    assert [len(seeds) for seeds, _ in pack_class.built] == [3, 3]


class Careless(LocalExecutor):
    """Loses a pack after so many epochs, so many times, each time ``later`` epochs later."""

    def __init__(self, device, halt, *, losses=1, after=1, later=0):
        super().__init__(device, halt)
        self.losses, self.after, self.later = losses, after, later

    def pack_size(self, run, num_runs):
        return 2

    def poll(self):
        [(task, message)] = super().poll()
        if not self.losses or not isinstance(message, Trained) or message.epoch != self.after:
            return [(task, message)]
        self.losses -= 1
        self.after += self.later
        self.cancel([task])
        return [(task, message), (task, self.ended())]

    def ended(self):
        return Ended(lost="a worker died")


def test_a_lost_pack_is_trained_again_from_where_it_was_saved(
    tmp_path, bench, make_study, fake_pack
):
    study = make_study(num_seeds=4, epochs=4)
    pack_class = fake_pack()
    careless = partial(Careless, after=3)
    assert bench.run(study, pack_class, pack=None, executor=careless) is Outcome.FINISHED
    assert pack_class.built == [([0, 1], 0), ([0, 1], 2), ([2, 3], 0)]
    (notice,) = bench.notices
    assert re.search(r"a worker died: 2 runs .*checkpoint.*\b2 epochs", notice)
    whole = bench.at(tmp_path / "whole")
    whole.run(study, fake_pack(), pack=2)
    assert bench.results() == whole.results()


def test_a_pack_that_is_lost_again_and_again_is_an_error(bench, make_study, fake_pack):
    study = make_study(num_seeds=2)
    with pytest.raises(StudyError, match=r"2 runs .*lost 5 times .*seed 0.* a worker died.*--pack"):
        bench.run(study, fake_pack(), executor=partial(Careless, losses=9))
    assert len(bench.notices) == 4
    assert list((bench.folder / "claims").iterdir()) == []


def test_losses_are_counted_from_what_was_saved_last(bench, make_study, fake_pack):
    careless = partial(Careless, losses=4, after=2)  # the first epoch is saved
    assert bench.run(make_study(num_seeds=2), fake_pack(), executor=careless) is Outcome.FINISHED


def test_a_pack_may_be_lost_often_if_it_gets_further(bench, make_study, fake_pack):
    careless = partial(Careless, losses=9, after=2, later=1)
    study = make_study(num_seeds=2, epochs=12)
    assert bench.run(study, fake_pack(), executor=careless) is Outcome.FINISHED
    assert len(bench.notices) == 9


class Parallel(Careless):
    """Trains two packs at once, in turns, and loses one of them."""

    def __init__(self, device, halt, **options):
        super().__init__(device, halt, **options)
        self.waiting = deque()

    @property
    def has_room(self):
        return len(self.waiting) < 2

    def submit(self, task):
        super().submit(task)
        self.waiting.append(self._running)

    def poll(self):
        self._running = self.waiting.popleft()
        messages = super().poll()
        if self._running is not None:
            self.waiting.append(self._running)
        return messages

    def cancel(self, tasks):
        super().cancel(tasks)
        self.waiting = deque(pair for pair in self.waiting if pair[0] not in tasks)


def test_a_lost_pack_is_trained_again_beside_the_others(bench, make_study, fake_pack):
    study, pack_class = make_study(num_seeds=6, epochs=3), fake_pack()
    options = {"pack": 2, "executor": partial(Parallel, after=2)}
    assert bench.run(study, pack_class, **options) is Outcome.FINISHED
    assert pack_class.built == [([0, 1], 0), ([2, 3], 0), ([0, 1], 1), ([4, 5], 0)]
    assert max(event.packs for event in bench.events if isinstance(event, Progress)) == 2


def test_epochs_that_a_stop_left_unsaved_are_counted_for_the_user(bench, make_study, fake_pack):
    class Leaving(Careless):
        def ended(self):
            self.halt(float("inf"))
            return Ended()

    options = {"executor": Leaving, "time_limit": 1e9}
    assert bench.run(make_study(num_seeds=2), fake_pack(), **options) is Outcome.TIME_LIMIT
    assert re.search("^2 epochs .*lost", bench.notices[0])
    assert list((bench.folder / "claims").iterdir()) == []


def test_an_error_of_a_task_ends_the_study_and_cancels_the_others(bench, make_study, fake_pack):
    class Failing(Parallel):
        def ended(self):
            return Ended(error=ValueError("shapes do not fit"))

    made = []

    def executor(device, halt):
        made.append(Failing(device, halt))
        return made[0]

    with pytest.raises(ValueError, match="shapes"):
        bench.run(make_study(num_seeds=4), fake_pack(), pack=2, executor=executor)
    assert not made[0].waiting
    assert list((bench.folder / "claims").iterdir()) == []


def test_packs_are_reserved_only_when_they_are_submitted(bench, make_study, fake_pack):
    study, reserved = make_study(num_seeds=8, epochs=1), []

    def on_step(pack):
        other = Store.open(bench.folder)
        with other.reserve([run.id for run in study.runs]) as free:
            reserved.append(8 - len(free.ids))

    bench.run(study, fake_pack(on_step=on_step), pack=2)
    assert set(reserved) == {2}


def test_a_stop_at_the_very_end_is_no_stop(bench, make_study, fake_pack):
    asked = []
    pack_class = fake_pack(on_step=lambda pack: asked.append(pack.epoch))

    def executor(device, halt):
        return LocalExecutor(device, Halt(lambda: len(asked) == 6))  # in the last step

    options = {"executor": executor, "checkpoint_s": 1e9}
    assert bench.run(make_study(epochs=2), pack_class, **options) is Outcome.FINISHED


def test_a_run_that_does_not_fit_alone_is_an_error(bench, make_study, fake_pack):
    with pytest.raises(StudyError, match=r"one run .*memory of cpu: mnist-mlp.* --device"):
        bench.run(make_study(num_seeds=3), fake_pack(fits=0))


def test_other_errors_are_not_taken_for_lack_of_memory(bench, make_study, fake_pack):
    def on_step(pack):
        raise RuntimeError("shapes do not fit")

    with pytest.raises(RuntimeError, match="shapes"):
        bench.run(make_study(), fake_pack(on_step=on_step))


def test_diverged_runs_are_recorded_and_not_planned_again(bench, make_study, fake_pack):
    study = make_study(num_seeds=3, epochs=4)
    assert bench.run(study, fake_pack(diverging=[(1, 2)])) is Outcome.FINISHED
    store = Store.open(bench.folder)
    assert store.diverged() == {study.runs[1].id}
    assert [store.progress()[run.id] for run in study.runs] == [4, 2, 4]
    assert bench.notices == ["diverged in epoch 2: mnist-mlp on digits, elu, base, seed 1"]
    again = fake_pack()
    assert bench.run(dataclasses.replace(study, epochs=4), again) is Outcome.FINISHED
    assert again.built == []


def test_more_epochs_follow_where_the_weights_were_kept(tmp_path, bench, make_study, fake_pack):
    short, long = make_study(epochs=2), make_study(epochs=5)
    bench.run(short, fake_pack(), keep_state=True)
    pack_class = fake_pack()
    assert bench.run(long, pack_class) is Outcome.FINISHED
    assert pack_class.built == [([0, 1, 2], 2)]
    whole = bench.at(tmp_path / "whole")
    whole.run(long, fake_pack())
    assert bench.results() == whole.results()
    assert not bench.notices


def test_without_weights_a_run_starts_again(tmp_path, bench, make_study, fake_pack):
    bench.run(make_study(epochs=2), fake_pack())
    pack_class = fake_pack()
    assert bench.run(make_study(epochs=5), pack_class) is Outcome.FINISHED
    assert pack_class.built == [([0, 1, 2], 0)]
    (notice,) = bench.notices
    assert re.search("^3 runs .*weights", notice)
    assert set(Store.open(bench.folder).progress().values()) == {5}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"precision": "bf16"}, r"cpu in fp32.* --device cpu --precision fp32"),
        ({"device": "cuda"}, r"cpu in fp32.* cuda in fp32"),
    ],
)
def test_a_study_is_not_mixed_of_two_kinds_of_arithmetic(
    bench, make_study, fake_pack, options, message
):
    bench.run(make_study(num_seeds=2), fake_pack())
    before = bench.results()
    with pytest.raises(StudyError, match=message):
        bench.run(make_study(num_seeds=3), fake_pack(), **options)
    assert bench.results() == before
    assert Store.open(bench.folder).plan() == dict.fromkeys(make_study(num_seeds=2).runs, 4)


def test_nor_of_two_copies_of_the_data(bench, make_study, fake_pack, no_data):
    bench.run(make_study(num_seeds=2), fake_pack())
    no_data.fingerprint = "another"
    with pytest.raises(StudyError, match=r"another copy of digits .* --data-dir"):
        bench.run(make_study(num_seeds=3), fake_pack())
    # Nothing of another network is compared with them.
    other = make_study(network="cifar-cnn")
    assert bench.run(other, fake_pack(), precision="bf16") is Outcome.FINISHED


def test_terms_are_those_of_every_run_in_the_store(bench, make_study, fake_pack):
    bench.run(make_study(num_seeds=1), fake_pack())
    with pytest.raises(StudyError, match=r"mnist-mlp on digits .*cpu in fp32"):
        bench.run(make_study(setting="limit"), fake_pack(), precision="bf16")


def test_provenance_says_under_which_terms_a_run_was_trained(bench, make_study, fake_pack):
    study = make_study(num_seeds=1)
    bench.run(study, fake_pack(), command="qneurons study run small")
    origin = Store.open(bench.folder).origin(study.runs[0].id)
    expected = {
        "device_type": "cpu",
        "precision": "fp32",
        "dataset": "digits",
        "fingerprint": "0123456789abcdef",
        "command": "qneurons study run small",
        "torch": torch.__version__,
    }
    assert expected.items() <= origin.items()


def test_all_datasets_are_read_before_any_training(bench, make_study, fake_pack, monkeypatch):
    study = make_study()
    both = dataclasses.replace(study, runs=study.runs + make_study(dataset="mnist").runs)

    def load(name, data_dir, *, progress):
        assert data_dir == "somewhere"
        if name == "mnist":
            raise StudyError("mnist is not there")
        return types.SimpleNamespace(fingerprint="f")

    monkeypatch.setattr(session, "load_dataset", load)
    pack_class = fake_pack()
    with pytest.raises(StudyError, match="mnist is not there"):
        bench.run(both, pack_class, data_dir="somewhere")
    assert pack_class.built == []
