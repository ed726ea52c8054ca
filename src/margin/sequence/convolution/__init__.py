"""Causal convolutions."""
