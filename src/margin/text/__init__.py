"""Texts: word vectors, language models of characters and words."""

FAMILIES = ("embeddings",)
