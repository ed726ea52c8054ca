"""Texts: their tokens, and the models that read them."""

FAMILIES = ("convolution", "transformers")

TEXT_TRAINING = {"epochs": 20, "batch_size": 50, "patience": 4, "lr": 0.001}
"""Defaults of the training of whole texts."""
