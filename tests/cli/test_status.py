"""``qneurons study status``: what is done, of how much."""

import pytest

from qneurons.study.store import Store


@pytest.fixture
def run(invoke, store, train_with, fake_pack):
    """Runs a study on a store that has a finished one."""

    def run(name, *options, **of_packs):
        train_with(fake_pack(**of_packs))
        invoke("study", "run", name, "--store", store, "--device", "cpu", *options)

    return run


def status(invoke, *arguments):
    result = invoke("study", "status", *arguments)
    assert result.exit_code == 0, result.output
    return result.stdout


def test_it_is_counted_by_cell(invoke, store, write_spec, run):
    spec = write_spec(("dropout = false", "dropout = true"), ("epochs = 4", "epochs = 7"))
    run(spec, diverging=[(1, 2)])
    lines = [line for line in status(invoke, store).splitlines() if "accuracy" not in line]
    assert lines == [
        f"{store}: 24 of 24 runs, 132 of 132 epochs, 4 diverged",
        "",
        "mnist-mlp on digits, trained on cpu in fp32",
        "  elu: 6 of 6 runs, 24 of 24 epochs",
        "  tanh: 6 of 6 runs, 24 of 24 epochs",
        "",
        "mnist-mlp on digits, dropout, trained on cpu in fp32",
        "  elu: 6 of 6 runs, 42 of 42 epochs, 2 diverged",
        "  tanh: 6 of 6 runs, 42 of 42 epochs, 2 diverged",
    ]


def test_the_latest_accuracies_are_means_over_seeds(invoke, store):
    opened = Store.open(store, readonly=True)
    last = [
        opened.epochs(run.id)[-1].test_accuracy
        for run in opened.runs().values()
        if (run.activation, run.setting) == ("elu", "base")
    ]
    assert len(last) == 3
    mean = 100 * sum(last) / 3
    assert f"test accuracy in %: base={mean:.2f}, c0.1=" in status(invoke, store)


def test_the_plan_is_all_that_was_asked_for(invoke, store, write_spec, run):
    run(write_spec(), "--only", "activation=elu", "--epochs", 6)
    text = status(invoke, store)
    assert "12 of 12 runs, 60 of 60 epochs" in text
    run(write_spec(("seeds = 3", "seeds = 5")), "--epochs", 6, "--time-limit", 0)
    text = status(invoke, store)
    assert "6 of 20 runs, 60 of 120 epochs" in text
    assert "elu: 6 of 10 runs, 36 of 60 epochs" in text


def test_a_study_may_be_named(invoke, store, write_spec):
    other = write_spec(("seeds = 3", "seeds = [2, 3]"), name="other.toml")
    lines = status(invoke, store, "--study", other).splitlines()
    assert lines[0] == f"{store}: 4 of 8 runs, 16 of 32 epochs"
    assert lines[1] == "it also has 8 runs outside of other"
    assert "  elu: 2 of 4 runs, 8 of 16 epochs" in lines


def test_an_older_store_has_no_plan(invoke, store, write_spec, run):
    (store / "plan.json").unlink()
    lines = status(invoke, store).splitlines()
    assert lines[0] == f"{store}: 12 runs, 48 epochs"
    assert lines[1].startswith("plan unknown: ")
    assert "--study" in lines[1]
    assert "  elu: 6 runs, 24 epochs" in lines
    run(write_spec(("dropout = false", "dropout = true")))
    text = status(invoke, store)
    assert "12 of 12 runs, 48 of 48 epochs, 12 runs outside the plan, 48 epochs\n" in text
    assert "plan unknown" not in text


def test_an_empty_store_has_a_status(invoke, tmp_path):
    Store.open(tmp_path / "new", create=True)
    assert status(invoke, "new").startswith("new: 0 runs, 0 epochs\nplan unknown: ")


def test_a_damaged_plan_is_refused(invoke, store):
    (store / "plan.json").write_text("{")
    result = invoke("study", "status", store)
    assert result.exit_code == 1
    error, hint = result.stderr.splitlines()
    assert "plan.json" in error
    assert "delete it" in hint
