"""Datasets, loaders and streams of PyTorch."""
