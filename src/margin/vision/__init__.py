"""Convolution and convolutional networks."""

FAMILIES = ("algebra", "convnets", "segmentation", "transformers")
