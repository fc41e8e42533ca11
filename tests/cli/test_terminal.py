"""The console, and errors of one line."""

import errno
import os

import pytest
import typer
from rich.table import Table

from qneurons.cli.terminal import console, explain, one_line_errors
from qneurons.study.errors import StudyError


def os_error(number):
    return OSError(number, os.strerror(number), "some/file")


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (StudyError("no such study: say another"), ["no such study: say another"]),
        (os_error(errno.ENOSPC), ["No space left", "some/file", "free some space"]),
        (os_error(errno.EROFS), ["some/file", "another folder"]),
        (os_error(errno.EACCES), ["some/file", "another folder"]),
        (os_error(errno.EIO), ["some/file"]),
        (ModuleNotFoundError("x", name="polars.io"), ["polars", "qneurons[study]"]),
        (ValueError("bad\nluck"), ["ValueError", "bad luck", "--debug"]),
    ],
)
def test_an_error_is_one_line_with_a_remedy(capsys, error, words):
    with pytest.raises(typer.Exit) as left, one_line_errors(debug=False):
        raise error
    assert left.value.exit_code == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    (line,) = captured.err.splitlines()
    assert line.startswith("error: ")
    assert all(word in line for word in words)


@pytest.mark.parametrize("error", [StudyError("no"), ValueError("no")])
def test_debug_lets_errors_through(error):
    with pytest.raises(type(error)), one_line_errors(debug=True):
        raise error


@pytest.mark.parametrize("error", [typer.Exit(3), typer.BadParameter("no"), BrokenPipeError()])
def test_what_the_command_line_handles_itself_is_left_to_it(error):
    with pytest.raises(type(error)) as left, one_line_errors(debug=False):
        raise error
    assert left.value is error


def test_a_missing_part_of_ourselves_is_no_missing_extra():
    error = ModuleNotFoundError("No module named 'qneurons.x'", name="qneurons.x")
    assert "pip install" not in explain(error)


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
