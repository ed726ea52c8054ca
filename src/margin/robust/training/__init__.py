"""Trainings against perturbations."""
