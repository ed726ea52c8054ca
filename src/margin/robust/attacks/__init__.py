"""Perturbations that are found: what a model loses at least."""
