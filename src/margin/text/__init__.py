"""Texts: word vectors, language models of characters and words, transformers."""

FAMILIES = ("embeddings", "transformers")
