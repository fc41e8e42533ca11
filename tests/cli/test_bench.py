"""``qneurons bench``: what it accepts, prints and answers."""

import csv
import re

import pytest
import torch
from typer.testing import CliRunner

import qneurons as qn
from qneurons import bench, cli
from qneurons.cli.bench import _digits


def invoke(*arguments):
    return CliRunner().invoke(cli.app, [str(argument) for argument in arguments])


def run(tmp_path, *arguments):
    common = ("--device", "cpu", "--seconds", 0, "--no-compiled", "--out", tmp_path)
    return invoke("bench", *arguments, *common)


def rows(tmp_path):
    with (tmp_path / "activation-cpu.csv").open(newline="") as file:
        return list(csv.DictReader(file))


def test_bench_prints_a_table_and_appends_rows(tmp_path):
    for number in (1, 2):
        result = run(tmp_path, "elu", "--elements", "2**8", "--dtype", "float32")
        assert result.exit_code == 0, result.output
        assert len(rows(tmp_path)) == 12 * number
    for text in (
        "elu",
        "snippet",
        "qneurons",
        "forward + backward",
        "evaluation",
        "limit",
        "× plain",
        torch.__version__,
    ):
        assert text in result.output
    assert {row["elements"] for row in rows(tmp_path)} == {"256"}


def test_numbers_have_three_digits():
    numbers = [0.00123456, 0.98765, 1.0, 9.999, 12.345, 999.6, 1234.5, 987654.0]
    expected = ["0.00123", "0.988", "1.00", "10.0", "12.3", "1,000", "1,230", "988,000"]
    assert list(map(_digits, numbers)) == expected


def test_a_pass_is_a_section_and_the_spread_is_shown_on_demand(tmp_path, monkeypatch):
    times = {"median_us": 12.345, "p20_us": 12.0, "p80_us": 13.0}

    def fake(case, device, *, seconds):
        of = {"copy": bench.FORWARD, "plain": bench.EVALUATION, "qneurons": bench.FORWARD}
        kept = {"bytes_kept": 12 * case.elements, "to_plain": 2.0}
        return [
            case.about() | {"variant": name, "pass": which} | times | kept
            for name, which in of.items()
        ]

    monkeypatch.setattr(bench, "run", fake)
    narrow, wide = (
        run(tmp_path, "relu", "--elements", "2**8", *option).stdout for option in ((), ("--wide",))
    )
    lines = [line.split() for line in narrow.splitlines()]
    assert lines[0] == ["relu", "in", "float32,", "256", "elements"]
    assert lines[1] == ["variant", "µs", "×", "plain", "kept"]
    assert [line[0] for line in lines[3:9] if line] == [
        *("forward", "copy", "qneurons", "evaluation", "plain")
    ]
    assert ["qneurons", "12.3", "2.00", "12", "B", "each"] in lines
    assert "12.0 to 13.0" in wide
    assert "12.0" not in narrow


def test_sizes_are_exponents_and_dtypes_may_be_repeated(tmp_path):
    run(tmp_path, "relu", "tanh", "--sizes", "3,5", "--dtype", "float16", "--dtype", "float64")
    cases = {(row["activation"], row["dtype"], row["elements"]) for row in rows(tmp_path)}
    assert cases == {
        (name, dtype, size)
        for name in ("relu", "tanh")
        for dtype in ("float16", "float64")
        for size in ("8", "32")
    }


@pytest.fixture
def jobs(monkeypatch):
    """Catches the jobs instead of measuring them."""
    caught = []

    def fake(job, device, *, seconds):
        caught.append((job, seconds))
        return [job.about() | {"variant": "plain", "error": "not measured"}]

    monkeypatch.setattr(bench, "run", fake)
    return caught


def test_without_arguments_the_whole_table_is_measured(tmp_path, jobs):
    result = invoke("bench", "--device", "cpu", "--out", tmp_path)
    assert result.exit_code == 1  # the fake fails
    assert "not measured" in result.output
    names = [row.name for row in qn.activations.rows()]
    found = [(job.activation, job.dtype) for job, _ in jobs]
    assert sorted(found) == sorted([(name, "float32") for name in names] + [("elu", "bfloat16")])
    assert {job.activation for job, _ in jobs if job.compiled} == {"elu"}
    assert {job.elements for job, _ in jobs} == {2**20}
    assert {seconds for _, seconds in jobs} == {1.0}


def test_all_means_every_dtype(tmp_path, jobs):
    invoke("bench", "elu", "relu", "--all", "--compiled", "--device", "cpu", "--out", tmp_path)
    assert {job.dtype for job, _ in jobs if job.activation == "relu"} == set(bench.DTYPES)
    assert all(name in invoke("bench", "--help").output for name in bench.DTYPES)
    assert all(job.compiled for job, _ in jobs)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["elv"], "'elv'.*'elu'"),
        (["--dtype", "float8"], r"dtype 'float8'.*float32, bfloat16, float16, float64"),
        (["--device", "tpu"], "--device is 'tpu'.*cuda or cpu"),
        (["--elements", "many"], r"elements 'many'.*2\*\*12"),
        (["--elements", "0"], "elements.*'0'"),
        (["--sizes", "3,x"], r"'2\*\*x'"),
        (["--sizes", "3", "--elements", "8"], "--elements and --sizes"),
        (["--all", "--dtype", "float32"], "--all.*--dtype"),
    ],
)
def test_what_cannot_be_measured_is_answered_before_measuring(tmp_path, jobs, arguments, message):
    device = [] if "--device" in arguments else ["--device", "cpu"]
    result = invoke("bench", *arguments, *device, "--out", tmp_path / "new")
    assert result.exit_code == 1
    assert re.search(message, " ".join(result.output.split()))
    assert not jobs
    assert not (tmp_path / "new").exists()


def test_a_file_where_the_folder_should_be(tmp_path, jobs):
    (tmp_path / "afile").touch()
    result = invoke("bench", "elu", "--device", "cpu", "--out", tmp_path / "afile")
    assert result.exit_code == 1
    assert "afile" in " ".join(result.output.split())
    assert not jobs


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
def test_a_device_that_is_not_there_is_named():
    result = invoke("bench", "--device", "cuda")
    assert result.exit_code == 1
    assert "--device cpu" in result.output


def test_a_file_with_other_columns_is_refused_before_measuring(tmp_path, jobs):
    (tmp_path / "activation-cpu.csv").write_text("old\n")
    result = run(tmp_path, "elu")
    assert result.exit_code == 1
    assert "activation-cpu.csv" in "".join(result.output.split())
    assert not jobs
