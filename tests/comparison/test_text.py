"""A table as text of so many columns."""

import pytest

for package in ("jinja2", "matplotlib", "polars", "scipy"):
    pytest.importorskip(package)

from qneurons.comparison.text import table_text
from qneurons.report.rendering import NONE, Table

TABLE = Table(
    "Test accuracy",
    ("setting", "test accuracy", "95 % interval", "s per epoch"),
    (
        ("base", "91.00 ± 2.48", NONE, "0.0133"),
        ("limit", "92.00 ± 2.48", "[+0.812, +1.188]", "0.0126 (×0.97)"),
    ),
    "Larger is better.",
)


def test_a_wide_terminal_shows_a_table():
    lines = table_text(TABLE, 64).splitlines()
    assert max(map(len, lines)) <= 64
    assert any("[+0.812, +1.188]  0.0126 (×0.97)" in line for line in lines)
    assert sum("interval" in line for line in lines) == 1


def test_a_narrow_terminal_shows_a_paragraph_for_each_row(monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "1")  # it is text also where colours are wanted
    assert table_text(TABLE, 50).splitlines() == [
        "Test accuracy",
        "",
        "base: test accuracy 91.00 ± 2.48, s per epoch",
        "  0.0133",
        "limit: test accuracy 92.00 ± 2.48, 95 % interval",
        "  [+0.812, +1.188], s per epoch 0.0126 (×0.97)",
        "",
        "Larger is better.",
    ]
    assert "\x1b" not in table_text(TABLE, 64)
