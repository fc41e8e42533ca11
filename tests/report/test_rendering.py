"""Numbers as text, and tables for terminal, Markdown and page."""

import io
import math

import pytest

pytest.importorskip("polars")
pytest.importorskip("scipy")

from qneurons.report.final_values import METRICS
from qneurons.report.inference import Estimate, estimate
from qneurons.report.rendering import (
    Number,
    Table,
    difference_texts,
    estimate_text,
    listed,
    number_text,
    p_text,
    to_markdown,
    to_rich,
)

ACCURACY, LOSS = METRICS["test_accuracy"], METRICS["train_loss"]
NAN = math.nan
TABLE = Table("Sizes <1>", ("a|b", "c"), (("x & y", "[bold]2[/]"), ("–", "5 | 6\n7")), "Note <b>.")


@pytest.mark.parametrize(
    ("value", "metric", "text"),
    [
        (Estimate(5, 0.98214, 0.1, 0.98164, 0.98264), ACCURACY, "98.21 ± 0.05"),
        (Estimate(1, 0.98214, NAN, NAN, NAN), ACCURACY, "98.21"),
        (Estimate(0, NAN, NAN, NAN, NAN), ACCURACY, "–"),
        (Estimate(5, 0.05, 0.1, 0.04969, 0.05031), LOSS, "0.05000 ± 0.00031"),
        (Estimate(5, 1.5, 0.1, 1.4954, 1.5046), LOSS, "1.5000 ± 0.0046"),
        (Estimate(5, 312.0, 9.0, 301.0, 323.0), LOSS, "312 ± 11"),
        (Estimate(5, 1.5, 0.0, 1.5, 1.5), LOSS, "1.500 ± 0.000"),
        (Estimate(5, 1.234e-6, 0.1, 1.2e-6, 1.268e-6), LOSS, "1.23e-06 ± 3.40e-08"),
    ],
)
def test_estimates(value, metric, text):
    assert estimate_text(value, metric) == text


def test_differences_are_signed_and_in_points():
    value = Estimate(5, 0.00123, 0.1, -0.0001, 0.00256)
    assert difference_texts(value, ACCURACY) == ("+0.123", "[-0.010, +0.256]")
    assert difference_texts(value, LOSS) == ("+0.0012", "[-0.0001, +0.0026]")
    assert difference_texts(Estimate(0, NAN, NAN, NAN, NAN), LOSS) == ("–", "–")


@pytest.mark.parametrize(("p", "text"), [(0.0004, "< 0.001"), (0.02149, "0.021"), (NAN, "–")])
def test_p(p, text):
    assert p_text(p) == text


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (Number("cases", 12), "cases 12"),
        (Number("best", 82.9, unit="%"), "best 82.90 %"),
        (
            Number("gain", 0.1234, 0.1, 0.15, "pp"),
            "gain +0.123 pp [+0.100, +0.150]",
        ),
        (Number("none", NAN), "none –"),
    ],
)
def test_numbers(number, text):
    assert number_text(number) == text


def test_markdown_escapes_what_would_break_a_row():
    lines = to_markdown(TABLE).splitlines()
    assert lines == [
        "### Sizes <1>",
        "",
        "| a\\|b | c |",
        "| --- | --- |",
        "| x & y | [bold]2[/] |",
        "| – | 5 \\| 6 7 |",
        "",
        "Note &lt;b>.",
    ]


@pytest.mark.parametrize("width", [80, 30])
def test_rich_shows_text_as_it_is_and_cuts_nothing(width):
    from rich.console import Console

    out = io.StringIO()
    Console(file=out, width=width).print(to_rich(TABLE))
    text = out.getvalue()
    for part in ("Sizes <1>", "x & y", "[bold]2[/]", "Note <b>."):
        assert part in text
    assert "…" not in text


@pytest.mark.parametrize(
    ("cells", "is_numeric"),
    [
        (("+0.12*", "learns nothing"), True),
        (("[-0.1, +0.2]", "–"), True),
        (("< 0.001", "0.021"), True),
        (("> 1,000", "–"), True),
        (("sign-flip", "none"), False),
        (("lr=0.1", "–"), False),
    ],
)
def test_columns_of_numbers_are_known(cells, is_numeric):
    rows = tuple(("c0.1", cell, "2") for cell in cells)
    assert Table("", ("a", "b", "c"), rows).numeric == [False, is_numeric, True]
    assert Table("", ("a", "b", "c"), rows, num_heads=2).numeric == [False, False, True]


def test_names_are_listed():
    assert [listed(["a"]), listed(["a", "b"]), listed(["a", "b", "c"], "or")] == [
        *("a", "a and b", "a, b or c")
    ]


def test_numbers_with_a_unit_are_hundredths():
    value = estimate([0.01, 0.02, 0.03])
    assert Number.of("a", value, unit="pp").value == pytest.approx(2.0)
    assert Number.of("a", value).value == pytest.approx(0.02)
    assert Number.of("a", value, unit="%").high == pytest.approx(100 * value.high)
