"""Sets and clouds of points."""
