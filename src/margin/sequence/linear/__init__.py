"""Recurrences linear in the state, by a parallel scan."""
