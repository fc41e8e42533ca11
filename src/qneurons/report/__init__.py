"""The report: numbers, claims, tables, figures and a page from the rows of a store."""
