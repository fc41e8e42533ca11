"""Settings, runs and their ids."""

import dataclasses
import hashlib

import pytest

from qneurons.schedules import Annealed, Constant
from qneurons.study.errors import StudyError
from qneurons.study.runs import (
    Run,
    Setting,
    counted,
    kind_of_pack,
    packable,
    parse_setting,
)
from qneurons.study.spec import load_study

RUN = Run("mnist", "mnist-cnn", True, "elu", "c0.02", 3, batch_size=64, learning_rate=0.05)


class TestSetting:
    @pytest.mark.parametrize(
        ("text", "setting"),
        [
            ("base", Setting("base")),
            ("limit", Setting("limit")),
            ("c0.02", Setting("q", Constant(0.02))),
            ("a1", Setting("q", Annealed(1.0))),
            ("a2@0.25", Setting("q", Annealed(2.0, 0.25))),
            ("m5", Setting("mean", Annealed(5.0))),
            ("m2@0.25", Setting("mean", Annealed(2.0, 0.25))),
            ("n0.001", Setting("gradient-noise", eta=0.001)),
        ],
    )
    def test_is_read_and_written(self, text, setting):
        assert parse_setting(text) == setting
        assert str(setting) == text

    @pytest.mark.parametrize(
        ("text", "canonical"),
        [
            *(("c0.10", "c0.1"), ("a5.0@0.5", "a5"), ("m5.0@0.5", "m5")),
            *(("n1e-3", "n0.001"), ("c2e-2", "c0.02")),
        ],
    )
    def test_has_one_canonical_notation(self, text, canonical):
        assert str(parse_setting(text)) == canonical

    @pytest.mark.parametrize(
        "text",
        [
            *("", "Base", "q", "c", "n", "c-1", "n-1", "nan", "n1@2", "c1e999", "n1e999", "nc1"),
            *("m", "mean", "ma5", "mc0.1", "m-1", "m1e7", "m5@"),
            *("n1e7", "c1e7", "lin1-1e7", "lin1-1e7/9"),
        ],
    )
    def test_what_cannot_be_read(self, text):
        with pytest.raises(StudyError, match=f"{text!r}.*'base', 'limit', 'c<lam>'"):
            parse_setting(text)

    def test_lam(self):
        for text in ("a5", "m5"):
            assert [parse_setting(text).lam(epoch) for epoch in (1, 3)] == [5.0, 2.5]
        assert parse_setting("c0.1").lam(100) == 0.1
        assert {parse_setting(text).lam(1) for text in ("base", "limit", "n0.5")} == {0.0}


class TestRun:
    def test_id_is_for_good(self):
        # Stores name runs by it: another value here would orphan them all.
        assert RUN.id == "dfb3941c5c5704f4"
        assert int(RUN.id, 16) >= 0
        assert len(RUN.id) == 16

    def test_id_depends_on_every_field(self):
        other = Run("cifar10", "mnist-mlp", False, "tanh", "base", 4, 32, 0.01, 0.0, 0.0)
        other = dataclasses.replace(other, momentum=0.5, augment="shift=0.1", held_out=10)
        ids = {RUN.id}
        for field in dataclasses.fields(Run):
            change = {field.name: getattr(other, field.name)}
            ids.add(dataclasses.replace(RUN, **change).id)
        assert len(ids) == 1 + len(dataclasses.fields(Run))

    def test_ids_of_the_paper_are_for_good(self):
        ids = " ".join(run.id for run in load_study("paper").runs)
        assert hashlib.sha256(ids.encode()).hexdigest()[:16] == "1075950870bb59e8"

    def test_content_leaves_out_what_older_stores_do_not_know(self):
        older = {"learning_rate_decay", "phi"}
        assert older < RUN.content().keys()
        assert not {"momentum", "augment", "held_out"} & RUN.content().keys()
        other = dataclasses.replace(RUN, momentum=0.5, held_out=10)
        assert other.content() == {**RUN.content(), "momentum": 0.5, "held_out": 10}
        assert Run(**other.content()) == other

    def test_equal_runs_have_one_id(self):
        whole = dataclasses.replace(RUN, learning_rate=1, learning_rate_decay=0, phi=0, momentum=0)
        real = dataclasses.replace(RUN, learning_rate=1.0, learning_rate_decay=0.0, phi=0.0)
        assert whole == real
        assert whole.id == real.id
        assert type(whole.learning_rate) is float

    @pytest.mark.parametrize("name", ["dataset", "network", "activation", "setting", "augment"])
    @pytest.mark.parametrize("text", ["\x1b[2J", "two\nlines", "\u202eturned"])
    def test_names_are_printable(self, name, text):
        with pytest.raises(ValueError, match=f"{name} must be printable text, got "):
            dataclasses.replace(RUN, **{name: text})

    def test_is_a_frozen_ordered_value(self):
        assert sorted([dataclasses.replace(RUN, seed=4), RUN])[0] is RUN
        assert len({RUN, dataclasses.replace(RUN)}) == 1
        with pytest.raises(dataclasses.FrozenInstanceError):
            RUN.seed = 5

    def test_cell_and_defaults_of_the_paper(self):
        assert RUN.cell == ("mnist", "mnist-cnn", True, "elu", "")
        assert (RUN.learning_rate_decay, RUN.phi) == (1e-6, 1e-3)

    def test_the_protocol_names_what_departs_from_the_papers(self):
        assert all(run.protocol == "" for run in load_study("paper").runs)
        changes = {"batch_size": 8, "learning_rate": 0.1, "learning_rate_decay": 0.0, "phi": 0.5}
        other = dataclasses.replace(RUN, **changes)
        assert other.protocol == ("batch size 8, learning rate 0.1, learning rate decay 0.0, φ 0.5")
        assert other.cell != RUN.cell
        changes = {"momentum": 0.5, "augment": "zoom=0.1", "held_out": 9}
        other = dataclasses.replace(RUN, network="mnist-cnn-no-norm", **changes)
        assert other.protocol == "momentum 0.5, augmentation zoom=0.1, held-out images 9"


def test_which_runs_may_share_a_pack():
    own = {"setting": "a1", "activation": "tanh", "learning_rate": 0.5, "learning_rate_decay": 0.0}
    assert packable(dataclasses.replace(RUN, **own)) == packable(RUN)
    moved, turned = (dataclasses.replace(RUN, augment=a) for a in ("zoom=0.1", "rotation=5"))
    assert packable(moved) == packable(turned)
    for field, value in [
        *(("network", "mnist-mlp"), ("dropout", False), ("batch_size", 8), ("momentum", 0.5)),
        *(("augment", "zoom=0.1"), ("held_out", 9)),
    ]:
        assert packable(dataclasses.replace(RUN, **{field: value})) != packable(RUN)


def test_a_pack_is_named_by_what_its_runs_have_in_common():
    slow, fast = (dataclasses.replace(RUN, learning_rate=rate, held_out=9) for rate in (0.01, 0.1))
    assert kind_of_pack([slow]) == slow.kind
    assert (
        kind_of_pack([slow, fast])
        == "mnist-cnn on mnist, dropout, held-out images 9, several protocols"
    )


def test_things_are_counted():
    assert [counted(n, "seed") for n in (0, 1, 2000)] == ["0 seeds", "1 seed", "2,000 seeds"]
