"""Texts: word vectors, models that read a whole text, language models and transformers."""

FAMILIES = ("embeddings", "convolution", "transformers")

TEXT_TRAINING = {"epochs": 20, "batch_size": 50, "patience": 4, "lr": 0.001}
"""Defaults of the training of whole texts."""
