"""What the benchmark measures, and the rows that it keeps."""

import csv

import pytest
import torch
import torch.nn.functional as F

import qneurons as qn
from qneurons import bench, measuring
from qneurons.provenance import ORIGIN, provenance
from qneurons.study.errors import StudyError

CPU = torch.device("cpu")
TINY = {"seconds": 0.0}
PASSES = (bench.FORWARD, bench.BOTH)


def by_key(rows):
    return {(row["variant"], row["pass"]): row for row in rows}


@pytest.fixture(scope="module")
def measured():
    return bench.run(bench.ActivationCase("elu", "float32", 1000), CPU, **TINY)


def test_every_variant_has_both_passes_and_there_is_a_copy(measured):
    assert list(by_key(measured)) == [
        ("copy", bench.FORWARD),
        *((name, bench.EVALUATION) for name in ("plain", "qneurons", "mean")),
        *((name, which) for name in ("plain", "snippet", "qneurons", "limit") for which in PASSES),
    ]
    assert not any(row.get("error") for row in measured)


def test_ratios_are_of_medians(measured):
    rows = by_key(measured)
    copy = rows["copy", bench.FORWARD]["median_us"]
    for (variant, which), row in rows.items():
        assert row["p20_us"] <= row["median_us"] <= row["p80_us"]
        assert row["samples"] >= measuring.MIN_SAMPLES
        assert row["to_copy"] == row["median_us"] / copy
        if variant != "copy":
            assert row["to_plain"] == row["median_us"] / rows["plain", which]["median_us"]


@pytest.mark.parametrize("row", qn.activations.rows(), ids=lambda row: row.name)
def test_plain_is_the_row_by_a_function_of_torch(row):
    x = torch.randn(100)
    torch.testing.assert_close(bench.plain(row)(x), row(x))


def test_the_snippet_tends_to_the_limit():
    x = torch.randn(1000, dtype=torch.float64)
    near = bench.paper_snippet(F.elu, lam=0.0, phi=1e-6)(x)
    torch.testing.assert_close(near, qn.q_limit(x, "elu"), rtol=0, atol=1e-5)


def test_compiled_variants_are_those_that_are_asked_for(monkeypatch):
    monkeypatch.setattr(torch, "compile", lambda function, dynamic: function)
    names = bench.ActivationCase("elu", "float32", 8, compiled=True).variants(CPU)
    assert {"snippet, compiled", "qneurons, compiled"} <= set(names)


def test_the_chains_of_a_compiled_case_are_measured(monkeypatch):
    monkeypatch.setattr(torch, "compile", lambda function, dynamic: function)
    case = bench.ActivationCase("gelu", "float32", 100, compiled=True)
    rows = by_key(bench.run(case, CPU, **TINY))
    for which in (bench.CHAIN, bench.CHAIN_BOTH):
        for variant in ("plain", "limit", "limit, one operation"):
            assert rows[variant, which]["to_plain"] > 0
    plain, limit, one = case.chains().values()
    results = []
    for function in (limit, one):
        x = torch.linspace(-3, 3, 100, requires_grad=True)
        results.append((function(x), torch.autograd.grad(function(x).sum(), x)[0]))
        assert (function(x) - plain(x)).abs().max() > 0.1
    torch.testing.assert_close(*results)


def test_a_variant_that_fails_has_a_row_and_the_others_are_measured(monkeypatch):
    def fail(f):
        return lambda x: f(x).no_such_thing

    monkeypatch.setattr(bench, "paper_snippet", fail)
    rows = by_key(bench.run(bench.ActivationCase("tanh", "float64", 10), CPU, **TINY))
    for which in PASSES:
        assert "no_such_thing" in rows["snippet", which]["error"]
        assert "median_us" not in rows["snippet", which]
        assert rows["qneurons", which]["to_plain"] > 0


def test_a_job_that_fails_has_a_row():
    (row,) = bench.run(bench.ActivationCase("no such row", "float32", 8), CPU, **TINY)
    assert "no such row" in row["error"]
    assert row["activation"] == "no such row"


def test_dtype_is_that_of_the_case(monkeypatch):
    seen = set()
    monkeypatch.setattr(bench, "plain", lambda row: lambda x: (seen.add(x.dtype), x * 2)[1])
    bench.run(bench.ActivationCase("elu", "bfloat16", 10), CPU, **TINY)
    assert seen == {torch.bfloat16}


# --- where the numbers go -------------------------------------------------------------------------


def test_rows_are_appended_with_all_columns(tmp_path, measured):
    origin = provenance(CPU, "a command")
    for _ in range(2):
        path = bench.results_file(tmp_path / "new", CPU)
        bench.append_rows(path, bench.COLUMNS, (row | origin for row in measured))
    with (tmp_path / "new" / "activation-cpu.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 2 * len(measured)
    for row in rows:
        assert tuple(row) == bench.COLUMNS
        assert None not in row.values()
        assert row["torch"] == torch.__version__
        assert row["command"] == "a command"
        assert all(row[name] for name in ORIGIN if name != "triton")


def test_a_file_with_other_columns_is_refused(tmp_path):
    path = tmp_path / "activation-cpu.csv"
    path.write_text("activation,median_ns\nelu,1\n")
    with pytest.raises(StudyError, match=r"activation-cpu\.csv.*columns.*--out"):
        bench.results_file(tmp_path, CPU)
    assert path.read_text() == "activation,median_ns\nelu,1\n"
