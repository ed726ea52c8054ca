"""Sets of vectors and clouds of points."""
