"""Studies: the paper's grid counted, a user's own file and its mistakes, selections."""

import collections
import tomllib
from pathlib import Path

import pytest

from qneurons.study import spec as room
from qneurons.study.errors import StudyError
from qneurons.study.runs import study_names
from qneurons.study.spec import load_study, select

GRID = """
title = "mine"
epochs = 3
seeds = [4, 7]

[[grid]]
dataset = "digits"
network = "mnist-mlp"
dropout = false
activation = ["elu", "tanh"]
setting = ["base", "c0.10"]
batch_size = 32
learning_rate = 1
"""


@pytest.fixture
def write(tmp_path, monkeypatch):
    """Writes a study with one of the lines of GRID replaced, and returns its name."""
    monkeypatch.chdir(tmp_path)

    def write(old="", new="", name="mine.toml", text=GRID):
        assert old in text
        (tmp_path / name).write_text(text.replace(old, new, 1))
        return name

    return write


def test_title_and_dropout_may_be_left_out(write):
    whole = load_study(write())
    text = GRID.replace('title = "mine"\n', "").replace("dropout = false\n", "")
    short = load_study(write(name="short.toml", text=text))
    assert short.title == short.name == "short"
    assert short.runs == whole.runs


class TestPaper:
    def test_names(self):
        paper = ["paper", "paper-cifar-cnn", "paper-mnist-cnn", "paper-mnist-mlp"]
        others = ["augmented-cifar", "augmented-mnist", "learning-rates", "mean-of-a5"]
        assert study_names() == [*others, *paper, "quickstart", "tanh-normalisation"]

    def test_has_1440_runs_and_240_of_the_limit(self):
        study = load_study("paper")
        settings = collections.Counter(run.setting for run in study.runs)
        assert settings.pop("limit") == 240
        assert settings == dict.fromkeys(["base", "c0.02", "c0.1", "a1", "a5", "a9"], 240)
        assert len({run.id for run in study.runs}) == len(study.runs) == 1440 + 240

    def test_only_the_means_of_a5_are_new_beside_the_paper(self):
        new = set(load_study("mean-of-a5").runs) - set(load_study("paper-mnist-mlp").runs)
        assert len(new) == 2 * 4 * 10
        assert {run.setting for run in new} == {"m5"}

    def test_is_the_three_networks_each_with_every_combination(self):
        parts = [load_study(f"paper-{name}") for name in ("mnist-mlp", "mnist-cnn", "cifar-cnn")]
        assert load_study("paper").runs == sum((part.runs for part in parts), ())
        for part in parts:
            assert len(part.runs) == 2 * 4 * 7 * 10
            assert {run.seed for run in part.runs} == set(range(10))
            assert {run.dropout for run in part.runs} == {False, True}
            assert {run.activation for run in part.runs} == {"tanh", "relu", "elu", "softplus"}

    def test_protocol(self):
        study = load_study("paper")
        assert study.epochs == 100
        assert {
            (run.dataset, run.network, run.batch_size, run.learning_rate, run.learning_rate_decay)
            for run in study.runs
        } == {
            ("mnist", "mnist-mlp", 64, 0.05, 1e-6),
            ("mnist", "mnist-cnn", 64, 0.05, 1e-6),
            ("cifar10", "cifar-cnn", 32, 0.01, 1e-6),
        }
        assert {run.phi for run in study.runs} == {1e-3}

    def test_quickstart_needs_no_download(self):
        study = load_study("quickstart")
        assert {run.dataset for run in study.runs} == {"digits"}
        assert {"base", "limit"} < {run.setting for run in study.runs}

    def test_is_packaged(self):
        root = Path(room.__file__).parents[3]
        if not (root / "pyproject.toml").exists():
            pytest.skip("an installed copy, which has the files or test_names fails")
        table = tomllib.loads((root / "pyproject.toml").read_text())
        patterns = table["tool"]["setuptools"]["package-data"]["qneurons"]
        source = root / "src" / "qneurons"
        packaged = {file for pattern in patterns for file in source.glob(pattern)}
        assert {file.stem for file in packaged if file.suffix == ".toml"} == set(study_names())

    @pytest.mark.parametrize("name", study_names())
    def test_every_study_has_a_title_and_runs(self, name):
        study = load_study(name)
        assert study.name == name
        assert study.title
        assert study.runs


class TestOwnFile:
    def test_is_read(self, write):
        study = load_study(write())
        assert (study.name, study.title, study.epochs) == ("mine", "mine", 3)
        assert [(run.activation, run.setting, run.seed) for run in study.runs] == [
            (activation, setting, seed)
            for activation in ("elu", "tanh")
            for setting in ("base", "c0.1")
            for seed in (4, 7)
        ]
        assert {(run.batch_size, run.learning_rate) for run in study.runs} == {(32, 1.0)}

    def test_by_path(self, write, tmp_path):
        assert load_study(tmp_path / write()) == load_study("mine.toml")

    def test_may_name_more_than_the_paper(self, write):
        old, new = '"base", "c0.10"', '"n0.001", "a2@0.25", "c0.3"'
        study = load_study(write(old, new, text=GRID.replace('"elu", "tanh"', '"gelu", "mish"')))
        assert {run.setting for run in study.runs} == {"n0.001", "a2@0.25", "c0.3"}
        assert {run.activation for run in study.runs} == {"gelu", "mish"}

    def test_optional_numbers_have_an_effect(self, write):
        new = "learning_rate = 0.1\nlearning_rate_decay = 0\nphi = 0.5"
        run = load_study(write("learning_rate = 1", new)).runs[0]
        assert (run.learning_rate, run.learning_rate_decay, run.phi) == (0.1, 0.0, 0.5)

    def test_every_key_may_have_several_values(self, write):
        new = "learning_rate = [1, 0.1]\nmomentum = [0, 0.5]\nheld_out = [0, 20]\n"
        new += "augment = ['none', 'sun-mnist', {shift = 0.10, flip = 'both'}]"
        study = load_study(write("learning_rate = 1", new))
        assert len(study.runs) == len({run.id for run in study.runs}) == 8 * 2 * 2 * 2 * 3
        assert {run.augment for run in study.runs} == {
            *("none", "rotation=8 shift=0.08 shear=0.3 zoom=0.08", "shift=0.1 flip=both")
        }
        only = "learning_rate=1,momentum=0.5,held_out=20,augment=none|sun-mnist"
        part = select(study, only=only)
        assert {(r.learning_rate, r.momentum, r.held_out) for r in part.runs} == {(1.0, 0.5, 20)}
        assert len(part.runs) == 8 * 2

    def test_a_run_named_twice_is_one_run(self, write):
        study = load_study(write('"c0.10"', '"c0.1", "c0.10", "c1e-1"'))
        assert len(study.runs) == 8

    def test_includes_others_beside_itself_and_of_the_package(self, write, tmp_path):
        (tmp_path / "deeper").mkdir()
        write(name="deeper/mine.toml")
        write(name="deeper/both.toml", text=GRID.replace("4, 7", "7, 8") + "\n")
        text = 'title = "t"\nepochs = 2\ninclude = ["mine.toml", "both.toml", "quickstart"]'
        study = load_study(write(name="deeper/all.toml", text=text))
        assert study.epochs == 2
        assert len(study.runs) == 4 * 3 + len(load_study("quickstart").runs)

    def test_reads_a_file_once_however_often_it_is_included(self, write):
        write(name="0.toml")
        for n in range(1, 41):  # 2^40 ways
            text = f'title = "t"\nepochs = 1\ninclude = ["{n - 1}.toml", "./{n - 1}.toml"]'
            write(name=f"{n}.toml", text=text)
        assert load_study("40.toml").runs == load_study("0.toml").runs

    def test_may_have_the_name_of_a_packaged_one(self, write):
        write(name="paper.toml", text='title = "t"\nepochs = 2\ninclude = ["paper"]')
        assert load_study("paper.toml").runs == load_study("paper").runs
        assert load_study("paper").epochs == 100


def expect(pattern, name="mine.toml"):
    with pytest.raises(StudyError, match=pattern) as error:
        load_study(name)
    assert "\n" not in str(error.value)
    return str(error.value)


class TestMistakes:
    @pytest.mark.parametrize(
        ("old", "new", "message"),
        [
            ('"digits"', '"mnits"', "dataset: .*'mnits'.*'mnist'"),
            ('"mnist-mlp"', '"mnist-mpl"', "network: .*'mnist-mpl'.*'mnist-mlp'"),
            ('"tanh"', '"tahn"', "activation: .*'tahn'.*'tanh'"),
            ('"base"', '"bas"', "setting: .*'bas'.*'base'"),
            ('"base"', '"lin1"', "setting: .*'lin1' has no number of epochs; write 'lin1/20'"),
            ("false", '"no"', "dropout: .*true or false.*'no'"),
            ("false", "0", "dropout: .*true or false.* 0"),
            ('"digits"', "3", "dataset: .*text.* 3"),
            ('"elu", "tanh"', "", "activation: .*empty"),
            ('"elu"', '["elu"]', r"activation: .*text.*\['elu'\]"),
            ("= 32", "= 0", "batch_size: .*integer from 1.* 0"),
            ("= 32", "= 3.0", "batch_size: .*integer from 1.* 3.0"),
            ("= 32", "= true", "batch_size: .*integer from 1.* True"),
            ("= 32", "= [[32]]", r"batch_size: .*integer from 1.*\[32\]"),
            ("= 32", "= []", r"batch_size: .*empty"),
            ("rate = 1", "rate = 0", "learning_rate: .*above 0.* 0.0"),
            ("rate = 1", "rate = inf", "learning_rate: .*finite.* inf"),
            ("rate = 1", "rate = nan", "learning_rate: .*finite.* nan"),
            ("rate = 1", f"rate = 1{'0' * 400}", "learning_rate: .*finite.* inf"),
            ("rate = 1", f"rate = -1{'0' * 400}", "learning_rate: .*finite.* -inf"),
            ("rate = 1", "rate = '1'", "learning_rate: .*finite.*'1'"),
            (
                "rate = 1",
                "rate = 1\nlearning_rate_decay = 1",
                "learning_rate_decay: .*below 1",
            ),
            ("rate = 1", "rate = 1\nmomentum = 1", "momentum: .*below 1.* 1.0"),
            ("rate = 1", "rate = 1\nmomentum = '0.9'", "momentum: .*below 1.*'0.9'"),
            ("rate = 1", "rate = 1\nheld_out = -1", "held_out: .*integer from 0.* -1"),
            ("rate = 1", "rate = 1\nheld_out = 1200", "held_out 1200 .*no image.*less than 1200"),
            ("rate = 1", "rate = 1\nheld_out = 15", "batch of one of the 1185 images"),
            ("rate = 1", "rate = 1\naugment = 'sun'", "augment: .*'sun'.*sun-mnist.*a table"),
            ("rate = 1", "rate = 1\naugment = {shif = 1}", "augment: .*'shif'.*'shift'"),
            ("rate = 1", "rate = 1\naugment = {zoom = 1}", "augment: zoom .*below 1, got 1"),
            ("rate = 1", "rate = 1\naugment = 3", "augment: .*text.* 3"),
            ("rate = 1", "rate = 1\nphi = -1", r"phi: .*0 to 1e\+06.* -1.0"),
            ("rate = 1", "rate = 1\nphi = 1e300", r"phi: .*0 to 1e\+06.* 1e\+300"),
            ("size = 32", "size = 1", "batch_size 1 .*1200 images of digits"),
            ("size = 32", "size = 1199", "batch_size 1199 .*1200 images of digits"),
            ("rate = 1", "rate = 1\nphy = 1", "'phy'.*'phi'"),
            ("learning_rate = 1", "", "'learning_rate' is missing"),
            ('network = "mnist-mlp"', "", "'network' is missing"),
        ],
    )
    def test_in_a_grid_name_file_grid_and_key(self, write, old, new, message):
        write(old, new)
        assert expect(message).startswith("mine.toml: grid 1: ")

    @pytest.mark.parametrize(
        ("old", "new", "message"),
        [
            ("epochs = 3", "epochs = 0", "epochs: .*integer from 1.* 0"),
            ("epochs = 3", "", "'epochs' is missing"),
            ('"mine"', "5", "title: .*text.* 5"),
            ("seeds = [4, 7]", "", "'seeds' is missing"),
            ("[4, 7]", "0", "seeds: .*from 1 .*a list.* 0"),
            ("[4, 7]", "'0-4'", "seeds: .*a list.*'0-4'"),
            ("[4, 7]", "[]", "seeds: .*empty"),
            ("[4, 7]", "[-1]", "seeds: .*from 0 .* -1"),
            ("[4, 7]", "[1.0]", "seeds: .*integer.* 1.0"),
            ("[4, 7]", "1000000000", "grid 1: .*100,000 runs"),
            ("[4, 7]", "9000000000", "seeds: .*a list.* 9000000000"),
            ("epochs = 3", "epochs = 3\nsedes = 3", "'sedes'.*'seeds'"),
            ("[[grid]]", "[[gird]]", "'gird'.*'grid'"),
            ("epochs = 3", "epochs = 3\ninclude = 3", "include: .*text.* 3"),
            ("epochs = 3", "epochs = 3\ninclude = ['papr']", "study 'papr'.*'paper'"),
            ("epochs = 3", "epochs = 3\ninclude = ['mine.toml']", "include: 'mine.toml'"),
            ("epochs = 3", "epochs = ", "line 3, column 10"),
            ("epochs = 3", "epochs = 3\nepochs = 4", "line 4, column 11"),
            ("[4, 7]", "[" * 5000, "recursion"),
        ],
    )
    def test_outside_name_file_and_key_or_line(self, write, old, new, message):
        write(old, new)
        assert "mine.toml" in expect(message) or "papr" in message

    def test_of_a_file_without_runs(self, write):
        write(name="mine.toml", text='title = "t"\nepochs = 1')
        expect(r"mine.toml: no runs.*\[\[grid\]\]")
        write(name="mine.toml", text='title = "t"\nepochs = 1\ngrid = 5\nseeds = 1')
        expect("mine.toml: grid: .*table.* 5")

    def test_seeds_that_would_have_no_effect(self, write):
        write(name="mine.toml", text='title = "t"\nepochs = 1\nseeds = 3\ninclude = ["paper"]')
        expect("mine.toml: seeds: .*no effect.*remove")

    def test_including_in_a_circle(self, write, tmp_path):
        (tmp_path / "deeper").mkdir()
        text = 'title = "t"\nepochs = 1\ninclude = ["../deeper/b.toml"]'
        write(name="deeper/a.toml", text=text)
        write(name="deeper/b.toml", text=text.replace("b.toml", "a.toml"))
        expect("b.toml: include: '../deeper/a.toml'", name="deeper/a.toml")

    def test_including_a_name_that_no_file_has(self, write):
        write(name="mine.toml", text='title = "t"\nepochs = 1\ninclude = ["a\\u0000.toml"]')
        expect(r"unknown study 'a\\x00.toml'; the known ones: .*; or give a .toml file")

    def test_a_link_to_itself(self, write, tmp_path):
        (tmp_path / "mine.toml").symlink_to("mine.toml")
        expect("cannot read the study mine.toml: Too many levels of symbolic links")

    def test_too_many_runs_in_all_files(self, write, monkeypatch):
        monkeypatch.setattr(room, "MOST_RUNS", 12)
        write(name="other.toml", text=GRID.replace("4, 7", "8, 9"))
        write("epochs = 3", 'epochs = 3\ninclude = ["other.toml"]')
        expect("mine.toml: more than 12 runs; give fewer")

    def test_of_the_name(self, write, tmp_path):
        expect("study 'quikstart'.*'quickstart'", name="quikstart")
        expect("none.toml: No such file or directory", name="none.toml")
        (tmp_path / "folder.toml").mkdir()
        expect("folder.toml: Is a directory", name="folder.toml")
        (tmp_path / "latin.toml").write_bytes(b'title = "\xe9"')
        expect("latin.toml: .*save it as UTF-8", name="latin.toml")
        (tmp_path / "windows.toml").write_bytes(b"\xef\xbb\xbf" + (tmp_path / write()).read_bytes())
        assert load_study("windows.toml").runs == load_study("mine.toml").runs


class TestSelect:
    @pytest.fixture
    def paper(self):
        return load_study("paper")

    def test_nothing_is_the_whole(self, paper):
        assert select(paper) == paper

    @pytest.mark.parametrize(
        ("only", "num_runs"),
        [
            ("network=mnist-mlp", 560),
            ("network=mnist-mlp,activation=elu", 140),
            ("activation=elu|tanh", 840),
            ("network=mnist-mlp, activation=elu, setting=base|c0.10, dropout=false", 20),
            ("dropout=true", 840),
            ("dataset=cifar10,setting=limit", 80),
        ],
    )
    def test_only(self, paper, only, num_runs):
        part = select(paper, only=only)
        assert len(part.runs) == num_runs
        assert set(part.runs) < set(paper.runs)
        for condition in only.split(","):
            key, _, values = condition.strip().partition("=")
            found = {str(getattr(run, key)).lower() for run in part.runs}
            assert found == set(values.replace("c0.10", "c0.1").split("|"))

    def test_several_of_only_join_their_runs(self, paper):
        parts = "activation=elu,setting=base|a5", "activation=tanh|elu,setting=base"
        joined = select(paper, only=parts, seeds="0")
        assert {(run.activation, run.setting) for run in joined.runs} == {
            *(("elu", "base"), ("elu", "a5"), ("tanh", "base"))
        }
        assert len(joined.runs) == len(set(joined.runs)) == 3 * 6  # networks and dropout
        with pytest.raises(StudyError, match="no run of paper"):
            select(paper, only=[parts[0], "dataset=mnist,network=cifar-cnn"])

    @pytest.mark.parametrize(
        ("only", "message"),
        [
            ("netwrk=mnist-mlp", "'netwrk'.*'network'"),
            ("seed=3", "key 'seed'"),
            ("activation=eluu", "activation of paper 'eluu'.*'elu'"),
            ("activation=gelu", "'gelu'.*tanh, relu, elu, softplus"),
            ("activation=elu|", "activation of paper ''"),
            ("setting=base|c0.3", "setting of paper 'c0.3'"),
            ("setting=bse", "setting 'bse'"),
            ("dropout=no", "dropout of paper 'no'.*false, true"),
            ("activation=elu,activation=tanh", r"activation .*twice.*activation=one\|other"),
            ("activation", "'activation'; write key=value"),
            ("", "''; write key=value"),
            ("activation=elu,", "''; write key=value"),
            ("dataset=mnist,network=cifar-cnn", "no run of paper"),
        ],
    )
    def test_only_mistaken(self, paper, only, message):
        with pytest.raises(StudyError, match=message) as error:
            select(paper, only=only)
        assert str(error.value).startswith(f"only {only!r}")

    @pytest.mark.parametrize(
        ("seeds", "expected"),
        [
            ("0-9", range(10)),
            ("0,3,5-7", [0, 3, 5, 6, 7]),
            (" 2 , 1-2", [1, 2]),
            ("10-11", [10, 11]),  # not only those of the study
            ("0", [0]),
            (str(2**63 - 1), [2**63 - 1]),
        ],
    )
    def test_seeds(self, paper, seeds, expected):
        part = select(paper, seeds=seeds)
        assert {run.seed for run in part.runs} == set(expected)
        assert len(set(part.runs)) == len(part.runs) == 168 * len(expected)
        assert set(select(part, seeds="0-9").runs) == set(paper.runs)

    @pytest.mark.parametrize(
        "seeds", ["", "a", "-1", "3-1", "0,,1", "1.5", "0-", "٣", "9" * 30, str(2**63)]
    )
    def test_seeds_mistaken(self, paper, seeds):
        with pytest.raises(StudyError, match=r"write '0-9' or '0,3,5-7', with") as error:
            select(paper, seeds=seeds)
        assert str(error.value).startswith(f"seeds {seeds!r}: cannot read")

    def test_too_many_seeds_are_refused_before_they_are_listed(self, paper, monkeypatch):
        with pytest.raises(StudyError, match="more than 100,000 runs; give fewer seeds"):
            select(paper, seeds="0-999999999999999999")
        monkeypatch.setattr(room, "MOST_RUNS", 168 * 2)
        assert len(select(paper, seeds="0,5").runs) == 168 * 2
        with pytest.raises(StudyError, match="give fewer seeds"):
            select(paper, seeds="0,5-6")

    def test_epochs(self, paper):
        part = select(paper, epochs=3)
        assert part.epochs == 3
        assert part.runs == paper.runs  # the beginning of the same runs
        for epochs in (0, -1, True, 1.0, "3"):
            with pytest.raises(StudyError, match=r"^epochs: must be an integer from 1"):
                select(paper, epochs=epochs)
