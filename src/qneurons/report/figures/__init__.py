"""Figures: they receive computed numbers and only draw."""
