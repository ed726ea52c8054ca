"""Bounds of a risk from a sample: for one classifier, for many, for a law over them."""
