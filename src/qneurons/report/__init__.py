"""What a store of a study says: numbers, verdicts, figures, and a page."""
