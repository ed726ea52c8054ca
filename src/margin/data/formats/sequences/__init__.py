"""Sequences of values or tokens, of any lengths."""
