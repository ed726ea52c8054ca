"""The linear regions of a piecewise-linear network."""
