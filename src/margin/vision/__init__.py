"""Convolution and convolutional networks."""

FAMILIES = ("convnets", "transformers")
