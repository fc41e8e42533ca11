"""The report of a study: numbers, claims, tables, figures and a page from the rows of a store."""

from qneurons.report.page import rows_of, write_report
from qneurons.report.rendering import to_rich
from qneurons.report.results import Results
from qneurons.report.tables import final_table

__all__ = ["Results", "final_table", "rows_of", "to_rich", "write_report"]
