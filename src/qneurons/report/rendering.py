"""Numbers and tables for readers: what they hold, and how they are written."""

import functools
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from qneurons.report.final_values import Metric
from qneurons.report.inference import Estimate

if TYPE_CHECKING:
    import rich.table

NONE = "–"


@dataclass(frozen=True)
class Table:
    """Text in rows and columns, with an explanatory note."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    note: str = ""
    num_heads: int = 1  # so many of the first columns name the row

    @functools.cached_property  # the page asks for it in every cell
    def numeric(self) -> list[bool]:
        """For each column, whether it has numbers; columns that name the row have none."""
        number = re.compile(r"[-+<>[\s]*\d")
        columns = zip(*self.rows, strict=True)
        has_numbers = [any(map(number.match, column)) for column in columns]
        return [has and i >= self.num_heads for i, has in enumerate(has_numbers)]


@dataclass(frozen=True)
class Number:
    """A number of a verdict, in its unit: "%", "pp" for percentage points, or none."""

    label: str
    value: float
    low: float = math.nan
    high: float = math.nan
    unit: str = ""

    @classmethod
    def of(cls, label: str, mean: Estimate, *, unit: str = "") -> "Number":
        """An estimate with its interval; with a unit, shares become hundredths."""
        factor = 100 if unit else 1
        return cls(label, factor * mean.mean, factor * mean.low, factor * mean.high, unit)


def to_rich(table: Table) -> "rich.table.Table":
    """For a terminal. Brackets in the text are not read as markup."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table as RichTable
    from rich.text import Text

    shown = RichTable(
        title=Text(table.title),
        caption=Text(table.note),
        title_justify="left",
        caption_justify="left",
        box=SIMPLE_HEAD,
        show_edge=False,
        padding=(0, 1, 0, 0),
    )
    for name in table.columns:
        shown.add_column(Text(name), overflow="fold")  # never cut a number
    for row in table.rows:
        shown.add_row(*(Text(text) for text in row))
    return shown


def listed(names: Sequence[str], last: str = "and") -> str:
    """``a, b and c``."""
    return f" {last} ".join(filter(None, (", ".join(names[:-1]), names[-1])))


def one_line(text: str) -> str:
    """The text without line breaks and other control characters."""
    control = r"[\x00-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]"  # the last turn its direction
    return " ".join(re.sub(control, " ", text).split())


def markdown_text(text: str) -> str:
    """Text in one line that Markdown shows as it stands: without HTML, links and images.

    Titles, commands and names of datasets come from the files of others.
    """
    text = one_line(text)
    text = re.sub(r"&(?=#?\w+;)", "&amp;", text)
    return re.sub(r"<(?=[a-zA-Z/!?])", "&lt;", text).replace("](", "]&#40;").replace("][", "]&#91;")


def to_markdown(table: Table) -> str:
    """A heading, a pipe table and the note, in GitHub's dialect."""

    def line(texts: tuple[str, ...]) -> str:
        escaped = (text.replace("\\", "\\\\").replace("|", "\\|") for text in texts)
        return f"| {' | '.join(map(markdown_text, escaped))} |"

    rule = line(tuple("---" for _ in table.columns))
    rows = [line(table.columns), rule, *(line(row) for row in table.rows)]
    title, note = markdown_text(table.title), markdown_text(table.note)
    return "\n".join([f"### {title}", "", *rows, *(["", note] if note else [])])


def estimate_text(value: Estimate, metric: Metric) -> str:
    """``98.21 ± 0.05`` (per cent) or ``0.05120 ± 0.00031``; only the mean if it has no interval."""
    if math.isnan(value.mean):
        return NONE
    factor, form = (100, ".2f") if metric.percent else (1, _form(value, "#.4g"))
    mean = format(factor * value.mean, form)
    half = factor * (value.high - value.mean)
    return mean if math.isnan(half) else f"{mean} ± {half:{form}}"


def difference_texts(value: Estimate, metric: Metric) -> tuple[str, str]:
    """Mean and interval with their signs; percentages in percentage points."""
    factor, form = (100, "+.3f") if metric.percent else (1, "+" + _form(value, ".3g"))
    mean = NONE if math.isnan(value.mean) else format(factor * value.mean, form)
    return mean, interval_text(factor * value.low, factor * value.high, form)


def _form(value: Estimate, otherwise: str) -> str:
    """As many decimals as give half of the interval two digits; an exponent if it is tiny."""
    half = (value.high - value.low) / 2
    if not 0 < half < math.inf:
        return otherwise
    return f".{max(0, 1 - math.floor(math.log10(half)))}f" if half > 1e-6 else ".2e"


def interval_text(low: float, high: float, form: str) -> str:
    return NONE if math.isnan(low) else f"[{low:{form}}, {high:{form}}]"


def p_text(p: float) -> str:
    if math.isnan(p):
        return NONE
    return "< 0.001" if p < 0.001 else f"{p:.3f}"


def number_text(number: Number) -> str:
    """``label 82.90 %``, with its interval if it has one."""
    form = {"%": ".2f", "pp": "+.3f"}.get(number.unit, ".4g")
    value = NONE if math.isnan(number.value) else f"{number.value:{form}} {number.unit}".strip()
    interval = "" if math.isnan(number.low) else f" {interval_text(number.low, number.high, form)}"
    return f"{number.label} {value}{interval}"
