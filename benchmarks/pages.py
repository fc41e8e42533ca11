"""Writes measured tables into a page, between two markers."""


def bare_markdown(table):
    """Without title and note, which a page has in its own words."""
    from qneurons.report.rendering import Table, to_markdown  # others measure without polars

    return to_markdown(Table("", table.columns, table.rows)).removeprefix("### \n\n")


def write_between(page, mark, text):
    """Replaces the text between <!-- mark --> and <!-- /mark -->."""
    begin, end = f"<!-- {mark} -->\n", f"<!-- /{mark} -->"
    before, found, rest = page.read_text().partition(begin)
    _, found_end, after = rest.partition(end)
    if not (found and found_end):
        raise ValueError(f"{page} lacks the markers {begin.strip()} and {end}; add both")
    page.write_text(before + begin + text.strip("\n") + "\n" + end + after)
