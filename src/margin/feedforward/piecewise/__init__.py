"""Piecewise-linear functions of one variable as networks."""
