"""A table as text of so many columns, in which no word is split."""

import io
import textwrap

from rich.console import Console

from qneurons.report.rendering import NONE, Table, to_rich

UNBOUNDED = 10_000  # columns


def table_text(table: Table, columns: int) -> str:
    """The table, or a paragraph for each of its rows if that would be too wide."""
    shown = to_rich(table)
    for column in shown.columns:  # cells stay in one line, headers are broken between words
        column.width = max(map(len, [*str(column.header).split(), *map(str, column.cells)]))
    text = io.StringIO()
    # No terminal, also where the environment asks for colours: this is text.
    screen = Console(file=text, width=columns, force_terminal=False)
    any_width = screen.options.update(width=UNBOUNDED)
    if screen.measure(shown, options=any_width).maximum <= columns:
        screen.print(shown)
        return text.getvalue()
    wrapper = textwrap.TextWrapper(
        columns, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False
    )
    lines = [table.title, ""]
    for name, *cells in table.rows:
        pairs = zip(table.columns[1:], cells, strict=True)
        values = ", ".join(f"{title} {cell}" for title, cell in pairs if cell != NONE)
        lines.append(wrapper.fill(f"{name}: {values}"))
    return "\n".join([*lines, "", table.note, ""])
