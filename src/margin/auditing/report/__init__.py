"""Findings on a page, in a terminal, as a table."""
