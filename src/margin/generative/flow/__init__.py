"""Densities by invertible or autoregressive maps."""
