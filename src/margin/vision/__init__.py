"""Convolution and convolutional networks."""

FAMILIES = ("convnets", "segmentation")
