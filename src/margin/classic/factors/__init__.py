"""Gaussian factors of the features: principal components, probabilistic ones, factor analysis."""
