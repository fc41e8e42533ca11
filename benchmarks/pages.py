"""Writes measured tables into a page, between two markers."""


def write_between(page, mark, text):
    """Replaces the text between <!-- mark --> and <!-- /mark -->."""
    begin, end = f"<!-- {mark} -->\n", f"<!-- /{mark} -->"
    before, found, rest = page.read_text().partition(begin)
    _, found_end, after = rest.partition(end)
    if not (found and found_end):
        raise ValueError(f"{page} lacks the markers {begin.strip()} and {end}; add both")
    page.write_text(before + begin + text.strip("\n") + "\n" + end + after)
