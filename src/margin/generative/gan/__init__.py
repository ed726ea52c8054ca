"""Generators that a critic judges."""
