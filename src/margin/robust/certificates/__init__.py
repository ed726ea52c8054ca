"""Perturbations that are excluded: what a model keeps at least."""
