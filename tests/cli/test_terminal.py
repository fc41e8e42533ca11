"""The console, errors with a hint, and the page in a browser."""

import errno
import os
import webbrowser

import pytest
import typer
from rich.table import Table

from qneurons.cli.terminal import console, explain, one_line_errors, open_page
from qneurons.study.errors import StudyError


def os_error(number):
    return OSError(number, os.strerror(number), "some/file")


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (
            StudyError("no such study; none like it", "say another; or not"),
            ["no such study; none like it", "say another; or not"],
        ),
        (os_error(errno.ENOSPC), ["No space left", "some/file", "free some space"]),
        (os_error(errno.EROFS), ["some/file", "another folder"]),
        (os_error(errno.EACCES), ["some/file", "another folder"]),
        (os_error(errno.EIO), ["some/file", "run the same command again"]),
        (ModuleNotFoundError("x", name="polars.io"), ["polars", "qneurons[study]"]),
        (ValueError("bad\nluck"), ["ValueError", "bad luck", "--debug"]),
    ],
)
def test_an_error_is_a_line_and_a_hint(capsys, error, words):
    with pytest.raises(typer.Exit) as left, one_line_errors(debug=False):
        raise error
    assert left.value.exit_code == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    error, hint = captured.err.splitlines()
    assert (error[:7], hint[:6]) == ("error: ", "hint: ")
    assert words[-1] in hint
    assert all(word in error for word in words[:-1])


@pytest.mark.parametrize("error", [StudyError("no"), ValueError("no")])
def test_debug_lets_errors_through(error):
    with pytest.raises(type(error)), one_line_errors(debug=True):
        raise error


@pytest.mark.parametrize("error", [typer.Exit(3), BrokenPipeError()])
def test_what_the_command_line_handles_itself_is_left_to_it(error):
    with pytest.raises(type(error)) as left, one_line_errors(debug=False):
        raise error
    assert left.value is error


def test_a_missing_part_of_ourselves_is_no_missing_extra():
    error = ModuleNotFoundError("No module named 'qneurons.x'", name="qneurons.x")
    assert "pip install" not in "".join(explain(error))


def test_a_file_is_as_wide_as_a_table_needs(capsys):
    console().print("x" * 150)
    console(stderr=True).print("y")
    captured = capsys.readouterr()
    assert captured.out == "x" * 150 + "\n"
    assert captured.err == "y\n"


def test_control_characters_are_written_out(capsys):
    text = "a\x1b]0;title\x07\x9b2J\u202e\tb\n"
    table = Table("column")
    table.add_row(text)
    console().print(text, table)
    with pytest.raises(typer.Exit), one_line_errors(debug=False):
        raise StudyError(text)
    captured = capsys.readouterr()
    assert captured.out.count("a\\x1b]0;title\\x07\\x9b2J\\u202e") == 2
    assert captured.err == "error: a\\x1b]0;title\\x07\\x9b2J\\u202e b\n"
    assert not {"\x1b", "\x07", "\x9b", "\u202e"} & set(captured.out)


def test_a_terminal_breaks_lines_between_words(monkeypatch, capsys):
    monkeypatch.setenv("TTY_COMPATIBLE", "1")
    monkeypatch.setenv("COLUMNS", "20")
    path = "/a/path/that-is-longer/than-a-line"
    console().print(f"one mnist-mlp and two more: {path}\n  indented text goes on below")
    assert capsys.readouterr().out.splitlines() == [
        "one mnist-mlp and",
        "two more:",
        path,
        "  indented text goes",
        "  on below",
    ]


@pytest.mark.parametrize("browser", [True, False, webbrowser.Error("none"), OSError("none")])
def test_a_page_is_opened_where_there_is_a_browser(monkeypatch, capsys, tmp_path, browser):
    opened = []

    def fake(url):
        opened.append(url)
        if isinstance(browser, Exception):
            raise browser
        return browser

    monkeypatch.setattr(webbrowser, "open", fake)
    open_page(tmp_path / "a page.html")
    assert opened == [f"file://{tmp_path}/a%20page.html"]
    assert ("a page.html" in capsys.readouterr().err) == (browser is not True)
