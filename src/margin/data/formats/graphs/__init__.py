"""Graphs, alone and in sets."""
