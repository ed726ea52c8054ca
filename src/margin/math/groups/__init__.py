"""Permutations and the groups they form, and the polynomials that they leave alone."""
