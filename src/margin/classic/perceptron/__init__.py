"""Halfspaces and their margins."""
