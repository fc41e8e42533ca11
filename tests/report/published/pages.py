"""The pages on the results, and whether their numbers are those of the rows."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[3]
PAPER = ROOT / "results" / "paper"
NAMES = {"elu": "ELU", "relu": "ReLU"}  # as sentences write them; the others are written as here
WORDS = ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"]
OPENING = "Results"  # the title of RESULTS.md, and so of what comes before its contents


def plain(text):
    """Words only: no images, no code, no generated parts, of links their text."""
    text = re.sub(r"<!-- (?!results)([\w ]+) -->.*?<!-- /\1 -->", "", text, flags=re.DOTALL)
    text = re.sub(r"!\[[^\]]*\]\([^)]*\)|<!--.*?-->|`[^`]*`", "", text)
    return " ".join(re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", text).split())


def between(page, mark):
    """What is between two markers of a page, in words only."""
    text = (ROOT / page).read_text()
    return plain(text[text.index(f"<!-- {mark} -->") : text.index(f"<!-- /{mark} -->")])


def results_sections():
    """The sections of RESULTS.md by their titles. The opening ends where the contents begin."""
    opening, contents, rest = (ROOT / "RESULTS.md").read_text().partition("\n## Contents\n")
    assert contents
    parts = [opening.removeprefix("# "), *rest.split("\n## ")[1:]]
    return {part.partition("\n")[0]: plain(part) for part in parts}


def check_section(title, phrases):
    check(results_sections()[title], phrases)


def check(text, phrases):
    """Every phrase is in the text, and no digit is in it outside of the phrases."""
    missing = []
    for phrase in phrases:
        missing += [phrase] * (phrase not in text)
        text = text.replace(phrase, " ")
    assert not missing, "\n".join(missing)
    assert not re.findall(r"\S*\d\S*", text)


def ends(cell):
    """Of an interval as it is printed: "+0.1 [-0.2, +0.4]* (+0.2)"."""
    _, low, high, *_ = map(float, re.findall(r"[-+][\d.]+", cell))
    return low, high


def own_rates(questions, column=4):
    """The gains in the table of rates, by cell and setting: the interval and the outcome."""
    table = questions.rates_table(questions.read("learning-rates", with_paper=True))
    return {
        (row[0], row[1]): (
            row[column].partition("]")[0] + "]",
            ("better" if row[column][0] == "+" else "worse") if "]*" in row[column] else "unclear",
        )
        for row in table.rows
        if row[1] != "base"
    }
