"""Graphs by messages along their edges."""
