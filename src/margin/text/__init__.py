"""Texts: transformers."""

FAMILIES = ("transformers",)
