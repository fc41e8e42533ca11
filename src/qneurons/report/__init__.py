"""The report of a study: numbers, claims, tables, figures and a page from the rows of a store."""

from qneurons.report.gains import gains_table as gains_table
from qneurons.report.headline import answer as answer
from qneurons.report.page import rows_of as rows_of, write_report as write_report
from qneurons.report.rendering import to_rich as to_rich
from qneurons.report.results import Results as Results
