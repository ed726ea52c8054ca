"""Matrices, norms, contractions, layouts of arrays."""
