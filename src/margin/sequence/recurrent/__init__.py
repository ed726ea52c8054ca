"""Recurrences with a nonlinear step, and their training through time."""
