"""Associative memories."""
