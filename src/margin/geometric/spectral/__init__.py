"""Graphs by the spectrum of their Laplacian."""
